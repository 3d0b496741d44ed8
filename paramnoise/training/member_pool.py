"""Worker processes that evaluate members: parameters go out once a generation, a few numbers per episode come back."""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import jax

from paramnoise.training.members import Broadcast, Episode, MemberEvaluator, Setting
from paramnoise.validation import RunError, UsageError

POLL_SECONDS = 0.1


class MemberPool:
    """As `MemberEvaluator`, in several processes, each with its own environments; they start when first needed."""

    def __init__(self, setting: Setting, workers: int):
        """Checks that the setting can be sent; no process is started yet."""
        self._setting = _sendable(setting)
        self._chunk, self._workers = setting.num_envs, workers
        self._pool: list[_Worker] = []

    def evaluate(self, broadcast: Broadcast, numbers: Sequence[int]) -> Generator[list[Episode]]:
        """Runs the episodes of these numbers, in any order; yields now and then those that ended.

        A process gets as many episodes as it has environments, and the next ones when these have ended. Whoever stops
        asking before all have ended loses the work, and nothing else.
        """
        waiting = [numbers[i : i + self._chunk] for i in range(0, len(numbers), self._chunk)][::-1]
        message = pickle.dumps(broadcast)  # once for all workers
        whole = False
        try:
            self._start()
            for worker in self._pool:
                worker.send(message)
            busy = {worker.connection: worker for worker in self._pool if _give(worker, waiting)}
            while busy:
                ready: Any = multiprocessing.connection.wait(list(busy), POLL_SECONDS)
                answers = [(busy[connection], busy[connection].answer()) for connection in ready]
                for worker, _ in answers:
                    if not _give(worker, waiting):
                        del busy[worker.connection]
                yield [episode for _, episodes in answers for episode in episodes]
            whole = True
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        """Ends the processes, whatever they are at."""
        for worker in self._pool:
            worker.end()
        self._pool = []

    def _start(self) -> None:
        self._pool = self._pool or [_Worker(self._setting) for _ in range(self._workers)]


class _Worker:
    """A process and the line to it."""

    def __init__(self, setting: bytes):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, setting), daemon=True)
        self._process.start()
        theirs.close()  # so that the death of the process ends the pipe

    def send(self, message: bytes) -> None:
        """Sends what was pickled, or raises RunError if there is nobody to receive it."""
        try:
            self.connection.send_bytes(message)
        except OSError:
            self.answer()  # its last word, or the cause of its death

    def answer(self) -> list[Episode]:
        """The episodes that ended, or RunError; the process must have something to say, or have died."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            raise RunError(f"a worker process {how} (out of memory?); --resume goes on from the checkpoint") from None
        if isinstance(answer, str):
            raise RunError(answer)
        return answer

    def end(self) -> None:
        """Kills the process: it holds nothing that is worth saving."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _give(worker: _Worker, waiting: list[Sequence[int]]) -> bool:
    """Gives a worker the next episodes; whether there were any."""
    if not waiting:
        return False
    worker.send(pickle.dumps(waiting.pop()))
    return True


def _sendable(setting: Setting) -> bytes:
    try:
        return pickle.dumps(setting)
    except Exception as error:  # pickle has no error of its own for what an object makes of it
        raise UsageError(
            f"workers above 1 needs an environment that can be sent to another process, by id or as a function at the "
            f"top of a module ({type(error).__name__}: {' '.join(str(error).split())})"
        ) from None


def _serve(connection: Connection, setting: bytes) -> None:
    """What a process does until the pipe is closed, or its parent is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they may reach every process; the parent decides
        signal.signal(number, signal.SIG_IGN)
    if not os.environ.get("JAX_PLATFORMS"):
        jax.config.update("jax_platforms", "cpu")  # several processes do not share one accelerator well
    try:
        evaluator = MemberEvaluator(pickle.loads(setting))
        broadcast: Any = None
        while True:
            received = connection.recv()
            if isinstance(received, Broadcast):
                broadcast = received
            else:
                ended = evaluator.evaluate(broadcast, received)
                connection.send([episode for episodes in ended for episode in episodes])
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        known = isinstance(error, RunError | UsageError)
        connection.send(str(error) if known else f"{type(error).__name__}: {' '.join(str(error).split())}")
