"""A worker process of this machine: how it starts, how it is talked to, how it ends."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable
from typing import Any


class WorkerDied(Exception):
    """A worker process that ended before it answered; the message says how, for example "was killed by SIGKILL"."""


class Worker:
    """A process and the pipe to it. It ends with this process, whatever ends this process."""

    def __init__(self, serve: Callable[..., None], *arguments: Any):
        """Starts a process that calls `serve(connection, *arguments)`, where the connection is its end of the pipe.

        Ctrl-C reaches every process of a terminal, and the worker ignores it: this process decides what to do.
        """
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_begin, args=(serve, theirs, arguments), daemon=True)
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    serve(connection, *arguments)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
