"""A piece of a figure: what one worker trains, such as one run or several seeds side by side."""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from paramnoise.parallel.sweep import Line


class Piece(Protocol):
    """What a sweep runs. It is sent to a worker process, and finds all that it needs on disk."""

    @property
    def name(self) -> str:
        """The piece in lines for people."""

    @property
    def steps(self) -> int:
        """The environment steps that are asked for."""

    def steps_done(self) -> int:
        """The steps that are on disk."""

    def train(self, line: Line) -> bool:
        """Begins the piece or goes on with it; returns whether it came to the end."""

    def result(self) -> str:
        """What came out of it once it has finished, in words."""

    def stopped_after(self) -> int:
        """The steps after which it was stopped, and from which it will go on."""


class Progress(NamedTuple):
    """How far a piece is, as its worker reports it."""

    step: int
    value: float | None
    """The return of the last evaluation; None before the first."""
    steps_per_second: float


class Reporter:
    """Watches a run in a worker, or several seeds side by side, and reports their progress to the sweep."""

    signal = None

    def __init__(self, line: Line, seeds: int = 1):
        """Reports along a line to the sweep."""
        self._values: deque[float] = deque(maxlen=seeds)  # of the last evaluation, one of each seed
        self._first: tuple[int, float] | None = None
        self._report = line.report
        self.should_stop = line.should_stop

    def on_step(self, step: int) -> None:
        """Reports how far the run is."""
        if self._first is None:
            self._first = (step, time.monotonic())  # from here, so that compilation does not count
        self._report(lambda: self._progress(step))

    def on_row(self, row: dict[str, float]) -> None:
        """Keeps the return of an evaluation; a row may be without one."""
        if not math.isnan(row["eval_return_mean"]):
            self._values.append(row["eval_return_mean"])

    def _progress(self, step: int) -> Progress:
        first, started = self._first or (step, 0.0)
        value = statistics.median(self._values) if self._values else None
        return Progress(step, value, (step - first) / max(time.monotonic() - started, 1e-6))


class SilentLine:
    """A line to nobody, for a piece that is trained in this process."""

    def should_stop(self) -> bool:
        """Never."""
        return False

    def report(self, progress: Callable[[], Any]) -> None:
        """Does nothing."""
