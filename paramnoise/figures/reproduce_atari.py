"""What `paramnoise reproduce atari` and `paramnoise plot atari` do."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from paramnoise.commands import use_compilation_cache
from paramnoise.figures import atari, atari_results, atari_scores, reproduce
from paramnoise.figures.atari import ATARI, SCALES, AtariGroup, AtariRun, Score
from paramnoise.figures.curve_results import Point, read_results
from paramnoise.figures.sweep_display import sweep_display
from paramnoise.parallel.sweep import Line, run_all
from paramnoise.runs.display import stop_on_signals
from paramnoise.validation import lookup, require

SCORES, TABLE = "scores.csv", "scores.md"
"""Beside results.csv: the noise-free scores, and the table that they make."""
MEMORY_SHARE = 0.9
"""Of an accelerator's memory, for all processes that share it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What `paramnoise reproduce atari` takes."""

    scale: Literal["smoke", "small", "paper"] = "small"
    """How much of the figure; paper is all of it."""
    envs: tuple[str, ...] = ()
    """Games, by name or id, in place of the scale's; any game of the emulator's works."""
    explorations: tuple[str, ...] = ()
    """Some of parameter, epsilon-greedy, epsilon-greedy-two-heads; all by default."""
    seeds: int | None = None
    """Seeds per game and exploration, in place of the scale's; they train side by side in one process."""
    steps: int | None = None
    """Steps of a run, 4 frames each, in place of the scale's."""
    eval_every: int | None = None
    """Steps between noise-free evaluations, in place of the scale's."""
    eval_episodes: int | None = None
    """Games of an evaluation, in place of the scale's."""
    log_every: int | None = None
    """Steps between points of a curve, in place of the scale's."""
    num_envs: int | None = None
    """Environments of each seed, in place of the preset's."""
    save_replay: bool = False
    """Keep replay in checkpoints, 7 GB of each run, so that a resumed run is exact; else it is filled anew."""
    workers: int = 1
    """Processes side by side; each uses all cores, and they share a GPU."""
    out: Path = Path("runs")
    """Where runs, results.csv, the table and the figure are kept."""


def run(args: Arguments) -> int:
    """`paramnoise reproduce atari`."""
    require(args.workers >= 1, "workers", args.workers, "at least 1")
    groups = _asked_for(args)
    runs = [each for group in groups for each in group.runs]
    for each in runs:
        each.check()
    status = _run(groups, atari.in_order(groups), args.workers, args.out / ATARI.name)
    points, scores = _write(runs, args.out / ATARI.name)
    if not points:
        print("no run has a result yet")
        return status
    if unfinished := sum(not each.is_finished() for each in runs):
        print(f"{unfinished} of {len(runs)} runs are not finished; the results hold what there is of them")
    _report(points, scores, args.out / ATARI.name, draws=reproduce.can_draw())
    return status


def plot(out: Path) -> int:
    """`paramnoise plot atari`."""
    path = reproduce.results_of(ATARI.name, out)
    _report(read_results(path), atari_results.read_scores(path.with_name(SCORES)), path.parent, draws=True)
    return 0


def _asked_for(args: Arguments) -> list[AtariGroup]:
    """The groups of a scale of the figure, with what the arguments put in its place."""
    scale = SCALES[args.scale]
    changes: dict[str, Any] = {"save_replay": args.save_replay}
    for name in ("seeds", "steps", "eval_every", "eval_episodes", "log_every", "num_envs"):
        if (value := getattr(args, name)) is not None:
            require(value >= 1, name, value, "at least 1")
            changes[name] = value
    changes["envs"] = tuple(dict.fromkeys(atari.find_game(name) for name in args.envs or scale.envs))
    methods = {method.exploration: method for method in ATARI.methods}
    chosen = [lookup("exploration", name, methods) for name in dict.fromkeys(args.explorations)] or ATARI.methods
    return atari.grid(dataclasses.replace(scale, **changes), chosen, args.out)


def _run(groups: Sequence[AtariGroup], todo: Sequence[AtariGroup], workers: int, directory: Path) -> int:
    """Runs what is not finished; returns the exit status. Results grow with every group that ends."""
    runs = [each for group in groups for each in group.runs]
    done = sum(each.is_finished() for each in runs)
    left = f"{len(todo)} group{'s' * (len(todo) != 1)} to train"
    print(f"{ATARI.paper} ({ATARI.name}): {len(runs)} runs, {done} on disk, {left}", flush=True)
    if not todo:
        return 0
    if workers > 1:
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{MEMORY_SHARE / workers:.3f}")
    log = directory / reproduce.LOG
    with sweep_display(ATARI.name, todo, todo) as display, stop_on_signals() as stop:
        for event in run_all(_train, todo, workers, stop, log, whole_machine=True):
            display.follow(event)
            if event.state in ("finished", "failed", "stopped"):
                _write(runs, directory)
    return reproduce.end_of_sweep(display, stop, f"{len(todo)} groups", log)


def _train(group: AtariGroup, line: Line) -> bool:
    """What a worker process does with a group."""
    use_compilation_cache()
    return atari.train(group, line)


def _write(runs: Sequence[AtariRun], directory: Path) -> tuple[list[Point], list[Score]]:
    """Writes results.csv and scores.csv, if there is anything to write; returns what they hold."""
    points = [point for each in runs for point in each.curve()]
    scores = [score for each in runs for score in each.scores()]
    if points:
        atari_results.write_curves(points, directory / "results.csv")
        atari_results.write_scores(scores, directory / SCORES)
    return points, scores


def _report(points: list[Point], scores: list[Score], directory: Path, *, draws: bool) -> None:
    """Prints the table, draws the figure, and says where all of it is."""
    if scores:
        atari_scores.report(scores, directory / TABLE)
        print(directory / SCORES)
    print(directory / "results.csv")
    shown = atari_results.carried(points)
    if not shown:
        print("no figure, since no game has ended yet")
    elif draws:
        from paramnoise.figures.plots import plot_learning_curves

        path = directory / f"{ATARI.name}.png"
        plot_learning_curves(ATARI, shown, path, x_label="million frames", y_label="score while exploring")
        print(path)
    else:
        print(reproduce.NOT_DRAWN)
