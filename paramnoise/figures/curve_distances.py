"""distances.csv of a figure of learning curves: how far perturbed policies were from the clean one, and should be."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from paramnoise.figures.curve_runs import CurveRun
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError

DISTANCES = "distances.csv"
"""Beside results.csv; it has no rows where no run measures a distance."""


class Distance(NamedTuple):
    """The last distance that one run measured by one evaluation: a row of distances.csv."""

    env: str
    algorithm: str
    exploration: str
    seed: int
    step: int
    distance: float
    delta: float
    """Its threshold."""


def distances_of(each: CurveRun) -> list[Distance]:
    """The distances at a run's evaluations; none for an exploration that measures none."""
    rows = each.rows_every(each.config.eval_every)
    return [
        Distance(*point[:5], float(row["distance"]), float(row["delta"]))
        for point, (_, row) in zip(each.curve(), rows, strict=True)
        if row.get("distance", "") not in ("", "nan")
    ]


def write_distances(distances: Iterable[Distance], path: Path) -> None:
    """Writes distances.csv."""
    text = csv_text(Distance._fields, (distance._asdict() for distance in distances))
    write_atomically(path, lambda file: file.write(text.encode()))


def read_distances(path: Path) -> list[Distance]:
    """Reads distances.csv, or raises UsageError if it is not one; no file is no distances."""
    if not path.exists():
        return []
    try:
        with path.open(newline="") as file:
            return [
                Distance(
                    row["env"],
                    row["algorithm"],
                    row["exploration"],
                    int(row["seed"]),
                    int(row["step"]),
                    float(row["distance"]),
                    float(row["delta"]),
                )
                for row in csv.DictReader(file)
            ]
    except (KeyError, ValueError, TypeError):
        raise UsageError(f"{path} does not hold distances of runs") from None
