"""The command line: train, evaluate, reproduce, plot, envs.

Parsing returns a function to run, so that an error in the words of a command is one line and not a stack of boxes.
"""

import argparse
import contextlib
import dataclasses
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from paramnoise import commands
from paramnoise.agents.base import AGENTS, AgentEntry
from paramnoise.envs import env_id
from paramnoise.envs.base import preset
from paramnoise.figures import reproduce, reproduce_atari
from paramnoise.figures.atari import ATARI
from paramnoise.figures.chain import CHAIN
from paramnoise.figures.learning_curves import FIGURES, CurveFigure
from paramnoise.parallel.engine import Engine
from paramnoise.runs.config import RunSettings
from paramnoise.runs.run import CHECKPOINT_SECONDS
from paramnoise.validation import RunError, UsageError

Command = Callable[[], int]
Settings = TypeVar("Settings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(RunSettings, Generic[Settings]):
    """What `paramnoise train` takes, whatever the agent."""

    env: str
    """An id or a name; `paramnoise envs` lists them."""
    env_kwargs: tuple[str, ...] = ()
    """Keywords of the environment, as key:value."""
    exploration: tuple[str, ...] = ()
    """KIND [field:value ...], for example: parameter delta:0.05 adapt_every:50."""
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduce:
    """What `paramnoise reproduce` takes for a figure of learning curves."""

    scale: Literal["smoke", "small", "paper"] = "small"
    """How much of the figure; paper is all of it."""
    envs: tuple[str, ...] = ()
    """Tasks, by id or short name, in place of the scale's; any id of Gymnasium's works."""
    explorations: tuple[str, ...] = ()
    """Some of the figure's explorations, or agents in a figure that compares agents; all by default."""
    seeds: int | None = None
    """Seeds per task and exploration, in place of the scale's."""
    steps: int | None = None
    """Environment steps of a run, in place of the scale's; ES gets 25 times as many in the figure es."""
    eval_every: int | None = None
    """Environment steps between noise-free evaluations, in place of the scale's."""
    eval_episodes: int | None = None
    """Episodes of an evaluation, in place of the scale's."""
    workers: int | None = None
    """Runs side by side, one core each; by default one per core, or per CPU of the Ray cluster."""
    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or tasks on a Ray cluster whose nodes share --out."""
    ray_address: str | None = None
    """The Ray cluster to join, such as auto or HOST:PORT; by default one is started on this machine."""
    out: Path = Path("runs")
    """Where runs, results.csv and the figure are kept."""


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


def reproduce_chain(
    scale: Literal["smoke", "small", "paper"] = "small",
    lengths: tuple[int, ...] = (),
    explorations: tuple[str, ...] = (),
    seeds: int | None = None,
    episodes: int | None = None,
    workers: int | None = None,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    out: Path = Path("runs"),
) -> Command:
    """Reproduce the chain figure: episodes until solved, against the chain's length, for three explorations.

    Args:
        scale: how much of the figure; paper is all of it.
        lengths: the chains' lengths, in place of the scale's.
        explorations: some of parameter, bootstrap, epsilon-greedy; all by default.
        seeds: seeds per cell, in place of the scale's.
        episodes: episodes after which an unsolved run ends, in place of the scale's.
        workers: cells side by side; by default one per core, or per CPU of the Ray cluster.
        engine: processes of this machine, or tasks on a Ray cluster whose nodes share --out.
        ray_address: the Ray cluster to join, such as auto or HOST:PORT; by default one is started on this machine.
        out: where runs, results.csv and the figure are kept.
    """

    def command() -> int:
        where = Engine(name=engine, workers=workers, ray_address=ray_address)
        return reproduce.chain(scale, lengths, explorations, seeds, episodes, where, out)

    return command


def plot_chain(out: Path = Path("runs")) -> Command:
    """Draw the chain figure again from results.csv.

    Args:
        out: where `reproduce` kept its results.
    """
    return lambda: reproduce.plot_chain(out)


def reproduce_atari_figure(
    args: Annotated[reproduce_atari.Arguments, tyro.conf.arg(name="")] = reproduce_atari.Arguments(),  # noqa: B008
) -> Command:
    """Reproduce Figures 1 and 7: scores of the exploring policy on Atari games, and the table of noise-free scores."""
    return lambda: reproduce_atari.run(args)


def plot_atari(out: Path = Path("runs")) -> Command:
    """Draw the Atari figure and print the table again from results.csv and scores.csv.

    Args:
        out: where `reproduce` kept its results.
    """
    return lambda: reproduce_atari.plot(out)


def envs() -> Command:
    """List environments: ours, and those that Gymnasium knows on this machine."""
    return commands.envs


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _parse(arguments)()
    except UsageError as error:
        print(f"paramnoise: error: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"paramnoise: stopped: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output left early, as `head` does
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0


def _parse(arguments: list[str]) -> Command:
    app, train, figures, plot = (tyro.extras.SubcommandApp() for _ in range(4))
    for algorithm in AGENTS.values():
        train.command(name=algorithm.name)(_train_command(algorithm, arguments))
    figures.command(name=CHAIN.name)(reproduce_chain)
    plot.command(name=CHAIN.name)(plot_chain)
    figures.command(name=ATARI.name)(reproduce_atari_figure)
    plot.command(name=ATARI.name)(plot_atari)
    for figure in FIGURES.values():
        figures.command(name=figure.name)(_reproduce_command(figure))
        plot.command(name=figure.name)(_plot_command(figure))
    app.command(train, name="train", help="Train an agent on an environment.")
    app.command(name="evaluate")(evaluate)
    app.command(figures, name="reproduce", help="Run a figure of the paper, or go on with it.")
    app.command(plot, name="plot", help="Draw a figure again from its results.")
    app.command(name="envs")(envs)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return app.cli(
                prog="paramnoise",
                description="Exploration by parameter space noise (Plappert et al., 2018).",
                args=arguments,
            )
    except SystemExit as stop:
        if stop.code:
            raise UsageError(_unboxed(complaint.getvalue())) from None
        raise


def _train_command(algorithm: AgentEntry, arguments: list[str]) -> Callable[..., Command]:
    """The train command of one agent; its defaults are those of the environment that the arguments name."""
    env, env_kwargs, exploration = _named_env(arguments)
    known = preset(env, env_kwargs)
    agent = known.of(algorithm.name).with_exploration(exploration or algorithm.default_exploration)
    defaults = Train(env=tyro.MISSING, agent=algorithm.config(**agent), **known.run)
    settings = algorithm.config

    def train(args: Annotated[Train[settings], tyro.conf.arg(name="")] = defaults) -> Command:  # type: ignore[valid-type]
        return lambda: commands.train(algorithm, args)

    explorations = ", ".join(algorithm.explorations)
    train.__doc__ = (
        f"Train {algorithm.title}. Explorations: {explorations}; by default {algorithm.default_exploration}."
    )
    return train


def _reproduce_command(figure: CurveFigure) -> Callable[..., Command]:
    def reproduce_curves(args: Annotated[Reproduce, tyro.conf.arg(name="")] = Reproduce()) -> Command:  # noqa: B008
        return lambda: reproduce.curves(figure, args)

    shown = "steps until a return is reached" if figure.thresholds else "learning curves, a panel per task"
    reproduce_curves.__doc__ = f"Reproduce {figure.paper}: {shown}. Explorations: {', '.join(figure.by_name)}."
    return reproduce_curves


def _plot_command(figure: CurveFigure) -> Callable[..., Command]:
    def plot_curves(out: Path = Path("runs")) -> Command:
        """Draw the learning curves again from results.csv.

        Args:
            out: where `reproduce` kept its results.
        """
        return lambda: reproduce.plot_curves(figure, out)

    return plot_curves


def _named_env(arguments: list[str]) -> tuple[str, dict[str, Any], str]:
    """The environment and the exploration that the arguments name, read ahead of the rest for the preset's defaults."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--env", default="")
    parser.add_argument("--env-kwargs", nargs="*", default=[])
    parser.add_argument("--exploration", nargs="*", default=[])
    try:
        found, _ = parser.parse_known_args([_with_dashes(word) for word in arguments])
    except argparse.ArgumentError:
        return "", {}, ""
    kwargs = commands.key_values("--env-kwargs", found.env_kwargs)
    return env_id(found.env), kwargs, next(iter(found.exploration), "")


def _with_dashes(word: str) -> str:
    """An option as tyro reads it: underscores in its name are dashes."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else word


def _unboxed(text: str) -> str:
    """An error that tyro drew as a box, as one line."""
    lines = [line.strip("│╭╮╰╯ ") for line in text.splitlines()]
    parts: list[list[str]] = [[]]
    for line in lines[1:]:
        if set(line) <= {"─"}:
            parts.append([])
        else:
            parts[-1].append(line)
    sentences = [" ".join(part) for part in parts if part and not part[0].startswith("Argument helptext")]
    return "; ".join(
        sentence.rstrip(".").replace("For full helptext, run", "see").replace("see:", "see") for sentence in sentences
    )


def entry() -> None:
    """The installed command."""
    sys.exit(main())
