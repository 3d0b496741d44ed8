"""results.csv of the chain figure, and its numbers: the median over seeds of each length and method."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from paramnoise.figures.base import Method
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError


class Outcome(NamedTuple):
    """A row of results.csv."""

    length: int
    algorithm: str
    exploration: str
    seed: int
    episodes: int
    """Episodes until solved; the budget if it was not."""
    solved: bool


def write_results(outcomes: Iterable[Outcome], path: Path) -> None:
    """Writes results.csv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = [outcome._asdict() for outcome in outcomes]
    text = csv_text(Outcome._fields, rows)
    write_atomically(path, lambda file: file.write(text.encode()))


def read_results(path: Path) -> list[Outcome]:
    """Reads results.csv, or raises UsageError if it holds no results of the chain."""
    try:
        outcomes = _parse_results(path)
    except (KeyError, ValueError, TypeError):
        raise UsageError(f"{path} does not hold results of the chain") from None
    if not outcomes:
        raise UsageError(f"{path} holds no results yet")
    return outcomes


def _parse_results(path: Path) -> list[Outcome]:
    with path.open(newline="") as file:
        return [
            Outcome(
                int(row["length"]),
                row["algorithm"],
                row["exploration"],
                int(row["seed"]),
                int(row["episodes"]),
                row["solved"] == "True",
            )
            for row in csv.DictReader(file)
        ]


class Median(NamedTuple):
    """The seeds of one cell in one number."""

    length: int
    exploration: str
    episodes: float
    solved: bool
    """Whether the median seed solved it."""
    solved_seeds: int
    seeds: int


def medians(outcomes: Iterable[Outcome]) -> list[Median]:
    """The median number of episodes of each cell; an unsolved seed counts as worse than any solved one."""
    groups: dict[tuple[int, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.length, outcome.exploration), []).append(outcome)
    return [
        Median(
            length,
            exploration,
            float(np.median([outcome.episodes for outcome in group])),
            2 * sum(outcome.solved for outcome in group) > len(group),
            sum(outcome.solved for outcome in group),
            len(group),
        )
        for (length, exploration), group in groups.items()
    ]


def print_medians(outcomes: Iterable[Outcome], methods: Sequence[Method]) -> None:
    """Prints the medians as a table, method by method."""
    labels = {method.name: method.label for method in methods}
    table = Table("method", "N", "episodes", "solved", title="Episodes until solved (median over seeds)")
    for column in table.columns[1:]:
        column.justify = "right"
    order = list(labels)
    for median in sorted(medians(outcomes), key=lambda m: (order.index(m.exploration), m.length)):
        solved = f"{'yes' if median.solved else 'no'} ({median.solved_seeds} of {median.seeds})"
        episodes = f"{median.episodes:g}" if median.solved else f"over {median.episodes:g}"
        table.add_row(labels[median.exploration], str(median.length), episodes, solved)
    Console().print(table)
