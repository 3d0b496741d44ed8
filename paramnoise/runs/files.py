"""What a run writes on its way: rows of progress, checkpoints, its best agent, its summary."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from paramnoise.loops.host import HostLoop
from paramnoise.runs import checkpoint
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.loop import check_finite, load_loop, stage_loop
from paramnoise.runs.tensorboard import TensorBoardLog
from paramnoise.validation import RunError, UsageError

CHECKPOINT_SECONDS = 60.0
"""The age of a checkpoint at which the next one is due: with a replay of 100,000 one is tens of megabytes."""


class Clock:
    """The time that training takes, as rows show it."""

    def __init__(self, step: int, before: float = 0.0):
        """Starts at a step, after so many seconds of training."""
        self._first_step, self.before, self._started = step, before, time.perf_counter()

    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.before + time.perf_counter() - self._started

    def stamp(self, row: dict[str, float]) -> dict[str, float]:
        """A row with the clock's columns."""
        wall_time = self.seconds()
        rate = (row["step"] - self._first_step) / (wall_time - self.before)
        return {**row, "steps_per_second": rate, "wall_time": wall_time}


class RunFiles:
    """What a run writes on its way."""

    def __init__(
        self,
        loop: HostLoop,
        member: int,
        config: RunConfig,
        directory: RunDirectory,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        tensorboard: bool = False,
        *,
        restores: bool = True,
    ):
        """Brings one of the loop's seeds to the directory's checkpoint, if it holds one; nothing is written yet.

        Args:
            loop: what is trained.
            member: which of its seeds.
            config: of that seed.
            directory: where to write.
            checkpoint_seconds: the age of a checkpoint at which the next one is due.
            tensorboard: whether to write event files too.
            restores: False if the loop is where the directory's checkpoint is already.
        """
        self._loop, self._member, self._config = loop, member, config
        self._directory, self._checkpoint_seconds, self._tensorboard = directory, checkpoint_seconds, tensorboard
        self._wall_before, self._saved_step = 0.0, -1
        if checkpoint.is_in(directory.checkpoint):
            facts = (
                load_loop(loop, directory.checkpoint, member) if restores else checkpoint.facts(directory.checkpoint)
            )
            if not facts.get("holds_experience", True):
                raise UsageError(
                    f"{directory.path} is a run's best, kept without its experience: go on with the run itself"
                )
            self._wall_before, self._saved_step = facts["wall_time"], loop.step
            directory.check_digests(facts.get("digests", {}), config, loop.step)
        self.first_step = loop.step

    def begin(self) -> None:
        """Writes the config, and brings the other files to the step of the loop."""
        directory, step = self._directory, self.first_step
        directory.write_config(self._config)
        directory.forget_after(step)
        self._log = (
            TensorBoardLog(directory.tensorboard, directory.rows(), self._wall_before) if self._tensorboard else None
        )
        self._best = max(_evaluations(directory), default=-np.inf)
        self.clock = Clock(step, self._wall_before)
        self._saved_at = time.perf_counter()

    def add(self, row: dict[str, float]) -> None:
        """Writes a row of progress, and keeps the agent apart if it never did better."""
        check_finite(self._loop, self._member)
        self._directory.append(row)
        if self._log is not None:
            self._log.add(row)
        if row["eval_return_mean"] > self._best:
            self._best = row["eval_return_mean"]
            self._keep_best()

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough for a new one."""
        return time.perf_counter() - self._saved_at >= self._checkpoint_seconds

    def stage(self) -> Callable[[], None]:
        """Writes a checkpoint that takes its place when the function is called, unless the last one is of this step."""
        if self._loop.step == self._saved_step:
            return lambda: None
        digests = self._directory.digests(self._config, self._loop.step)
        facts = {"wall_time": self.clock.seconds(), "digests": digests}
        commit = stage_loop(self._loop, self._member, self._directory.checkpoint, facts)
        self._saved_step, self._saved_at = self._loop.step, time.perf_counter()
        return commit

    def summarise(self, status: str, **more: Any) -> dict[str, Any]:
        """Writes the summary, and returns it."""
        returns = _evaluations(self._directory)
        summary = {
            "status": status,
            "steps": self._loop.step,
            "final_eval_return_mean": returns[-1] if returns else None,
            "best_eval_return_mean": max(returns) if returns else None,
            "wall_time": self.clock.seconds(),
            **more,
        }
        self._directory.write_summary(summary)
        return summary

    def fail(self, error: RunError) -> Path | None:
        """Writes the summary of a run that cannot go on, and the error's details; returns the file of these."""
        self.summarise("failed", reason=str(error))
        return self._directory.write_traceback(error.details) if error.details else None

    def close(self) -> None:
        """Ends the files that are kept open."""
        if self._log is not None:
            self._log.close()

    def _keep_best(self) -> None:
        """Writes the agent as it is, without its experience, for others to evaluate: no run goes on from it."""
        best = self._directory.best()
        state = self._loop.state(self._member, experience=False)
        facts = {
            "step": self._loop.step,
            "eval_return_mean": self._best,
            "holds_experience": False,
            "digests": {"config": self._config.digest()},
        }
        checkpoint.save(best.checkpoint, state, {}, facts)


def _evaluations(directory: RunDirectory) -> list[float]:
    """The mean returns of the evaluations so far; some rows have none."""
    returns = [float(row["eval_return_mean"]) for row in directory.rows()]
    return [value for value in returns if not np.isnan(value)]
