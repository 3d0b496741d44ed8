"""The command line: its commands by name. `words` and `train_words` have their options; `commands` does them.

This module imports nothing that needs JAX, so that `--version` and the first page of help answer at once.
"""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Sequence

from paramnoise import __version__
from paramnoise.parsing import Group
from paramnoise.plugins import load_plugins
from paramnoise.validation import RunError, UsageError, printable, system_error

DESCRIPTION = """Exploration by parameter space noise (Plappert et al., 2018).

--version prints the version.
--plugin MODULE, before the command, imports a module that registers agents, explorations, environments or figures."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    try:
        status = _run(_take_plugins(list(sys.argv[1:] if argv is None else argv)))
        sys.stdout.flush()
        return status
    except UsageError as error:
        print(f"paramnoise: error: {printable(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output left early, as `head` does
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    except (RunError, OSError, MemoryError) as error:
        return _stopped(error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _stopped(error: RunError | OSError | MemoryError) -> int:
    """Says in one line why a command could not do its work; returns its exit status."""
    why = system_error(error) if isinstance(error, OSError) else str(error) or "out of memory"
    print(f"paramnoise: stopped: {printable(why)}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # the output itself cannot be written
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    return 1


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"paramnoise {__version__}")
        return 0
    app = Group("command")
    app.add("train", lambda: _train_words().train_group(arguments), "Train an agent on an environment.")
    app.add("resume", lambda: _words().resume, "Go on with the run of a directory, with all its settings.")
    app.add(
        "evaluate",
        lambda: _words().evaluate,
        "Run noise-free episodes with the agent of a run directory, or of `agent.save`.",
    )
    app.add("delta", lambda: _words().delta, "Show what parameter noise of several sizes does to an agent's policy.")
    app.add("reproduce", lambda: _words().reproduce_group(), "Run a figure of the paper, or go on with it.")
    app.add(
        "plot",
        lambda: _words().plot_group(),
        "Draw a figure again from its results, or the learning curves of any runs: paramnoise plot RUN_DIR ...",
    )
    app.add("claims", lambda: _words().claims, "Hold each claim of the paper against results: its verdict, and why.")
    app.add(
        "report", lambda: _words().report, "Write what results and runs show as a site of pages to open in a browser."
    )
    app.add(
        "film", lambda: _words().film, "Film an agent's clean policy and perturbed ones side by side, on one episode."
    )
    app.add("envs", lambda: _words().envs, "List environments: ours, and those that Gymnasium knows on this machine.")
    trains = arguments[:1] == ["train"]
    with _train_words().naming_plugins(arguments) if trains else contextlib.nullcontext():
        return app.parse("paramnoise", DESCRIPTION, arguments)()


def _words():  # type: ignore[no-untyped-def]  # a module
    """The options of the other commands, and with them JAX."""
    from paramnoise import words

    return words


def _train_words():  # type: ignore[no-untyped-def]  # a module
    """The options of `train`, and with them JAX."""
    from paramnoise import train_words

    return train_words


def _take_plugins(arguments: list[str]) -> list[str]:
    """Loads the plug-ins that the words begin with; returns the words after them."""
    modules = []
    while arguments and arguments[0].partition("=")[0] == "--plugin":
        _, equals, module = arguments.pop(0).partition("=")
        if not equals and not arguments:
            raise UsageError("--plugin needs the name of a module")
        modules.append(module if equals else arguments.pop(0))
    load_plugins(modules)
    return arguments


def entry() -> None:
    """The installed command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path may hold bytes that are no text
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
