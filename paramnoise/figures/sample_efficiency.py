"""How many environment steps an agent takes to reach a return, and how many times the steps of another (sec. 4.3).

A seed has reached a return with the first of three evaluations in a row at or above it: one alone may be luck, and is
only said to have touched it. A seed that never reaches it is slower than any that does.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from paramnoise.envs.base import env_label
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_summary import table_console
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text

SUBJECT = "es"
"""The agent whose steps are held against those of the others."""
IN_A_ROW = 3
"""Evaluations at or above a return that count as having reached it."""
THRESHOLDS = "thresholds.csv"


class Reach(NamedTuple):
    """One seed and one return to be reached: a row of thresholds.csv."""

    env: str
    threshold: float
    algorithm: str
    exploration: str
    seed: int
    steps: int | None
    """Of the first of three evaluations in a row at or above the threshold; None if there were none."""
    within: int
    """The last step that was evaluated."""
    touched: int | None
    """Of the first evaluation at or above the threshold, whatever followed."""


class Efficiency(NamedTuple):
    """The seeds of one agent and one return to be reached: a row of summary.csv."""

    env: str
    threshold: float
    algorithm: str
    exploration: str
    seeds: int
    reached: int
    """Seeds that reached it."""
    touched: int
    """Seeds with any evaluation at or above it."""
    steps: float
    """The median over seeds; infinite unless more than half of them reached it."""
    within: int
    """The steps of the shortest run that did not reach it, or of all runs where each did."""
    ratio: float
    """The median steps of ES over these; NaN where neither is known."""
    is_bound: bool
    """Whether the ratio is a bound, below for an ES that did not get there and above for another that did not."""
    common_step: int
    """The last step that every run of the task has been evaluated by."""
    common_return: float
    """The median return at that step, where the last evaluation counts until the next."""


def reaches(points: Iterable[Point], thresholds: Mapping[str, tuple[float, ...]]) -> list[Reach]:
    """When each seed first reached each return of its task, by task, return and method in the order they come in."""
    runs = _runs(points)
    return [
        _reach(run, threshold, curve)
        for env in dict.fromkeys(env for env, *_ in runs)
        for threshold in thresholds.get(env, ())
        for run, curve in runs.items()
        if run[0] == env
    ]


def summarise(points: Iterable[Point], thresholds: Mapping[str, tuple[float, ...]]) -> list[Efficiency]:
    """The seeds of each agent together, and ES against each."""
    points = list(points)
    groups: dict[tuple[str, float, str, str], list[Reach]] = {}
    for reach in reaches(points, thresholds):
        groups.setdefault(reach[:4], []).append(reach)
    subjects = {key[:2]: group for key, group in groups.items() if key[2] == SUBJECT}
    return [
        Efficiency(
            *key,
            len(group),
            sum(reach.steps is not None for reach in group),
            sum(reach.touched is not None for reach in group),
            _median(group),
            min([reach.within for reach in group if reach.steps is None] or [reach.within for reach in group]),
            *_ratio(subjects.get(key[:2], []), group),
            *_at_common_step(points, *key),
        )
        for key, group in groups.items()
    ]


def carried_forward(curve: Iterable[tuple[int, float]], steps: Iterable[int]) -> list[float]:
    """A curve at other steps: the last evaluation counts until the next, since agents are evaluated at different steps.

    There is none before the first evaluation: the value is NaN there.
    """
    known = sorted(curve)
    places = np.searchsorted([step for step, _ in known], list(steps), side="right") - 1
    return [known[place][1] if place >= 0 else math.nan for place in places]


def aligned(points: Iterable[Point]) -> list[Point]:
    """Each run at every step at which a run of the same agent and task was evaluated, from its first to its last."""
    runs = _runs(points)
    shared: dict[tuple[str, str, str], set[int]] = {}
    for run, curve in runs.items():
        shared.setdefault(run[:3], set()).update(step for step, _ in curve)
    found = []
    for run, curve in runs.items():
        first, last = curve[0][0], curve[-1][0]
        steps = sorted(step for step in shared[run[:3]] if first <= step <= last)
        values = carried_forward(curve, steps)
        found += [Point(*run, step, value) for step, value in zip(steps, values, strict=True)]
    return found


def report(points: list[Point], thresholds: Mapping[str, tuple[float, ...]], path: Path) -> None:
    """Prints what came out; writes thresholds.csv, a row per seed, and summary.csv, at `path`."""
    rows = summarise(points, thresholds)
    table_console().print(_table(rows))
    for env in dict.fromkeys(point.env for point in points if point.env not in thresholds):
        print(f"{env}: no return to be reached is known for it")
    by_seed = (_blank(reach._asdict()) for reach in reaches(points, thresholds))
    _write(path.with_name(THRESHOLDS), Reach._fields, by_seed)
    _write(path, Efficiency._fields, (_blank(row._asdict()) for row in rows))
    print(path.with_name(THRESHOLDS))
    print(path)


def _runs(points: Iterable[Point]) -> dict[tuple[str, str, str, int], list[tuple[int, float]]]:
    """The curve of each run, in the order of steps."""
    runs: dict[tuple[str, str, str, int], list[tuple[int, float]]] = {}
    for point in points:
        run = (point.env, point.algorithm, point.exploration, point.seed)
        runs.setdefault(run, []).append((point.step, point.value))
    return {run: sorted(curve) for run, curve in runs.items()}


def _reach(run: tuple[str, str, str, int], threshold: float, curve: list[tuple[int, float]]) -> Reach:
    env, algorithm, exploration, seed = run
    above = [value >= threshold for _, value in curve]
    rows = (i for i in range(len(curve) - IN_A_ROW + 1) if all(above[i : i + IN_A_ROW]))
    steps = next((curve[i][0] for i in rows), None)
    touched = next((step for step, value in curve if value >= threshold), None)
    return Reach(env, threshold, algorithm, exploration, seed, steps, curve[-1][0], touched)


def _median(group: list[Reach]) -> float:
    """The median steps, in which a seed that did not get there is slower than all that did; infinite if it is one."""
    return float(np.median([math.inf if reach.steps is None else reach.steps for reach in group]))


def _least_median(group: list[Reach]) -> float:
    """The median if it is known, else what it is more than: seeds that did not get there need more than they had."""
    known = _median(group)
    least = np.median([reach.within if reach.steps is None else reach.steps for reach in group])
    return known if math.isfinite(known) else float(least)


def _ratio(subject: list[Reach], other: list[Reach]) -> tuple[float, bool]:
    """ES's steps over another's, and whether that is a bound; NaN if neither got there, or ES was not run."""
    known = [bool(group) and math.isfinite(_median(group)) for group in (subject, other)]
    if not subject or not any(known):
        return math.nan, False
    return _least_median(subject) / _least_median(other), not all(known)


def _at_common_step(
    points: list[Point], env: str, threshold: float, algorithm: str, exploration: str
) -> tuple[int, float]:
    runs = {run: curve for run, curve in _runs(points).items() if run[0] == env}
    step = min(curve[-1][0] for curve in runs.values())
    own = [carried_forward(curve, [step])[0] for run, curve in runs.items() if run[1:3] == (algorithm, exploration)]
    return step, float(np.median(own))


def _write(path: Path, columns: tuple[str, ...], rows: Iterable[dict[str, Any]]) -> None:
    text = csv_text(columns, rows)
    write_atomically(path, lambda file: file.write(text.encode()))


def _blank(row: dict[str, Any]) -> dict[str, Any]:
    """A row in which what is not known is left empty."""
    return {
        name: "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else value
        for name, value in row.items()
    }


def _table(rows: Iterable[Efficiency]) -> Table:
    names = (
        "task",
        "return",
        "agent",
        "steps (median)",
        "seeds there",
        "touched",
        "ES / it",
        "return at",
        "equal steps",
    )
    table = Table(*names, title="Environment steps until a return is reached")
    for column in (*table.columns[1:2], *table.columns[3:]):
        column.justify = "right"
    for row in rows:
        table.add_row(
            env_label(row.env),
            f"{row.threshold:g}",
            row.algorithm,
            f"> {row.within:,}" if math.isinf(row.steps) else f"{row.steps:,.0f}",
            f"{row.reached} of {row.seeds}",
            str(row.touched),
            ratio_text(row),
            "" if math.isnan(row.common_return) else f"{row.common_return:.4g}",
            f"{row.common_step:,}",
        )
    return table


def ratio_text(row: Efficiency) -> str:
    """ES's steps over those of an agent, with the side on which it is a bound; empty where it is not known."""
    if row.algorithm == SUBJECT or math.isnan(row.ratio):
        return ""
    side = ("under " if math.isinf(row.steps) else "over ") if row.is_bound else ""
    return f"{side}{row.ratio:.1f}"
