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
        self._rates: dict[str, float] = {}  # the last of each piece that had one, also of those that ended
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
            if event.detail.steps_per_second > 0:
                self._rates[piece.name] = event.detail.steps_per_second
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
        left = sum(list(self._waiting.values()))
        left += sum(piece.steps - (progress.step if progress else 0) for piece, progress in running)
        # A piece's first report has no rate yet, and a cell of the chain may have no second one: such a piece counts
        # as the others do in the mean.
        rates = dict(self._rates)
        usual = sum(rates.values()) / len(rates) if rates else 0.0
        rate = sum(rates.get(piece.name, usual) for piece, _ in running)
        failed = f", {len(self.failures)} failed" if self.failures else ""
        counts = (
            f"{self.finished} of {self._total} finished{failed}, {len(running)} running, {len(self._waiting)} waiting"
        )
        speed = f"; {rate:,.0f} steps/s, {duration(left, rate)} left" if rate > 0 else ""
        return f"{self._title}: {counts}{speed}"

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
            pace = (f"{rate:,.0f}", duration(piece.steps - progress.step, rate)) if rate > 0 else ("", "")
            table.add_row(piece.name, "running", f"{progress.step:,}", f"{piece.steps:,}", value, *pace)
        return table


def duration(steps: int, steps_per_second: float) -> str:
    """The time that some steps take, for people."""
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
