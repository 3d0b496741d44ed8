"""What a figure of learning curves comes to: its runs at a step that all of a task have reached, in numbers."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from paramnoise.envs.base import ReturnBounds, env_label, return_bounds
from paramnoise.figures.curve_results import Point
from paramnoise.figures.statistics import (
    CONFIDENCE,
    Estimate,
    estimate_interquartile_mean,
    normalise,
    probability_of_improvement,
)
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text

WIDTH = 140
"""Columns of a table that does not go to a terminal."""


def table_console(width: int = WIDTH) -> Console:
    """Where tables are printed: as wide as the terminal, or as `width` says where there is none."""
    console = Console()
    if not console.is_terminal:
        console.width = width
    return console


class Comparison(NamedTuple):
    """The runs of one task at one step."""

    step: int
    """The last step at which every run of the task has an evaluation."""
    last_step: int
    """The last step of any of its runs."""
    scores: dict[str, np.ndarray]
    """By exploration, a return per seed."""


class Summary(NamedTuple):
    """One exploration on one task: a row of summary.csv."""

    env: str
    exploration: str
    seeds: int
    step: int
    last_step: int
    median: float
    q25: float
    q75: float
    iqm: float
    """The interquartile mean."""
    low: float
    """The lower end of its interval; NaN for a single seed."""
    high: float


def report(points: list[Point], path: Path, subjects: Sequence[str]) -> None:
    """Prints what came out, with each of `subjects` against each other exploration, and writes summary.csv."""
    tasks = compare(points)
    summaries = summarise(tasks)
    console = table_console()
    together = over_tasks(tasks)
    console.print(_table(summaries, together))
    if len(tasks) > 1:
        _say_scale(tasks, shown=bool(together))
    if any(task.step < task.last_step for task in tasks.values()):
        print("a task with runs of unequal length is compared at the last step that all its runs have reached")
    for env in dict.fromkeys(point.env for point in points if point.env not in tasks):
        print(f"{env}: not compared, since its runs have no evaluation at the same step")
    for subject in subjects:
        for other, estimate in improvements(tasks, subject).items():
            print(f"{subject} over {other}: probability of improvement {estimate_text(estimate, '.2f')}")
    write_summary(summaries, path)
    print(path)


Runs = dict[tuple[str, int], dict[int, float]]
"""Those of a task: the values of each exploration and seed, by step."""


def runs_by_task(points: Iterable[Point]) -> dict[str, Runs]:
    """The runs that points are of."""
    tasks: dict[str, Runs] = {}
    for point in points:
        runs = tasks.setdefault(point.env, {})
        runs.setdefault((point.exploration, point.seed), {})[point.step] = point.value
    return tasks


def compare(points: Iterable[Point]) -> dict[str, Comparison]:
    """The comparison that each task allows; a task whose runs have no step in common has none."""
    compared = {env: _comparison(runs) for env, runs in runs_by_task(points).items()}
    return {env: comparison for env, comparison in compared.items() if comparison is not None}


def _comparison(runs: Runs) -> Comparison | None:
    common = set.intersection(*(set(curve) for curve in runs.values()))
    if not common:
        return None
    step = max(common)
    scores: dict[str, list[float]] = {}
    for (exploration, _), curve in runs.items():
        scores.setdefault(exploration, []).append(curve[step])
    last_step = max(max(curve) for curve in runs.values())
    return Comparison(step, last_step, {exploration: np.array(values) for exploration, values in scores.items()})


def summarise(tasks: dict[str, Comparison]) -> list[Summary]:
    """Median, quartiles and interquartile mean over seeds, by task and exploration in the order in which they come."""
    return [
        _summary(env, exploration, task, scores)
        for env, task in tasks.items()
        for exploration, scores in task.scores.items()
    ]


def _summary(env: str, exploration: str, task: Comparison, scores: np.ndarray) -> Summary:
    q25, median, q75 = np.percentile(scores, [25, 50, 75]).tolist()
    iqm = estimate_interquartile_mean([scores])
    return Summary(env, exploration, len(scores), task.step, task.last_step, median, q25, q75, *iqm)


def over_tasks(tasks: dict[str, Comparison]) -> dict[str, Estimate]:
    """By exploration, the interquartile mean over the tasks that can be put together; empty for fewer than two.

    A task's scores are normalised between bounds that are registered with it, so that the number does not depend on
    which runs stand beside each other.
    """
    scales = bounds_of(tasks)
    if len(scales) < 2:
        return {}
    return {
        name: estimate_interquartile_mean(
            [normalise(tasks[env].scores[name], scale.low, scale.high) for env, scale in scales.items()]
        )
        for name in next(tasks[env].scores for env in scales)
    }


def bounds_of(tasks: dict[str, Comparison]) -> dict[str, ReturnBounds]:
    """The bounds of the tasks that all explorations have and whose bounds are known."""
    explorations = {name for task in tasks.values() for name in task.scores}
    shared = [env for env, task in tasks.items() if task.scores.keys() == explorations]
    return {env: scale for env in shared if (scale := return_bounds(env)) is not None}


def improvements(tasks: dict[str, Comparison], subject: str) -> dict[str, Estimate]:
    """The probability of improvement of one exploration over each other, on the tasks that have both."""
    found = {}
    for other in dict.fromkeys(name for task in tasks.values() for name in task.scores if name != subject):
        if both := [task.scores for task in tasks.values() if {subject, other} <= task.scores.keys()]:
            found[other] = probability_of_improvement([pair[subject] for pair in both], [pair[other] for pair in both])
    return found


def write_summary(summaries: Iterable[Summary], path: Path) -> None:
    """Writes summary.csv; the interval of a single seed is left empty."""
    text = csv_text(Summary._fields, (_row(summary) for summary in summaries))
    write_atomically(path, lambda file: file.write(text.encode()))


def _row(summary: Summary) -> dict[str, Any]:
    row = summary._asdict()
    return row | {"low": "", "high": ""} if math.isnan(summary.low) else row


def _table(summaries: Iterable[Summary], together: dict[str, Estimate]) -> Table:
    names = ("task", "exploration", "steps", "median (quartiles)", f"IQM ({CONFIDENCE:.0%} interval)", "seeds")
    table = Table(*names, title="Noise-free return")
    for column in table.columns[2:]:
        column.justify = "right"
    for row in summaries:
        cut = f" of {row.last_step:,}" if row.step < row.last_step else ""
        table.add_row(
            env_label(row.env),
            row.exploration,
            f"{row.step:,}{cut}",
            estimate_text(Estimate(row.median, row.q25, row.q75)),
            estimate_text(Estimate(row.iqm, row.low, row.high)),
            str(row.seeds),
        )
    table.add_section()
    for exploration, estimate in together.items():
        table.add_row("all, normalised", exploration, "", "", estimate_text(estimate, ".2f"), "")
    return table


def _say_scale(tasks: dict[str, Comparison], shown: bool) -> None:
    """Says what 0 and 1 are in the number over tasks, if one is shown, and why a task is not in it."""
    for env, (low, high, source) in bounds_of(tasks).items() if shown else ():
        print(f"normalised: {env_label(env)} from {low:g} to {high:g} ({source})")
    for env in tasks:
        if return_bounds(env) is None:
            print(f"normalised: without {env_label(env)}, as no bounds of its return are registered")


def estimate_text(estimate: Estimate, digits: str = "") -> str:
    """A number with its interval, for people."""
    if math.isnan(estimate.low):
        return f"{format(estimate.value, digits or _digits(estimate.value))} (no interval)"
    value, low, high = (format(number, digits or _digits(number)) for number in estimate)
    return f"{value} ({low} to {high})"


def _digits(number: float) -> str:
    """Three digits or more, since returns are of the order of 1 on one task and of 1,000 on another."""
    return ".2f" if abs(number) < 10 else ".1f" if abs(number) < 100 else ".0f"
