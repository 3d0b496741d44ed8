"""What a sweep shows: a live table of its pieces on a terminal, plain lines elsewhere."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from paramnoise.figures.pieces import Piece, Progress
from paramnoise.parallel.sweep import Event

LINE_SECONDS = 60.0
"""Where there is no terminal, the time between two lines on the whole sweep."""


class SweepDisplay:
    """Follows the events of a sweep."""

    def __init__(self, title: str, pieces: Sequence[Piece], todo: Sequence[Piece], console: Console):
        """Begins to follow `pieces`, of which `todo` are not finished yet."""
        self._title, self._total, self._console = title, len(pieces), console
        self._waiting = {piece.name: piece.steps - piece.steps_done() for piece in todo}
        self._running: dict[str, tuple[Piece, Progress | None]] = {}
        self.finished = len(pieces) - len(todo)
        self.failures: dict[str, str] = {}
        self._last_line = time.monotonic()

    def follow(self, event: Event) -> None:
        """Takes an event in, and prints a line if it is worth one."""
        piece: Piece = event.task
        if event.state == "started":
            del self._waiting[piece.name]
            self._running[piece.name] = (piece, None)
        elif event.state == "progress":
            self._running[piece.name] = (piece, event.detail)
            self._heartbeat()
        else:
            del self._running[piece.name]
            self._ended(piece, event)

    def _ended(self, piece: Piece, event: Event) -> None:
        if event.state == "finished":
            self.finished += 1
            outcome = piece.result()
        elif event.state == "failed":
            self.failures[piece.name] = outcome = f"failed: {event.detail}"
        else:
            outcome = f"stopped after {piece.stopped_after():,} steps"
        ended = self.finished + len(self.failures)
        self._console.print(
            f"[{ended}/{self._total}] {piece.name}: {outcome}", markup=False, highlight=False, soft_wrap=True
        )

    def _heartbeat(self) -> None:
        if not self._console.is_terminal and time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._console.print(self._headline(), markup=False, highlight=False, soft_wrap=True)

    def _headline(self) -> str:
        running = list(self._running.values())  # a copy, since the table is drawn by a thread of its own
        heard = [(piece, progress) for piece, progress in running if progress is not None]
        rate = sum(progress.steps_per_second for _, progress in heard)
        left = sum(list(self._waiting.values())) + sum(piece.steps for piece, progress in running if not progress)
        left += sum(piece.steps - progress.step for piece, progress in heard)
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return (
            f"{self._title}: {self.finished} of {self._total} finished{failed}, {len(running)} running, "
            f"{len(self._waiting)} waiting; {rate:,.0f} steps/s, {duration(left, rate)} left"
        )

    def table(self) -> Table:
        """The pieces that are running now, under the state of the whole."""
        table = Table(title=self._headline(), title_justify="left")
        table.add_column("run")
        for name in ("state", "step", "of", "return", "steps/s", "left"):
            table.add_column(name, justify="right")
        for piece, progress in list(self._running.values()):
            if progress is None:
                table.add_row(piece.name, "starting", "", f"{piece.steps:,}")
                continue
            value = "" if progress.value is None else f"{progress.value:.1f}"
            rate = progress.steps_per_second
            left = duration(piece.steps - progress.step, rate)
            table.add_row(piece.name, "running", f"{progress.step:,}", f"{piece.steps:,}", value, f"{rate:,.0f}", left)
        return table


def duration(steps: int, steps_per_second: float) -> str:
    """The time that some steps take, for people."""
    if steps_per_second <= 0:
        return "?"
    minutes, seconds = divmod(round(steps / steps_per_second), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


@contextlib.contextmanager
def sweep_display(title: str, pieces: Sequence[Piece], todo: Sequence[Piece]) -> Iterator[SweepDisplay]:
    """Shows a sweep while it runs."""
    console = Console()
    display = SweepDisplay(title, pieces, todo, console)
    if not console.is_terminal:
        yield display
        return
    with Live(get_renderable=display.table, console=console, refresh_per_second=2, transient=True):
        yield display
