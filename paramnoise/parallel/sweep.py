"""Runs independent pieces of work in worker processes, each on its share of the cores, and stops them cleanly.

A worker that dies, whatever the cause, costs its own piece only: another takes its place.
"""

import multiprocessing.connection
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from paramnoise.parallel.process import compute_on_cpu, one_line, use_one_thread
from paramnoise.parallel.worker import Worker, WorkerDied
from paramnoise.validation import RunError, UsageError

Task = TypeVar("Task")
Work = Callable[[Task, "Line"], bool]
POLL_SECONDS = 0.5
MEMORY_SHARE = 0.9
"""Of an accelerator's memory, for all processes that share it."""


class Event(NamedTuple):
    """What happened to a task."""

    task: Any
    state: Literal["started", "progress", "finished", "failed", "stopped"]
    detail: Any = None
    """What the work reported, or the one line that says why it failed."""


class Line(Protocol):
    """How a piece of work talks to the process that started it."""

    def should_stop(self) -> bool:
        """Whether the work should end at the next clean place."""

    def report(self, progress: Callable[[], Any]) -> None:
        """Reports the work's progress, unless it was reported a moment ago."""


def run_all(
    work: Work,
    tasks: Sequence[Task],
    workers: int,
    should_stop: Callable[[], bool],
    log: Path,
    *,
    whole_machine: bool = False,
) -> Iterator[Event]:
    """Runs `work(task, line)` for every task, and yields what happens to each.

    Args:
        work: a function at the top of a module; it asks `line.should_stop` now and then, and returns whether it
            finished.
        tasks: what to run, in this order.
        workers: how many processes; each keeps to its share of the cores, and to one thread of XLA's, so that they do
            not fight for threads. Where there are fewer of them than cores a share is of several, since another sweep
            on this machine may have the same ones.
        should_stop: once it returns True, no task is started, and running ones are asked to stop.
        log: a file that takes what the workers print, and the tracebacks of errors that nobody foresaw.
        whole_machine: whether each process has all cores instead, and its share of the accelerator if there is one.
    """
    waiting = list(reversed(tasks))
    log.parent.mkdir(parents=True, exist_ok=True)
    workers = min(workers, len(tasks))
    accelerator = 1 / workers if whole_machine and workers else None
    pool = [
        _Place(work, None if whole_machine else (number, workers), log.absolute(), accelerator)
        for number in range(workers)
    ]
    asked = False
    try:
        while True:
            stopping = should_stop()
            if stopping and not asked:
                asked = True
                for place in pool:
                    place.ask_to_stop()
            while not should_stop() and waiting and (idle := next((p for p in pool if not p.is_busy), None)):
                task = waiting.pop()
                idle.give(task)
                yield Event(task, "started")
            busy = [place for place in pool if place.is_busy]
            if not busy:
                return
            ready = multiprocessing.connection.wait([place.connection for place in busy], POLL_SECONDS)
            for place in busy:
                if place.connection in ready:
                    yield place.next_event(should_stop())
    finally:
        for place in pool:
            place.end()


class _Place:
    """A place for one worker process at a time; a new process follows one that died."""

    def __init__(self, *arguments: Any):
        self._arguments = arguments  # of `_serve`
        self._worker = Worker(_serve, *arguments)
        self._task: Any = None
        self.is_busy = False

    @property
    def connection(self) -> Any:
        return self._worker.connection

    def give(self, task: Any) -> None:
        """Hands the process its next task."""
        if not self._worker.is_alive():
            self._worker.end(by_force=False)
            self._worker = Worker(_serve, *self._arguments)
        self._worker.send(pickle.dumps(task))  # if it died just now, `next_event` says so
        self._task, self.is_busy = task, True

    def next_event(self, stopping: bool) -> Event:
        """What the process has to say; it must have something to say, or have died."""
        state: Any
        try:
            state, detail = self._worker.receive()
        except WorkerDied as death:
            again = f"its process {death}; the same command goes on with it"
            state, detail = ("stopped", None) if stopping else ("failed", again)
        if state == "stopped" and not stopping:
            state, detail = "failed", "its process was asked to stop; the same command goes on with it"
            self._worker.end(by_force=False)
        self.is_busy = state == "progress"
        return Event(self._task, state, detail)

    def ask_to_stop(self) -> None:
        """Asks the process to end its task at a clean place."""
        self._worker.ask_to_stop()

    def end(self) -> None:
        """Ends the process, by force if it is still at work."""
        self._worker.end(by_force=self.is_busy)


class _Pipe:
    """A worker process's line."""

    def __init__(self, connection: Connection):
        """Takes the worker's end of the pipe; SIGTERM asks the work to stop from now on."""
        self._connection = connection
        self._asked = False
        self._reported_at = 0.0
        signal.signal(signal.SIGTERM, self._ask)

    def should_stop(self) -> bool:
        return self._asked

    def report(self, progress: Callable[[], Any]) -> None:
        now = time.monotonic()
        if now - self._reported_at >= POLL_SECONDS:
            self._reported_at = now
            self._connection.send(("progress", progress()))

    def _ask(self, number: int, frame: Any) -> None:
        self._asked = True


def _serve(
    connection: Connection, work: Work, place: tuple[int, int] | None, log: Path, accelerator: float | None
) -> None:
    """What a process does: one task after the other, until the pipe is closed; on its share of the cores, if any."""
    line = _Pipe(connection)
    if place is not None:
        use_one_thread()
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, share_of(sorted(os.sched_getaffinity(0)), *place))
    prepare(log, accelerator)
    while not line.should_stop():
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(attempt(work, task, line))


def share_of(cores: Sequence[int], number: int, workers: int) -> Sequence[int]:
    """The cores of one of so many workers: every core is somebody's, and nobody is without one."""
    return cores[number::workers] or [cores[number % len(cores)]]


def prepare(log: Path, accelerator: float | None = None) -> None:
    """Makes this process a worker, whose output goes to the log.

    Args:
        log: the file.
        accelerator: the share of the accelerator's memory that this process may take; None: it computes on the CPU.
    """
    if accelerator is None:
        compute_on_cpu()
    elif accelerator < 1:
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{MEMORY_SHARE * accelerator:.3f}")
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def attempt(work: Work, task: Any, line: Line) -> tuple[str, str | None]:
    """Does a task; returns how it ended, and the one line that says why it failed."""
    try:
        return ("finished" if not line.should_stop() and work(task, line) else "stopped"), None
    except Exception as error:
        if not isinstance(error, UsageError | RunError):
            traceback.print_exc()
        return "failed", one_line(error)
