"""What `paramnoise reproduce` and `paramnoise plot` do."""

import dataclasses
import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paramnoise.agents.base import find_agent
from paramnoise.commands import INTERRUPTED, use_compilation_cache
from paramnoise.envs import env_factory
from paramnoise.figures import chain as chain_figure
from paramnoise.figures import curve_summary, learning_curves, sample_efficiency
from paramnoise.figures.chain import CHAIN, Cell
from paramnoise.figures.curve_results import Point, read_results, write_results
from paramnoise.figures.learning_curves import CurveFigure, CurveRun
from paramnoise.figures.sweep_display import SweepDisplay, sweep_display
from paramnoise.parallel.engine import Engine
from paramnoise.parallel.sweep import Line
from paramnoise.runs.display import StopFlag, bar, stop_on_signals
from paramnoise.validation import UsageError, lookup, require

LOG = "workers.log"
"""Below a figure's directory: what its worker processes print, such as warnings and tracebacks."""

SUMMARY = "summary.csv"
"""Beside a figure's results.csv: what they come to."""

NOT_DRAWN = "no figure, since matplotlib is not installed: pip install matplotlib, then draw it with paramnoise plot"


def chain(
    scale: str,
    lengths: Sequence[int],
    explorations: Sequence[str],
    seeds: int | None,
    episodes: int | None,
    engine: Engine,
    out: Path,
) -> int:
    """`paramnoise reproduce chain`."""
    size = CHAIN.scales[scale]
    methods = {method.exploration: method for method in CHAIN.methods}
    chosen = [lookup("exploration", name, methods) for name in dict.fromkeys(explorations)] or list(CHAIN.methods)
    seeds = size.seeds if seeds is None else seeds
    episodes = size.episodes if episodes is None else episodes
    out = engine.place(out)
    for name, value in (("seeds", seeds), ("episodes", episodes)):
        require(value >= 1, name, value, "at least 1")
    grid = chain_figure.cells(sorted(set(lengths)) or size.lengths, chosen, seeds, episodes)
    for cell in grid:
        cell.config(0)  # a length that cannot be is an error before anything runs
    status = _run_cells(grid, out, engine)
    outcomes = chain_figure.collect(grid, out)
    if not outcomes:
        print("no run has finished yet")
        return status
    directory = out / CHAIN.name
    chain_figure.write_results(outcomes, directory / "results.csv")
    _print_medians(outcomes)
    print(directory / "results.csv")
    if can_draw():
        _draw_chain(outcomes, directory)
    else:
        print(NOT_DRAWN)
    return status


def plot_chain(out: Path) -> int:
    """`paramnoise plot chain`."""
    path = results_of(CHAIN.name, out)
    _draw_chain(chain_figure.read_results(path), path.parent)
    return 0


def curves(figure: CurveFigure, args: Any) -> int:
    """`paramnoise reproduce` of a figure of learning curves; `args` is `cli.Reproduce`."""
    engine = Engine(name=args.engine, workers=args.workers, ray_address=args.ray_address)
    out = engine.place(args.out)
    runs = _asked_for(figure, args, out)
    for each in runs:
        each.check()
    todo = learning_curves.in_order(each for each in runs if not each.is_finished())
    _check_envs(todo)
    status = _run_curves(figure, runs, todo, engine)
    points = [point for each in runs for point in each.curve()]
    if not points:
        print("no run has a result yet")
        return status
    path = out / figure.name / "results.csv"
    write_results(points, path)
    _report(figure, points, path.with_name(SUMMARY))
    if unfinished := sum(not each.is_finished() for each in runs):
        print(f"{unfinished} of {len(runs)} runs are not finished; the results hold what there is of them")
    print(path)
    if can_draw():
        _draw_curves(figure, points, path.parent)
    else:
        print(NOT_DRAWN)
    return status


def _asked_for(figure: CurveFigure, args: Any, out: Path) -> list[CurveRun]:
    """The runs of a scale of the figure, with what the arguments put in its place."""
    changes: dict[str, Any] = {}
    for name in ("seeds", "steps", "eval_every", "eval_episodes"):
        if (value := getattr(args, name)) is not None:
            require(value >= 1, name, value, "at least 1")
            changes[name] = value
    if args.envs:
        changes["envs"] = tuple(dict.fromkeys(learning_curves.find_env(name) for name in args.envs))
    names = dict.fromkeys(args.explorations)
    chosen = [lookup("exploration", name, figure.by_name) for name in names] or figure.methods
    return learning_curves.grid(figure, dataclasses.replace(figure.scales[args.scale], **changes), chosen, out)


def plot_curves(figure: CurveFigure, out: Path) -> int:
    """`paramnoise plot` of a figure of learning curves."""
    path = results_of(figure.name, out)
    points = read_results(path)
    _report(figure, points, path.with_name(SUMMARY))
    _draw_curves(figure, points, path.parent)
    return 0


def _report(figure: CurveFigure, points: list[Point], path: Path) -> None:
    """Prints what the points come to, and writes it to `path`."""
    if figure.thresholds:
        sample_efficiency.report(points, figure.thresholds, path)
    else:
        curve_summary.report(points, path)


def _check_envs(runs: Sequence[CurveRun]) -> None:
    """Raises UsageError if an environment cannot be made, or its actions do not fit, before anything runs."""
    for config in {(each.config.env, each.config.algorithm): each.config for each in runs}.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium warns of every version but the newest
            env = env_factory(config.env, config.env_kwargs)()
        algorithm = find_agent(config.algorithm)
        algorithm.build(config.agent, config.env, env.observation_space, env.action_space)
        env.close()


def _run_curves(figure: CurveFigure, runs: Sequence[CurveRun], todo: Sequence[CurveRun], engine: Engine) -> int:
    """Runs what is not finished; returns the exit status. results.csv grows with every run that ends."""
    done = len(runs) - len(todo)
    print(f"{figure.paper} ({figure.name}): {len(runs)} runs, {done} on disk, {engine}", flush=True)
    if not todo:
        return 0
    directory = todo[0].out / figure.name
    known = {each.name: each.curve() for each in runs}
    run_all = engine.connect()
    with sweep_display(figure.name, runs, todo) as display, stop_on_signals() as stop:
        for event in run_all(_train, todo, stop=stop, log=directory / LOG):
            display.follow(event)
            if event.state in ("finished", "failed", "stopped"):
                known[event.task.name] = event.task.curve()
                write_results((point for curve in known.values() for point in curve), directory / "results.csv")
    return end_of_sweep(display, stop, f"{len(runs)} runs", directory / LOG)


def end_of_sweep(display: SweepDisplay, stop: StopFlag, total: str, log: Path) -> int:
    """Says how a sweep ended; returns the exit status."""
    for name, reason in display.failures.items():
        print(f"{name} {reason}")
    if stop:
        print(f"interrupted: {display.finished} of {total} are finished; the same command goes on from here")
        return INTERRUPTED + (stop.signal or 0)
    if display.failures:
        print(f"{len(display.failures)} of {total} failed; the same command tries them again ({log})")
    return 1 if display.failures else 0


def _train(each: CurveRun, line: Line) -> bool:
    """What a worker process does with a run."""
    use_compilation_cache()
    return learning_curves.train(each, line)


def _draw_curves(figure: CurveFigure, points: list[Point], directory: Path) -> None:
    from paramnoise.figures.plots import plot_learning_curves, plot_sample_efficiency

    path = directory / f"{figure.name}.png"
    (plot_sample_efficiency if figure.thresholds else plot_learning_curves)(figure, points, path)
    print(path)


def _draw_chain(outcomes: list[chain_figure.Outcome], directory: Path) -> None:
    from paramnoise.figures.plots import plot_chain as draw

    draw(outcomes, directory / "chain.png")
    print(directory / "chain.png")


def can_draw() -> bool:
    """Whether matplotlib is there; it is slow to import, and to run a figure on another machine it is not needed."""
    return importlib.util.find_spec("matplotlib") is not None


def results_of(name: str, out: Path) -> Path:
    """The results.csv of a figure; UsageError if there is none, or nothing to draw it with."""
    path = out / name / "results.csv"
    if not path.exists():
        raise UsageError(f"{path} does not exist: run `paramnoise reproduce {name} --out {out}` first")
    if not can_draw():
        raise UsageError(NOT_DRAWN)
    return path


def _run_cells(grid: list[Cell], out: Path, engine: Engine) -> int:
    """Runs what is not on disk yet; returns the exit status."""
    total = len(grid)
    todo = [cell for cell in grid if not all(cell.outcome(out, seed) for seed in cell.seeds)]
    print(f"{CHAIN.paper} ({CHAIN.name}): {total} cells, {total - len(todo)} on disk, {engine}", flush=True)
    if not todo:
        return 0
    failed = 0
    work = _CellWork(out)
    log = out / CHAIN.name / LOG
    run_all = engine.connect()
    with bar(total, CHAIN.name, "cells") as shown, stop_on_signals() as stop:
        done = total - len(todo)
        shown.advance_to(done)
        for cell, state, error in run_all(work, todo, stop=stop, log=log):
            if state not in ("finished", "failed"):
                continue
            done += 1
            shown.advance_to(done)
            failed += state == "failed"
            outcome = _describe_cell(cell, out) if state == "finished" else f"{cell.name}: failed: {error}"
            shown.line(f"[{done}/{total}] {outcome}")
    if stop:
        print(f"interrupted: {done} of {total} cells are done; the same command goes on from here")
        return INTERRUPTED + (stop.signal or 0)
    return 1 if failed else 0


@dataclasses.dataclass(frozen=True)
class _CellWork:
    """What a worker process does with a cell."""

    out: Path

    def __call__(self, cell: Cell, line: Line) -> bool:
        use_compilation_cache()
        return chain_figure.run_cell(cell, self.out, line.should_stop)


def _describe_cell(cell: Cell, out: Path) -> str:
    outcomes = [outcome for seed in cell.seeds if (outcome := cell.outcome(out, seed))]
    (median,) = chain_figure.medians(outcomes)
    return f"{cell.name}: {median.solved_seeds} of {median.seeds} seeds solved it, median {median.episodes:g} episodes"


def _print_medians(outcomes: list[chain_figure.Outcome]) -> None:
    labels = {method.exploration: method.label for method in CHAIN.methods}
    table = Table("method", "N", "episodes", "solved", title="Episodes until solved (median over seeds)")
    for column in table.columns[1:]:
        column.justify = "right"
    order = list(labels)
    for median in sorted(chain_figure.medians(outcomes), key=lambda m: (order.index(m.exploration), m.length)):
        solved = f"{'yes' if median.solved else 'no'} ({median.solved_seeds} of {median.seeds})"
        episodes = f"{median.episodes:g}" if median.solved else f"over {median.episodes:g}"
        table.add_row(labels[median.exploration], str(median.length), episodes, solved)
    Console().print(table)
