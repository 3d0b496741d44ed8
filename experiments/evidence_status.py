"""How far the queue of the evidence is, by what is on disk: finished runs, steps and hours left."""

import statistics
from pathlib import Path
from typing import NamedTuple

from evidence_queue import Asked, Item, find
from rich.table import Table

from paramnoise.figures.curve_summary import table_console
from paramnoise.parallel.engine import Engine
from paramnoise.runs.directory import RunDirectory


class Left(NamedTuple):
    """How far a figure is."""

    finished: int
    pieces: int
    """Runs, or cells of a chain figure."""
    steps: int
    """Environment steps that are not on disk; those of a chain at most, since a cell ends when it is solved."""
    rate: float | None
    """Environment steps per second of one worker: the median over the runs on disk; None if none has a row."""


def left(asked: Asked, item: Item) -> Left:
    """How far a figure is, from what is on disk."""
    sweep = find(item).sweep(asked.arguments(item), asked.out, Engine(workers=asked.workers))
    steps = sum(piece.steps - piece.steps_done() for piece in sweep.todo)
    return Left(len(sweep.pieces) - len(sweep.todo), len(sweep.pieces), steps, _rate(sweep.directory))


def _rate(figure: Path) -> float | None:
    rows = [rows[-1] for path in figure.glob("*/*/seed-*") if (rows := RunDirectory(path).rows())]
    return statistics.median(int(row["step"]) / float(row["wall_time"]) for row in rows) if rows else None


def show_status(asked: Asked) -> int:
    """`status`: prints what is done and what is left."""
    table = Table("figure", "finished", "steps left", "steps/s of a worker", f"hours left, {asked.workers} workers")
    for column in table.columns[1:]:
        column.justify = "right"
    total, unknown = 0.0, 0
    for item in asked.items:
        now = left(asked, item)
        hours = now.steps / now.rate / asked.workers / 3600 if now.rate else None
        total, unknown = total + (hours or 0), unknown + (hours is None)
        rate, time_left = "" if now.rate is None else f"{now.rate:,.0f}", "?" if hours is None else f"{hours:.1f}"
        table.add_row(item.figure, f"{now.finished} of {now.pieces}", f"{now.steps:,}", rate, time_left)
    table_console(100).print(table)
    not_begun = f", and those of {unknown} more without an evaluation yet" if unknown else ""
    print(f"{total:.1f} hours left{not_begun}")
    return 0
