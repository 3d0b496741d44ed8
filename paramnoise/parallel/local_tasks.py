"""Worker processes that each hold an object of their own: a message goes out to all of them, then tasks one by one."""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import jax

from paramnoise.validation import RunError, UsageError

POLL_SECONDS = 0.1

Work = Callable[[Any, Any], Any]
"""message, task -> result."""


class LocalTasks:
    """Processes of this machine; they start when first needed."""

    def __init__(self, make: Callable[[], Work], workers: int):
        """Checks that what makes a worker's object can be sent; no process is started yet."""
        self._make, self._workers = _sendable(make), workers
        self._pool: list[_Worker] = []

    def run(self, message: Any, tasks: Sequence[Any]) -> Generator[list[Any]]:
        """Does the tasks, in any order; yields now and then the results of those that ended.

        Whoever stops asking before all have ended loses the work, and nothing else.
        """
        waiting = list(tasks)[::-1]
        packed = pickle.dumps(("message", message))  # once for all workers
        whole = False
        try:
            self._pool = self._pool or [_Worker(self._make) for _ in range(self._workers)]
            for worker in self._pool:
                worker.send(packed)
            busy = {worker.connection: worker for worker in self._pool if _give(worker, waiting)}
            while busy:
                ready: Any = multiprocessing.connection.wait(list(busy), POLL_SECONDS)
                answers = [(busy[connection], busy[connection].answer()) for connection in ready]
                for worker, _ in answers:
                    if not _give(worker, waiting):
                        del busy[worker.connection]
                yield [result for _, result in answers]
            whole = True
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        """Ends the processes, whatever they are at."""
        for worker in self._pool:
            worker.end()
        self._pool = []


class _Worker:
    """A process and the line to it."""

    def __init__(self, make: bytes):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make), daemon=True)
        self._process.start()
        theirs.close()  # so that the death of the process ends the pipe

    def send(self, message: bytes) -> None:
        """Sends what was pickled, or raises RunError if there is nobody to receive it."""
        try:
            self.connection.send_bytes(message)
        except OSError:
            self.answer()  # its last word, or the cause of its death

    def answer(self) -> Any:
        """A result, or RunError; the process must have something to say, or have died."""
        try:
            is_error, answer = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            raise RunError(f"a worker process {how} (out of memory?); --resume goes on from the checkpoint") from None
        if is_error:
            raise RunError(answer)
        return answer

    def end(self) -> None:
        """Kills the process: it holds nothing that is worth saving."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _give(worker: _Worker, waiting: list[Any]) -> bool:
    """Gives a worker the next task; whether there was any."""
    if not waiting:
        return False
    worker.send(pickle.dumps(("task", waiting.pop())))
    return True


def _sendable(make: Callable[[], Work]) -> bytes:
    try:
        return pickle.dumps(make)
    except Exception as error:  # pickle has no error of its own for what an object makes of it
        raise UsageError(
            f"workers above 1 needs an environment that can be sent to another process, by id or as a function at the "
            f"top of a module ({type(error).__name__}: {' '.join(str(error).split())})"
        ) from None


def _serve(connection: Connection, make: bytes) -> None:
    """What a process does until the pipe is closed, or its parent is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they may reach every process; the parent decides
        signal.signal(number, signal.SIG_IGN)
    if not os.environ.get("JAX_PLATFORMS"):
        jax.config.update("jax_platforms", "cpu")  # several processes do not share one accelerator well
    try:
        work = pickle.loads(make)()
        message: Any = None
        while True:
            kind, received = connection.recv()
            if kind == "message":
                message = received
            else:
                connection.send((False, work(message, received)))
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        known = isinstance(error, RunError | UsageError)
        connection.send((True, str(error) if known else f"{type(error).__name__}: {' '.join(str(error).split())}"))
