"""A worker process of this machine: how it starts, how it is talked to, how it ends."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

_OF_A_TERMINAL = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name))
"""The signals that a terminal sends to all of its processes."""


class WorkerDied(Exception):
    """A worker process that ended before it answered; the message says how, for example "was killed by SIGKILL"."""


class Worker:
    """A process and the pipe to it. It ends with this process, whatever ends this process."""

    def __init__(self, serve: Callable[..., None], *arguments: Any):
        """Starts a process that calls `serve(connection, *arguments)`, where the connection is its end of the pipe.

        Ctrl-C, and the end of a terminal, reach every process of it, and the worker ignores them: this process decides
        what to do.
        """
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_begin, args=(serve, theirs, arguments), daemon=True)
        with _held_back():
            self._process.start()
        theirs.close()  # so that the death of the process ends the pipe

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def send(self, pickled: bytes) -> bool:
        """Sends a pickled object; returns False if the process has died."""
        try:
            self.connection.send_bytes(pickled)
        except OSError:
            return False
        return True

    def receive(self) -> Any:
        """Takes what the process sent; waits for it.

        Raises:
            WorkerDied: if the process ended without another word.
        """
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise WorkerDied(_cause_of_death(self._process.exitcode or 0)) from None

    def ask_to_stop(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def end(self, *, by_force: bool) -> None:
        """Ends the process: with SIGKILL, or by closing the pipe, which a process without work notices."""
        if by_force:
            self._process.kill()
        self.connection.close()
        self._process.join()


def _cause_of_death(code: int) -> str:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return f"{how} (out of memory?)"


def _begin(serve: Callable[..., None], connection: Any, arguments: tuple[Any, ...]) -> None:
    """What runs in the process."""
    for number in _OF_A_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_A_TERMINAL)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    serve(connection, *arguments)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Lets signals of the terminal wait; a process that is started here has them wait until it ignores them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_A_TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
