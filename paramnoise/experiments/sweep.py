"""Runs independent pieces of work in worker processes, one core each, and stops them cleanly."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any, TypeVar

from paramnoise.training.display import StopFlag

Task = TypeVar("Task")
POLL_SECONDS = 0.5


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    work: Callable[[Task, Callable[[], bool]], bool], tasks: Sequence[Task], workers: int, stop: StopFlag
) -> Iterator[tuple[Task, BaseException | None]]:
    """Runs `work(task, should_stop)` for every task and yields each one as it ends, with its error if it failed.

    Args:
        work: a function at the top of a module; it asks `should_stop` now and then, and returns whether it finished.
        tasks: what to run, in this order.
        workers: how many processes; each keeps to one core, so that they do not fight for threads.
        stop: once it is set, no task is started, running ones are asked to stop, and unfinished ones are not yielded.
    """
    context = multiprocessing.get_context("spawn")
    asked = context.Event()
    places = context.SimpleQueue()
    for i in range(workers):
        places.put(i)
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(places, asked)) as pool:
        running = {pool.submit(_call, work, task): task for task in tasks}
        while running:
            done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            if stop and not asked.is_set():
                asked.set()
                for future in running:
                    future.cancel()
            for future in done:
                task = running.pop(future)
                if future.cancelled():
                    continue
                error = future.exception()
                if error is not None or future.result():
                    yield task, error


_asked: Any = None
"""In a worker: the event that asks it to stop."""


def _start_worker(places: Any, asked: Any) -> None:
    global _asked
    _asked = asked
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[places.get() % len(allowed)]})


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _call(work: Callable[[Task, Callable[[], bool]], bool], task: Task) -> bool:
    return not _asked.is_set() and work(task, _asked.is_set)
