"""results.csv of a figure of learning curves, and its numbers: medians and quartiles over seeds."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError

COLUMNS = ("env", "algorithm", "exploration", "seed", "step", "return")


class Point(NamedTuple):
    """One evaluation of one run: a row of results.csv."""

    env: str
    algorithm: str
    exploration: str
    seed: int
    step: int
    value: float
    """The mean return of the noise-free episodes; the file calls it return."""


class Band(NamedTuple):
    """The seeds of one line of a figure at one step."""

    step: int
    low: float
    """The first quartile."""
    median: float
    high: float
    """The third quartile."""
    seeds: int
    """Seeds that got so far."""


def write_results(points: Iterable[Point], path: Path) -> None:
    """Writes results.csv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = csv_text(COLUMNS, (dict(zip(COLUMNS, point, strict=True)) for point in points))
    write_atomically(path, lambda file: file.write(text.encode()))


def read_results(path: Path) -> list[Point]:
    """Reads results.csv, or raises UsageError if it holds no learning curves."""
    try:
        with path.open(newline="") as file:
            points = [
                Point(
                    row["env"],
                    row["algorithm"],
                    row["exploration"],
                    int(row["seed"]),
                    int(row["step"]),
                    float(row["return"]),
                )
                for row in csv.DictReader(file)
            ]
    except (KeyError, ValueError, TypeError):
        raise UsageError(f"{path} does not hold learning curves") from None
    if not points:
        raise UsageError(f"{path} holds no results yet")
    return points


def bands(points: Iterable[Point]) -> dict[tuple[str, str], list[Band]]:
    """Median and quartiles over seeds at each step, by task and exploration in the order in which they come."""
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    for point in points:
        values.setdefault((point.env, point.exploration), {}).setdefault(point.step, []).append(point.value)
    return {line: [_band(step, steps[step]) for step in sorted(steps)] for line, steps in values.items()}


def _band(step: int, values: list[float]) -> Band:
    low, median, high = np.percentile(values, [25, 50, 75]).tolist()
    return Band(step, low, median, high, len(values))
