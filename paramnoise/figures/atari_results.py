"""results.csv and scores.csv of the Atari figure: steps, and the frames that they are."""

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from paramnoise.envs.atari_frames import frames_of
from paramnoise.figures.curve_results import Point
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError

CURVE_COLUMNS = ("env", "algorithm", "exploration", "seed", "step", "frames", "return")
SCORE_COLUMNS = ("env", "exploration", "seed", "step", "frames", "episodes", "mean", "median")


class Score(NamedTuple):
    """A noise-free evaluation of one run: a row of scores.csv."""

    env: str
    exploration: str
    """The method."""
    seed: int
    step: int
    episodes: int
    """Games of the evaluation."""
    mean: float
    median: float


def write_curves(points: Iterable[Point], path: Path) -> None:
    """Writes results.csv; `curve_results.read_results` reads it."""
    rows = ((*point[:-1], frames_of(point.step), point.value) for point in points)
    _write(CURVE_COLUMNS, (dict(zip(CURVE_COLUMNS, row, strict=True)) for row in rows), path)


def write_scores(scores: Iterable[Score], path: Path) -> None:
    """Writes scores.csv."""
    _write(SCORE_COLUMNS, ({**score._asdict(), "frames": frames_of(score.step)} for score in scores), path)


def _write(columns: tuple[str, ...], rows: Iterable[dict[str, object]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = csv_text(columns, rows)
    write_atomically(path, lambda file: file.write(text.encode()))


def read_scores(path: Path) -> list[Score]:
    """Reads scores.csv, or raises UsageError if it is not one; no file is no scores."""
    if not path.exists():
        return []
    try:
        with path.open(newline="") as file:
            return [
                Score(
                    row["env"],
                    row["exploration"],
                    int(row["seed"]),
                    int(row["step"]),
                    int(row["episodes"]),
                    float(row["mean"]),
                    float(row["median"]),
                )
                for row in csv.DictReader(file)
            ]
    except (KeyError, ValueError, TypeError):
        raise UsageError(f"{path} does not hold scores of the Atari figure") from None


def carried(points: Iterable[Point]) -> list[Point]:
    """The points with a run's last return where no game ended.

    The lines of a figure begin where all their seeds have a return; a run without any is left out.
    """
    last: dict[tuple[str, str, int], float] = {}
    begins: dict[tuple[str, str], int] = {}
    filled = []
    for point in points:
        run = (point.env, point.exploration, point.seed)
        if not math.isnan(point.value):
            if run not in last:
                begins[run[:2]] = max(point.step, begins.get(run[:2], 0))
            last[run] = point.value
        if run in last:
            filled.append(point._replace(value=last[run]))
    return [point for point in filled if point.step >= begins[point.env, point.exploration]]
