"""The numbers of a page: what a figure's results come to, as tables of text."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from paramnoise.envs.base import env_label
from paramnoise.figures import atari_scores, sample_efficiency
from paramnoise.figures.atari_results import Score
from paramnoise.figures.base import Method
from paramnoise.figures.chain_results import Median, Outcome, medians
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_summary import bounds_of, compare, estimate_text, improvements, over_tasks, summarise
from paramnoise.figures.statistics import CONFIDENCE, Estimate

INTERVAL = f"IQM ({CONFIDENCE:.0%} interval)"


class Table(NamedTuple):
    """A table of a page."""

    caption: str
    header: Sequence[str]
    rows: list[list[str]]
    words: int = 1
    """How many of its columns are words; the others are numbers."""
    note: str = ""
    """What stands below it."""


def curve_tables(points: list[Point], subjects: Sequence[str], labels: Mapping[str, str]) -> list[Table]:
    """What learning curves come to at the last step that all runs of a task have, and who improves on whom."""
    tasks = compare(points)
    rows = [
        [
            env_label(row.env),
            labels[row.exploration],
            f"{row.step:,}" + (f" of {row.last_step:,}" if row.step < row.last_step else ""),
            estimate_text(Estimate(row.median, row.q25, row.q75)),
            estimate_text(Estimate(row.iqm, row.low, row.high)),
            str(row.seeds),
        ]
        for row in summarise(tasks)
    ]
    together = over_tasks(tasks)
    rows += [
        ["all, normalised", labels[name], "", "", estimate_text(number, ".2f"), ""] for name, number in together.items()
    ]
    header = ("task", "method", "steps", "median (quartiles)", INTERVAL, "seeds")
    bounds = (f"{env_label(env)} {each.low:g} to {each.high:g}" for env, each in bounds_of(tasks).items())
    note = f"Normalised between the bounds of each task: {'; '.join(bounds)}." if together else ""
    found = [Table("Noise-free return at the last step that all runs of a task have", header, rows, 2, note)]
    better = [
        [labels[subject], labels[other], estimate_text(number, ".2f")]
        for subject in subjects
        if subject in labels
        for other, number in improvements(tasks, subject).items()
    ]
    if better:
        caption = "How often a run of the first scores above one of the second, over all tasks"
        found.append(Table(caption, ("method", "over", f"probability ({CONFIDENCE:.0%} interval)"), better, 2))
    return found


def efficiency_table(points: list[Point], thresholds: Mapping[str, tuple[float, ...]]) -> Table:
    """Steps until a return is reached; the algorithms are what is compared."""
    rows = [
        [
            env_label(row.env),
            row.algorithm,
            f"{row.threshold:g}",
            f"> {row.within:,}" if math.isinf(row.steps) else f"{row.steps:,.0f}",
            f"{row.reached} of {row.seeds}",
            sample_efficiency.ratio_text(row),
        ]
        for row in sample_efficiency.summarise(points, thresholds)
    ]
    header = ("task", "agent", "return", "steps (median)", "seeds there", "ES / it")
    return Table("Environment steps until a return is reached", header, rows, 2)


def chain_table(outcomes: Iterable[Outcome], labels: Mapping[str, str]) -> Table:
    """The median number of episodes by length of the chain, a column for each method."""
    cells = {(each.length, each.exploration): each for each in medians(outcomes)}
    rows = [
        [str(length), *(_episodes(cells.get((length, name))) for name in labels)]
        for length in sorted({length for length, _ in cells})
    ]
    caption = "Median episodes until solved, and seeds that solved it"
    return Table(caption, ("states", *labels.values()), rows)


def _episodes(cell: Median | None) -> str:
    if cell is None:
        return ""
    return f"{'' if cell.solved else 'over '}{cell.episodes:,g} ({cell.solved_seeds} of {cell.seeds})"


def score_table(scores: Iterable[Score], methods: Sequence[Method]) -> Table:
    """Noise-free scores on Atari games, with the paper's beside them."""
    rows = [atari_scores.cells_of(row) for row in atari_scores.rows(scores, methods)]
    caption = "Noise-free scores: median over seeds of an evaluation's median game"
    return Table(
        caption, atari_scores.columns_of(methods), rows, note=f"{atari_scores.NOTE[0].upper()}{atari_scores.NOTE[1:]}."
    )


def csv_table(path: Path) -> Table:
    """Any other file of results, as it is."""
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    return Table(path.name, header, rows, sum(_is_word(cell) for cell in rows[0]) if rows else 1)


def _is_word(cell: str) -> bool:
    try:
        float(cell or "0")
    except ValueError:
        return True
    return False
