"""Runs independent pieces of work in worker processes, one core each, and stops them cleanly.

A worker that dies, whatever the cause, costs its own piece only: another takes its place.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import jax

from paramnoise.runs.display import StopFlag
from paramnoise.validation import RunError, UsageError

Task = TypeVar("Task")
Work = Callable[[Task, "Line"], bool]
POLL_SECONDS = 0.5


class Event(NamedTuple):
    """What happened to a task."""

    task: Any
    state: Literal["started", "progress", "finished", "failed", "stopped"]
    detail: Any = None
    """What the work reported, or the one line that says why it failed."""


class Line(Protocol):
    """What the work has of the process that started it."""

    def should_stop(self) -> bool:
        """Whether the work should end at the next clean place."""

    def report(self, progress: Callable[[], Any]) -> None:
        """Sends word of the work, if the last word is old enough."""


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


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    work: Work, tasks: Sequence[Task], workers: int, stop: StopFlag, log: Path, *, whole_machine: bool = False
) -> Iterator[Event]:
    """Runs `work(task, line)` for every task, and yields what happens to each.

    Args:
        work: a function at the top of a module; it asks `line.should_stop` now and then, and returns whether it
            finished.
        tasks: what to run, in this order.
        workers: how many processes; each keeps to one core, so that they do not fight for threads.
        stop: once it is set, no task is started, and running ones are asked to stop.
        log: a file that takes what the workers print, and the tracebacks of errors that nobody foresaw.
        whole_machine: whether each process has all cores instead, and the accelerator if there is one.
    """
    waiting = list(reversed(tasks))
    log.parent.mkdir(parents=True, exist_ok=True)
    pool = [_Worker(work, None if whole_machine else place, log) for place in range(min(workers, len(tasks)))]
    asked = False
    try:
        while True:
            if stop and not asked:
                asked = True
                for worker in pool:
                    worker.ask_to_stop()
            while not stop and waiting and (idle := next((w for w in pool if not w.is_busy), None)):
                task = waiting.pop()
                idle.give(task)
                yield Event(task, "started")
            busy = [worker for worker in pool if worker.is_busy]
            if not busy:
                return
            ready = multiprocessing.connection.wait([worker.connection for worker in busy], POLL_SECONDS)
            for worker in busy:
                if worker.connection in ready:
                    yield worker.next_event(bool(stop))
    finally:
        for worker in pool:
            worker.end()


class _Worker:
    """A place for one process at a time; a new process follows one that died."""

    def __init__(self, work: Work, place: int | None, log: Path):
        self._work, self._place, self._log = work, place, log
        self._task: Any = None
        self.is_busy = False
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, self._work, self._place, self._log.absolute())
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()  # so that the death of the process ends the pipe

    def give(self, task: Any) -> None:
        """Hands the process its next task."""
        if not self._process.is_alive():
            self.connection.close()
            self._start()
        self.connection.send(task)
        self._task, self.is_busy = task, True

    def next_event(self, stopping: bool) -> Event:
        """What the process has to say; it must have something to say."""
        try:
            state, detail = self.connection.recv()
        except (EOFError, OSError):
            state, detail = ("stopped", None) if stopping else ("failed", self._cause_of_death())
        if state == "stopped" and not stopping:
            state, detail = "failed", "its process was asked to stop; the same command goes on with it"
            self._process.join()
        self.is_busy = state == "progress"
        return Event(self._task, state, detail)

    def ask_to_stop(self) -> None:
        """Asks the process to end its task at a clean place."""
        self._process.terminate()

    def end(self) -> None:
        """Ends the process, by force if it is still at work."""
        if self.is_busy:
            self._process.kill()
        self.connection.close()
        self._process.join()

    def _cause_of_death(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return f"its process {how} (out of memory?); the same command goes on with it"


def _serve(connection: Connection, work: Work, place: int | None, log: Path) -> None:
    """What a process does: one task after the other, until the pipe is closed; in its place, if it has one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent decides
    line = _Pipe(connection)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if place is not None and hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[place % len(allowed)]})
    prepare(log, on_cpu=place is not None)
    while not line.should_stop():
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(attempt(work, task, line))


def prepare(log: Path, *, on_cpu: bool = True) -> None:
    """Makes this process a worker: it computes on the CPU unless told otherwise, and what it prints goes to the log."""
    if on_cpu and not os.environ.get("JAX_PLATFORMS"):
        jax.config.update("jax_platforms", "cpu")  # many small processes do not share one accelerator well
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def attempt(work: Work, task: Any, line: Line) -> tuple[str, str | None]:
    """Does a task; returns how it ended, and the one line that says why it failed."""
    try:
        return ("finished" if not line.should_stop() and work(task, line) else "stopped"), None
    except (UsageError, RunError) as error:
        return "failed", " ".join(str(error).split())
    except Exception as error:
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {' '.join(str(error).split())}"


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
