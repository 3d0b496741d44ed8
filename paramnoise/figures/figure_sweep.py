"""Runs the pieces of a figure that are not on disk yet, shows them meanwhile, and says how that ended."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from paramnoise.figures.pieces import Piece
from paramnoise.figures.sweep_display import SweepDisplay, sweep_display
from paramnoise.parallel.engine import Engine
from paramnoise.parallel.process import INTERRUPTED, use_compilation_cache
from paramnoise.parallel.sweep import Line
from paramnoise.runs.display import StopFlag, stop_on_signals

LOG = "workers.log"
"""Below a figure's directory: what its worker processes print, such as warnings and tracebacks."""


class Finishable(Protocol):
    """A part of a figure that is on disk or not."""

    def is_finished(self) -> bool:
        """Whether what is on disk covers what was asked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """What was asked for of a figure."""

    headline: str
    """A line for people: how much was asked for, and how much of it is on disk."""
    directory: Path
    """The figure's own, OUT/FIGURE."""
    runs: Sequence[Finishable]
    """All that was asked for."""
    pieces: Sequence[Piece]
    """What is counted on the way."""
    todo: Sequence[Piece]
    """The pieces that are not on disk, in the order in which they start."""
    unit: str
    """What a piece is, in the plural."""
    write: Callable[[], bool]
    """Writes results.csv from what is on disk; returns whether there is anything to write."""

    def unfinished(self) -> str:
        """A line on the runs that are not finished; empty if all are."""
        count = sum(not run.is_finished() for run in self.runs)
        of = f"{count} of {len(self.runs)} runs are not finished"
        return f"{of}; the results hold what there is of them" if count else ""


def run_sweep(sweep: Sweep, engine: Engine) -> int:
    """Runs what is not on disk; returns the exit status. results.csv grows with every piece that ends."""
    print(sweep.headline, flush=True)
    if not sweep.todo:
        return 0
    log = sweep.directory / LOG
    run_all = engine.connect()
    with sweep_display(sweep.directory.name, sweep.pieces, sweep.todo) as display, stop_on_signals() as stop:
        for event in run_all(_train, sweep.todo, should_stop=lambda: bool(stop), log=log):
            display.follow(event)
            if event.state in ("finished", "failed", "stopped"):
                sweep.write()
    return _end(display, stop, f"{len(sweep.pieces)} {sweep.unit}", log)


def _end(display: SweepDisplay, stop: StopFlag, total: str, log: Path) -> int:
    """Says how a sweep ended; returns the exit status."""
    for name, reason in display.failures.items():
        print(f"{name} {reason}")
    if stop:
        print(f"interrupted: {display.finished} of {total} are finished; the same command goes on from here")
        return INTERRUPTED + (stop.signal or 0)
    if display.failures:
        print(f"{len(display.failures)} of {total} failed; the same command tries them again ({log})")
    return 1 if display.failures else 0


def _train(piece: Piece, line: Line) -> bool:
    """What a worker does."""
    use_compilation_cache()
    return piece.train(line)
