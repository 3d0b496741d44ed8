"""What the cells of `scale.py` came to: results.csv, and the tables of docs/scale.md."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scale_cells import GAMES, LABELS, SIZES

from paramnoise.markdown import markdown_table
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text

IN_A_ROW = 10
"""Optimal evaluations after which a task is solved: a network may be optimal by chance before it has learned."""


class Outcome(NamedTuple):
    """A seed of a cell: a row of results.csv."""

    part: str
    task: str
    size: int | None
    algorithm: str
    explorer: str
    seed: int
    num_envs: int
    steps: int
    """Taken, over all environments of the seed."""
    seconds: float
    """That all seeds of the cell took together, without compiling."""
    solved_steps: int | None
    """Steps by the first of `IN_A_ROW` optimal evaluations in a row; None: there were none, or no such thing."""
    solved_seconds: float | None
    """Seconds of all seeds by then."""
    returns: str
    """Noise-free returns of all evaluations; of DeepSea and the chain the last one's."""

    @property
    def final_return(self) -> float:
        """Of the last evaluation."""
        return float(self.returns.rpartition(" ")[2])


def solved_at(returns: np.ndarray, best: float, in_a_row: int = IN_A_ROW) -> int | None:
    """The first evaluation of the first so many in a row that are optimal, by its place; None: there are none."""
    optimal = np.append(returns >= best - 1e-4, False)
    start = None
    for place, is_optimal in enumerate(optimal):
        start = (place if start is None else start) if is_optimal else None
        if start is not None and place - start + 1 == in_a_row:
            return start
    return None


def write_results(outcomes: Iterable[Outcome], path: Path) -> None:
    """Writes results.csv."""
    text = csv_text(Outcome._fields, (outcome._asdict() for outcome in outcomes))
    write_atomically(path, lambda file: file.write(text.encode()))


def read_results(path: Path) -> list[Outcome]:
    """Reads results.csv; no file is no results yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_outcome(row) for row in csv.DictReader(file)]


def _outcome(row: dict[str, str]) -> Outcome:
    optional = lambda kind, name: kind(row[name]) if row[name] else None  # noqa: E731
    return Outcome(
        row["part"],
        row["task"],
        optional(int, "size"),
        row["algorithm"],
        row["explorer"],
        int(row["seed"]),
        int(row["num_envs"]),
        int(row["steps"]),
        float(row["seconds"]),
        optional(int, "solved_steps"),
        optional(float, "solved_seconds"),
        row["returns"],
    )


def table(part: str, results: Sequence[Outcome]) -> str:
    """The table of a part of docs/scale.md."""
    own = [outcome for outcome in results if outcome.part == part]
    if not own:
        return "Not measured yet."
    return _sizes_table(part, own) if part in SIZES else _returns_table(own)


def _sizes_table(part: str, results: Sequence[Outcome]) -> str:
    """A row per explorer, a column per size: median steps and seconds until solved, and the seeds that have."""
    sizes = sorted(SIZES[part])
    rows = []
    for explorer, label in LABELS.items():
        found = [[o for o in results if (o.explorer, o.size) == (explorer, size)] for size in sizes]
        if any(found):
            rows.append([label, *(_until_solved(own) if own else "not measured yet" for own in found)])
    return markdown_table(["explorer", *(f"size {size}" for size in sizes)], rows)


def _until_solved(results: Sequence[Outcome]) -> str:
    median = median_of(results)
    count = f"{median.solved} of {median.seeds}"
    if median.steps == float("inf"):
        return f"{count} in {results[0].steps:,} steps, {results[0].seconds:.1f} s"
    return f"{count}; {median.steps:,.0f} steps, {median.seconds:.1f} s"


def _returns_table(results: Sequence[Outcome]) -> str:
    """A row per task, agent and explorer: noise-free returns at the end."""
    heads = ["task", "agent", "explorer", "environments", "steps", "mean over seeds", "by seed", "seconds of all seeds"]
    rows = []
    cells: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in results:
        cells.setdefault((outcome.task, outcome.algorithm, outcome.explorer), []).append(outcome)
    order = {task: place for place, task in enumerate(GAMES)}
    for (task, algorithm, explorer), own in sorted(cells.items(), key=lambda item: (order.get(item[0][0], 0), item[0])):
        last = [outcome.final_return for outcome in own]
        numbers = [f"{own[0].num_envs:,}", f"{own[0].steps:,}", f"{statistics.mean(last):.1f}"]
        seeds = " ".join(f"{value:.1f}" for value in last)
        rows.append([task, algorithm.upper(), explorer, *numbers, seeds, f"{own[0].seconds:.0f}"])
    return markdown_table(heads, rows)


class Median(NamedTuple):
    """The seeds of a cell of DeepSea or the chain in one number each."""

    solved: int
    seeds: int
    steps: float
    """Until solved; infinite if the median seed did not."""
    seconds: float


def median_of(outcomes: Sequence[Outcome]) -> Median:
    """The median over seeds; an unsolved seed counts as worse than any solved one."""
    infinite = float("inf")
    steps = [infinite if o.solved_steps is None else o.solved_steps for o in outcomes]
    seconds = [infinite if o.solved_seconds is None else o.solved_seconds for o in outcomes]
    solved = sum(o.solved_steps is not None for o in outcomes)
    return Median(solved, len(outcomes), statistics.median(steps), statistics.median(seconds))
