"""The command line: the words of train, evaluate, reproduce, plot, claims and envs; `commands` does what they say.

Whatever is registered, by this package or by a plug-in, is a word here.
"""

import argparse
import ast
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from paramnoise import commands
from paramnoise.agents.base import AGENTS, AgentEntry
from paramnoise.envs import env_id
from paramnoise.envs.base import Preset, preset
from paramnoise.figures.base import FIGURES, Figure
from paramnoise.parsing import Command, Group, Words
from paramnoise.plugins import load_plugins
from paramnoise.runs.config import RunConfig, RunSettings, make_config
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.run import CHECKPOINT_SECONDS
from paramnoise.validation import RunError, UsageError, check_types

DESCRIPTION = """Exploration by parameter space noise (Plappert et al., 2018).

--plugin MODULE, before the command, imports a module that registers agents, explorations, environments or figures."""
Settings = TypeVar("Settings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be learned, and how it is explored."""

    env: str
    """An id or a name; `paramnoise envs` lists them."""
    env_kwargs: tuple[str, ...] = ()
    """Keywords of the environment, as key:value."""
    exploration: tuple[str, ...] = ()
    """KIND [field:value ...], for example: parameter delta:0.05 adapt_every:50."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(RunSettings, Task, Generic[Settings]):
    """What `paramnoise train` takes, whatever the agent."""

    run_dir: Path | None = None
    """Where the run is kept; by default a new directory below runs/."""
    resume: bool = False
    """Go on with the run that the directory holds."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    """Seconds after which an evaluation is followed by a checkpoint; one is written at the end in any case."""
    tensorboard: bool = False
    """Write event files for TensorBoard too, in the run directory."""
    agent: Annotated[Settings, tyro.conf.arg(name="")]
    """The agent's settings."""


def evaluate(
    run_dir: tyro.conf.Positional[Path], episodes: int = 20, seed: int = 0, video: Path | None = None
) -> Command:
    """Run noise-free episodes with the agent of a run directory, or of `agent.save`.

    Args:
        run_dir: the directory.
        episodes: how many episodes.
        seed: decides the environments' random draws.
        video: a file, .mp4 or .gif, for a video of the first episode.
    """
    return lambda: commands.evaluate(run_dir, episodes, seed, video)


def claims(results: Path = Path("results"), out: Path | None = None, readme: tuple[Path, ...] = ()) -> Command:
    """Hold each claim of the paper against results: its verdict, and the numbers behind it.

    Args:
        results: the directory that holds a directory for each figure.
        out: the file for all of it in JSON; by default claims.json in that directory.
        readme: pages whose tables of claims and of rules are to be made anew.
    """
    return lambda: commands.claims(results, out, readme)


def envs() -> Command:
    """List environments: ours, and those that Gymnasium knows on this machine."""
    return commands.envs


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    try:
        arguments = _take_plugins(list(sys.argv[1:] if argv is None else argv))
        ahead = _read_ahead(arguments)
        run = RunDirectory(Path(ahead.run_dir)).naming_plugins() if ahead.run_dir else contextlib.nullcontext()
        with run:
            return _parse(arguments, ahead)()
    except UsageError as error:
        print(f"paramnoise: error: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"paramnoise: stopped: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output left early, as `head` does
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0


def _parse(arguments: list[str], ahead: argparse.Namespace) -> Command:
    app = Group("command")
    app.add("train", lambda: _train_group(ahead), help="Train an agent on an environment.")
    app.add("evaluate", lambda: evaluate)
    app.add("reproduce", lambda: _figure_group(_reproduce_command), help="Run a figure of the paper, or go on with it.")
    app.add("plot", lambda: _figure_group(_plot_command), help="Draw a figure again from its results.")
    app.add("claims", lambda: claims)
    app.add("envs", lambda: envs)
    return app.parse("paramnoise", DESCRIPTION, arguments)


def _train_group(ahead: argparse.Namespace) -> Group:
    group = Group("agent")
    known = preset(env_id(ahead.env), _key_values("--env-kwargs", ahead.env_kwargs))
    for agent in AGENTS.values():
        group.add(agent.name, partial(_train_command, agent, known, next(iter(ahead.exploration), None)))
    return group


def _figure_group(command: Callable[[Figure[Any]], Words]) -> Group:
    group = Group("figure")
    for figure in FIGURES.values():
        group.add(figure.name, partial(command, figure))
    return group


def _train_command(agent: AgentEntry, known: Preset, exploration: str | None) -> Words:
    """The train command of one agent; its defaults are those of a preset, with an exploration."""
    settings = known.for_agent(agent.name).with_exploration(exploration or agent.default_exploration)
    check_types(agent.config, settings, f"{agent.name}, in the environment's preset,")
    check_types(RunSettings, known.run, "a run, in the environment's preset,")
    defaults = Train(env=tyro.MISSING, agent=agent.config(**settings), **known.run)
    config_type = agent.config

    def train(args: Annotated[Train[config_type], tyro.conf.arg(name="")] = defaults) -> Command:  # type: ignore[valid-type]
        return lambda: commands.train(
            _run_config(agent, args),
            args.run_dir,
            resume=args.resume,
            checkpoint_seconds=args.checkpoint_seconds,
            tensorboard=args.tensorboard,
        )

    explorations = ", ".join(agent.explorations)
    train.__doc__ = f"Train {agent.title}. Explorations: {explorations}; by default {agent.default_exploration}."
    return train


def _run_config(agent: AgentEntry, args: Train[Any]) -> RunConfig:
    kind, *settings = args.exploration or (agent.default_exploration,)
    return make_config(
        agent.name,
        args.env,
        _key_values("--env-kwargs", args.env_kwargs),
        exploration=kind,
        exploration_settings=_key_values("--exploration", settings),
        agent={field.name: getattr(args.agent, field.name) for field in dataclasses.fields(args.agent)},
        **{field.name: getattr(args, field.name) for field in dataclasses.fields(RunSettings)},
    )


def _reproduce_command(figure: Figure[Any]) -> Words:
    arguments = figure.arguments

    def reproduce(args: Annotated[arguments, tyro.conf.arg(name="")] = arguments()) -> Command:  # type: ignore[valid-type]  # noqa: B008
        return lambda: figure.reproduce(args)

    reproduce.__doc__ = figure.help
    return reproduce


def _plot_command(figure: Figure[Any]) -> Words:
    def plot(out: Path = Path("runs")) -> Command:
        """Draw the figure again, and print what it comes to, from its results alone.

        Args:
            out: where `reproduce` kept its results.
        """
        return lambda: figure.plot(out)

    return plot


def _read_ahead(arguments: list[str]) -> argparse.Namespace:
    """The words of `train` that decide the defaults of the others, by the environment's preset; and the run's place."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--env", default="")
    parser.add_argument("--env-kwargs", nargs="*", default=[])
    parser.add_argument("--exploration", nargs="*", default=[])
    parser.add_argument("--run-dir", default="")
    try:
        return parser.parse_known_args([_with_dashes(word) for word in arguments])[0]
    except argparse.ArgumentError:  # an option without its value, which the command's own parser tells of
        return parser.parse_args([])


def _with_dashes(word: str) -> str:
    """An option as tyro reads it: underscores in its name are dashes."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else word


def _key_values(option: str, words: Sequence[str]) -> dict[str, Any]:
    """Words of the form key:value as a dict; numbers, booleans, None and lists are read as such."""
    values: dict[str, Any] = {}
    for word in words:
        key, colon, text = word.partition(":")
        if not (key and colon):
            raise UsageError(f"{option} takes key:value, not {word!r}")
        try:
            values[key] = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        except (ValueError, SyntaxError, TypeError):
            values[key] = text
    return values


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
    sys.exit(main())
