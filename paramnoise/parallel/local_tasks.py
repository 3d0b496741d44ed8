"""Worker processes that each hold an object of their own: a message goes out to all of them, then tasks one by one."""

import multiprocessing.connection
import pickle
import signal
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from paramnoise.parallel.process import compute_on_cpu, told
from paramnoise.parallel.worker import Worker, WorkerDied
from paramnoise.validation import RunError, UsageError

POLL_SECONDS = 0.1

Work = Callable[[Any, Any], Any]
"""message, task -> result."""


class LocalTasks:
    """Processes of this machine; they start when first needed."""

    def __init__(self, make: Callable[[], Work], workers: int):
        """Checks that what makes a worker's object can be sent; no process is started yet."""
        self._make, self._workers = _sendable(make), workers
        self._pool: list[Worker] = []

    def run(self, message: Any, tasks: Sequence[Any]) -> Generator[list[Any]]:
        """Does the tasks, in any order; yields now and then the results of those that ended.

        Whoever stops asking before all have ended loses the work, and nothing else.
        """
        waiting = list(tasks)[::-1]
        packed = pickle.dumps(("message", message))  # once for all workers
        whole = False
        try:
            self._pool = self._pool or [Worker(_serve, self._make) for _ in range(self._workers)]
            for worker in self._pool:
                _send(worker, packed)
            busy = {worker.connection: worker for worker in self._pool if _give(worker, waiting)}
            while busy:
                ready: Any = multiprocessing.connection.wait(list(busy), POLL_SECONDS)
                answers = [(busy[connection], _answer(busy[connection])) for connection in ready]
                for worker, _ in answers:
                    if not _give(worker, waiting):
                        del busy[worker.connection]
                yield [result for _, result in answers]
            whole = True
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        """Ends the processes, whatever they are at: they hold nothing that is worth saving."""
        for worker in self._pool:
            worker.end(by_force=True)
        self._pool = []


def _give(worker: Worker, waiting: list[Any]) -> bool:
    """Gives a worker the next task; returns whether there was any."""
    if not waiting:
        return False
    _send(worker, pickle.dumps(("task", waiting.pop())))
    return True


def _send(worker: Worker, pickled: bytes) -> None:
    if not worker.send(pickled):
        _answer(worker)  # raises its last word, or the cause of its death


def _answer(worker: Worker) -> Any:
    """A worker's result, or RunError."""
    try:
        is_error, answer = worker.receive()
    except WorkerDied as death:
        raise RunError(f"a worker process {death}; --resume goes on from the checkpoint") from None
    if is_error:
        raise RunError(*answer)
    return answer


def _sendable(make: Callable[[], Work]) -> bytes:
    try:
        return pickle.dumps(make)
    except Exception as error:  # pickle has no error of its own for what an object makes of it
        raise UsageError(
            f"workers above 1 needs an environment that can be sent to another process, by id or as a function at the "
            f"top of a module ({type(error).__name__}: {' '.join(str(error).split())})"
        ) from None


def _serve(connection: Connection, make: bytes) -> None:
    """What a process does until the pipe is closed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it may reach every process; the parent decides
    compute_on_cpu()
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
        connection.send((True, told(error)))
