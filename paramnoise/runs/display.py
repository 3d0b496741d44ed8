"""Progress of long work: a live bar on a terminal, plain lines elsewhere."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bar(Protocol):
    """What long work tells its display."""

    def advance_to(self, done: int) -> None:
        """So much is done."""

    def line(self, text: str) -> None:
        """A lasting line."""


class _LiveBar:
    def __init__(self, progress: Progress, total: int, label: str):
        self._progress = progress
        self._task = progress.add_task(label, total=total)

    def advance_to(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def line(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)


class _PlainLines:
    def advance_to(self, done: int) -> None:
        pass

    def line(self, text: str) -> None:
        print(text, flush=True)


@contextlib.contextmanager
def bar(total: int, label: str, unit: str, show: bool = True) -> Iterator[Bar]:
    """Shows progress toward `total`: a live bar on a terminal or in a notebook, elsewhere lines alone."""
    console = Console()
    if not (show and (console.is_terminal or console.is_jupyter)):
        yield _PlainLines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as progress:
        yield _LiveBar(progress, total, label)


def describe(row: dict[str, float]) -> str:
    """A row of progress as a line for people."""
    parts = [
        f"step {int(row['step']):>9,}",
        f"episodes {int(row['episodes']):>6,}",
        f"eval {row['eval_return_mean']:>8.1f}",
        f"train {row['train_return_mean']:>8.1f}",
    ]
    if "sigma" in row:
        parts.append(f"sigma {row['sigma']:.4f}")
    if "epsilon" in row:
        parts.append(f"epsilon {row['epsilon']:.2f}")
    parts.append(f"{row['steps_per_second']:,.0f} steps/s")
    return "  ".join(parts)


class StopFlag:
    """Whether someone asked the work to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopFlag]:
    """Turns the first Ctrl-C or SIGTERM into a flag, so that work can end at a clean place; the second one kills."""
    flag = StopFlag()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def raise_flag(number: int, frame: FrameType | None) -> None:
        flag.signal = number
        for each in signals:
            signal.signal(each, before[each])

    for number in signals:
        signal.signal(number, raise_flag)
    try:
        yield flag
    finally:
        for number in signals:
            signal.signal(number, before[number])
