"""The options of each command but `train`, which `cli` has by name; `commands` does what they say."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from paramnoise import commands
from paramnoise.figures.base import FIGURES, Figure
from paramnoise.parallel.process import Device
from paramnoise.parsing import Command, Group, Other, Words
from paramnoise.runs.files import CHECKPOINT_SECONDS
from paramnoise.runs.which_delta import SIGMAS

RunDir = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
RunDirs = Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN_DIR ...")]


def resume(
    run_dir: RunDir,
    steps: int | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    device: Device | None = None,
    trust_env: bool = False,
) -> Command:
    """What `paramnoise resume` takes.

    Args:
        run_dir: the directory.
        steps: environment steps in all, to go on for longer than was asked for at first.
        checkpoint_seconds: seconds after which an evaluation is followed by a checkpoint.
        device: what to compute on; None: what JAX chooses, a GPU if it finds one.
        trust_env: make the stored environment though its id names a module, whose import runs code.
    """
    return lambda: commands.resume(
        run_dir, steps, checkpoint_seconds=checkpoint_seconds, device=device, trust_env=trust_env
    )


def evaluate(
    run_dir: RunDir,
    episodes: int = 20,
    seed: int = 0,
    video: Path | None = None,
    device: Device | None = None,
    trust_env: bool = False,
) -> Command:
    """What `paramnoise evaluate` takes.

    Args:
        run_dir: the directory.
        episodes: how many episodes.
        seed: decides the environments' random draws.
        video: a file, .mp4 or .gif, for a video of the first episode.
        device: what to compute on; None: what JAX chooses, a GPU if it finds one.
        trust_env: make the stored environment though its id names a module, whose import runs code.
    """
    return lambda: commands.evaluate(run_dir, episodes, seed, video, device, trust_env)


def delta(
    run_dir: RunDir,
    sigmas: tuple[float, ...] = SIGMAS,
    states: int = 1_000,
    seed: int = 0,
    device: Device | None = None,
    trust_env: bool = False,
) -> Command:
    """What `paramnoise delta` takes.

    Args:
        run_dir: the directory of a run, or of `agent.save`.
        sigmas: the standard deviations of the noise.
        states: how many states at the most; they are those of a few noise-free episodes.
        seed: decides the episodes and the noise.
        device: what to compute on; None: what JAX chooses, a GPU if it finds one.
        trust_env: make the stored environment though its id names a module, whose import runs code.
    """
    return lambda: commands.delta(run_dir, sigmas, states, seed, device, trust_env)


def claims(results: Path = Path("results"), out: Path | None = None, readme: tuple[Path, ...] = ()) -> Command:
    """What `paramnoise claims` takes.

    Args:
        results: the directory that holds a directory for each figure.
        out: the file for all of it in JSON; by default claims.json in that directory.
        readme: pages whose tables of claims and of rules are to be made anew.
    """
    return lambda: commands.claims(results, out, readme)


def report(results: Path | None = None, runs: tuple[Path, ...] = (), out: Path = Path("report")) -> Command:
    """What `paramnoise report` takes.

    Args:
        results: the directory that holds a directory for each figure; by default results/, where there is one.
        runs: run directories of your own, or directories with some below them.
        out: the directory for the pages; an earlier report there is replaced.
    """
    return lambda: commands.report(results, runs, out)


def film(
    run_dir: RunDir,
    out: Path,
    perturbed: int = 3,
    sigma: float | None = None,
    seed: int = 0,
    max_steps: int | None = None,
    device: Device | None = None,
    trust_env: bool = False,
) -> Command:
    """What `paramnoise film` takes.

    Args:
        run_dir: the directory of a run, or of `agent.save`.
        out: the file, .mp4 or .gif; what it shows is written beside it, in a .json of that name.
        perturbed: how many perturbed policies, beside the clean one.
        sigma: the standard deviation of their noise; by default the last of the run.
        seed: decides the episode.
        max_steps: steps after which it is cut; by default those of an evaluation.
        device: what to compute on; None: what JAX chooses, a GPU if it finds one.
        trust_env: make the stored environment though its id names a module, whose import runs code.
    """
    return lambda: commands.film(run_dir, out, perturbed, sigma, seed, max_steps, device, trust_env)


def envs(search: str = "") -> Command:
    """What `paramnoise envs` takes.

    Args:
        search: list only what has this in its id or in its line of help.
    """
    return lambda: commands.envs(search)


def reproduce_group() -> Group:
    """`paramnoise reproduce`: a command for each figure."""
    group = Group("figure")
    for figure in FIGURES.values():
        group.add(figure.name, partial(_reproduce_command, figure), figure.help)
    return group


def plot_group() -> Group:
    """`paramnoise plot`: a command for each figure, and one for directories of runs."""
    group = Group("figure")
    for figure in FIGURES.values():
        group.add(figure.name, partial(_plot_command, figure), f"Draw {figure.title}: {figure.shows}.")
    help = "Draw the learning curves of runs: a panel per environment, a line per config, with quartiles over seeds."
    group.add_other(Other("directory of runs", lambda word: Path(word).is_dir(), lambda: _plot_runs, help))
    return group


def _reproduce_command(figure: Figure[Any]) -> Words:
    arguments = figure.arguments

    def reproduce(args: Annotated[arguments, tyro.conf.arg(name="")] = arguments()) -> Command:  # type: ignore[valid-type]  # noqa: B008
        return lambda: figure.reproduce(args)

    return reproduce


def _plot_command(figure: Figure[Any]) -> Words:
    def plot(out: Path = Path("runs")) -> Command:
        """What `paramnoise plot FIGURE` takes.

        Args:
            out: where `reproduce` kept its results.
        """
        return lambda: figure.plot(out)

    return plot


def _plot_runs(run_dir: RunDirs, out: Path = Path("curves.png")) -> Command:
    """What `paramnoise plot RUN_DIR ...` takes.

    Args:
        run_dir: run directories, or directories with some below them.
        out: the picture; a file of that name is replaced.
    """
    return lambda: commands.plot_runs(run_dir, out)
