"""What a sweep shows: a live table of its runs on a terminal, plain lines elsewhere."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from paramnoise.figures.learning_curves import Progress
from paramnoise.parallel.sweep import Event
from paramnoise.runs.config import RunConfig

LINE_SECONDS = 60.0
"""Where there is no terminal, the time between two lines on the whole sweep."""


class Shown(Protocol):
    """A piece of a sweep: a run, or several that run together."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def config(self) -> RunConfig:
        """What is run."""

    def steps_done(self) -> int:
        """The steps of it on disk."""

    def summary(self) -> dict[str, Any] | None:
        """What came out, if it ended."""


class SweepDisplay:
    """Follows the events of a sweep."""

    def __init__(self, title: str, runs: Sequence[Shown], todo: Sequence[Shown], console: Console):
        """Begins to follow `runs`, of which `todo` are not finished yet."""
        self._title, self._total, self._console = title, len(runs), console
        self._waiting = {run.name: run.config.steps - run.steps_done() for run in todo}
        self._running: dict[str, tuple[Shown, Progress | None]] = {}
        self.finished = len(runs) - len(todo)
        self.failures: dict[str, str] = {}
        self._last_line = time.monotonic()

    def follow(self, event: Event) -> None:
        """Takes an event in, and prints a line if it is worth one."""
        run: Shown = event.task
        if event.state == "started":
            del self._waiting[run.name]
            self._running[run.name] = (run, None)
        elif event.state == "progress":
            self._running[run.name] = (run, event.detail)
            self._heartbeat()
        else:
            del self._running[run.name]
            self._ended(run, event)

    def _ended(self, run: Shown, event: Event) -> None:
        if event.state == "finished":
            self.finished += 1
            summary = run.summary() or {}
            outcome = f"return {summary['final_eval_return_mean']:.1f} after {summary['steps']:,} steps"
        elif event.state == "failed":
            self.failures[run.name] = outcome = f"failed: {event.detail}"
        else:
            outcome = f"stopped after {(run.summary() or {}).get('steps', 0):,} steps"
        ended = self.finished + len(self.failures)
        self._console.print(
            f"[{ended}/{self._total}] {run.name}: {outcome}", markup=False, highlight=False, soft_wrap=True
        )

    def _heartbeat(self) -> None:
        if not self._console.is_terminal and time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._console.print(self._headline(), markup=False, highlight=False, soft_wrap=True)

    def _headline(self) -> str:
        running = list(self._running.values())  # a copy, since the table is drawn by a thread of its own
        heard = [(run, progress) for run, progress in running if progress is not None]
        rate = sum(progress.steps_per_second for _, progress in heard)
        left = sum(list(self._waiting.values())) + sum(run.config.steps for run, progress in running if not progress)
        left += sum(run.config.steps - progress.step for run, progress in heard)
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return (
            f"{self._title}: {self.finished} of {self._total} finished{failed}, {len(running)} running, "
            f"{len(self._waiting)} waiting; {rate:,.0f} steps/s, {duration(left, rate)} left"
        )

    def table(self) -> Table:
        """The runs that are running now, under the state of the whole."""
        table = Table(title=self._headline(), title_justify="left")
        table.add_column("run")
        for name in ("state", "step", "of", "return", "steps/s", "left"):
            table.add_column(name, justify="right")
        for run, progress in list(self._running.values()):
            steps = run.config.steps
            if progress is None:
                table.add_row(run.name, "starting", "", f"{steps:,}")
                continue
            value = "" if progress.value is None else f"{progress.value:.1f}"
            rate = progress.steps_per_second
            left = duration(steps - progress.step, rate)
            table.add_row(run.name, "running", f"{progress.step:,}", f"{steps:,}", value, f"{rate:,.0f}", left)
        return table


def duration(steps: int, steps_per_second: float) -> str:
    """The time that some steps take, for people."""
    if steps_per_second <= 0:
        return "?"
    minutes, seconds = divmod(round(steps / steps_per_second), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


@contextlib.contextmanager
def sweep_display(title: str, runs: Sequence[Shown], todo: Sequence[Shown]) -> Iterator[SweepDisplay]:
    """Shows a sweep while it runs."""
    console = Console()
    display = SweepDisplay(title, runs, todo, console)
    if not console.is_terminal:
        yield display
        return
    with Live(get_renderable=display.table, console=console, refresh_per_second=2, transient=True):
        yield display
