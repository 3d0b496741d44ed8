"""One run: a config and a directory in, progress and a checkpoint out, resumable at any time."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from paramnoise.envs import env_factory
from paramnoise.training import checkpoint
from paramnoise.training.config import RunConfig
from paramnoise.training.display import Bar, StopFlag, bar, describe, stop_on_signals
from paramnoise.training.host import HostLoop
from paramnoise.training.on_policy import OnPolicyLoop
from paramnoise.training.population import PopulationLoop
from paramnoise.training.run_directory import RunDirectory
from paramnoise.training.tensorboard import TensorBoardLog
from paramnoise.validation import RunError, require, require_extra

BAR_EVERY = 100
"""Steps between moves of the progress bar."""

CHECKPOINT_SECONDS = 60.0
"""The age of a checkpoint at which the next one is due: with a replay of 100,000 one is tens of megabytes."""


class Watcher(Protocol):
    """Who follows a run: it hears of steps and evaluations, and may ask the run to stop."""

    def on_step(self, step: int) -> None:
        """So many environment steps are done."""

    def on_row(self, row: dict[str, float]) -> None:
        """An evaluation is done, and kept on disk."""

    def should_stop(self) -> bool:
        """Whether the run should save a checkpoint and end here."""

    @property
    def signal(self) -> int | None:
        """The signal that asked the run to stop."""


Loop = HostLoop | OnPolicyLoop | PopulationLoop


def build_loop(config: RunConfig, make_env: Callable[[], gym.Env]) -> Loop:
    """The loop of a config, before its first step."""
    probe = make_env()
    learner = config.made_by.build(config.agent, config.env, probe.observation_space, probe.action_space)
    probe.close()
    common: Any = {"seed": config.seed, "num_envs": config.num_envs, "eval_max_steps": config.eval_max_steps}
    if config.made_by.is_population:
        return PopulationLoop(learner, make_env, **common)
    if config.made_by.is_on_policy:
        return OnPolicyLoop(learner, config.exploration, make_env, **common)
    return HostLoop(learner, config.exploration, make_env, overlap=config.overlap, **common)


def save_loop(loop: Loop, directory: Path, wall_time: float) -> None:
    """Writes a checkpoint of a loop, unless its parameters are not finite: then the one before is kept."""
    check_finite(loop)
    state, own = loop.snapshot()
    checkpoint.save(directory, state, own, {"step": loop.step, "wall_time": wall_time})


def load_loop(loop: Loop, directory: Path) -> dict[str, Any]:
    """Brings a fresh loop of the same config to its checkpoint; returns the checkpoint's facts."""
    template: Any = loop.state
    state, own, facts = checkpoint.load(directory, template)
    loop.restore(state, own)
    return facts


def check_finite(loop: Loop) -> None:
    """Raises RunError if an array of the learner, such as a weight, holds NaN or infinity."""
    for name, leaf in checkpoint.named_leaves(loop.state.learner).items():
        if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all():
            raise RunError(f"{name} is not finite by step {loop.step}: learning has diverged (a lower rate may help)")


def run(
    config: RunConfig,
    path: Path,
    *,
    resume: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    tensorboard: bool = False,
    on_start: Callable[[], None] = lambda: None,
    watcher: Watcher | None = None,
) -> dict[str, Any]:
    """Trains to the end, or until it is asked to stop, and returns the summary.

    A resumed run goes on exactly where its checkpoint was.

    Args:
        config: what to run.
        path: the run directory.
        resume: whether to go on with the run that the directory holds.
        checkpoint_seconds: a checkpoint follows an evaluation if the last one is that old; one is written at a stop and
            at the end in any case.
        tensorboard: whether to write event files for TensorBoard too.
        on_start: called once the environment and the directory have proved usable.
        watcher: who follows the run, which then prints nothing and touches no signal; None: the terminal, with a bar,
            and Ctrl-C and SIGTERM stop it.

    Raises:
        RunError: if the run cannot go on; the summary then says why, and the last checkpoint is kept.
    """
    require(checkpoint_seconds >= 0, "checkpoint_seconds", checkpoint_seconds, "at least 0")
    if tensorboard:
        require_extra("tensorboardX", "tensorboard", "TensorBoard logs")
    loop = build_loop(config, env_factory(config.env, config.env_kwargs))
    directory = RunDirectory(path)
    directory.claim(config, resume)
    on_start()
    files = _RunFiles(loop, directory, checkpoint_seconds, tensorboard)
    try:
        with _terminal(config) if watcher is None else contextlib.nullcontext(watcher) as watching:
            rows = loop.run(
                config.steps,
                eval_every=config.eval_every,
                eval_episodes=config.eval_episodes,
                on_step=watching.on_step,
                should_stop=watching.should_stop,
            )
            for row in rows:
                watching.on_row(files.add(row))
            files.save()
            if loop.step < config.steps:
                return files.summarise("interrupted", signal=watching.signal)
            return files.summarise("finished")
    except RunError as error:
        files.summarise("failed", reason=str(error))
        raise
    finally:
        files.close()
        loop.close()


@contextlib.contextmanager
def _terminal(config: RunConfig) -> Iterator[Watcher]:
    """A run that people follow: a bar and lines, and signals that stop it."""
    with bar(config.steps, f"{config.algorithm} {config.env}", "steps") as shown, stop_on_signals() as stop:
        yield _Terminal(shown, stop)


class _Terminal:
    def __init__(self, shown: Bar, stop: StopFlag):
        self._shown, self._stop, self._moved_at = shown, stop, 0

    def on_step(self, step: int) -> None:
        if step // BAR_EVERY > self._moved_at // BAR_EVERY:
            self._shown.advance_to(step)
            self._moved_at = step

    def on_row(self, row: dict[str, float]) -> None:
        self._shown.line(describe(row))

    def should_stop(self) -> bool:
        return bool(self._stop)

    @property
    def signal(self) -> int | None:
        return self._stop.signal


class _RunFiles:
    """What a run writes on its way, and the clock that it writes down."""

    def __init__(self, loop: Loop, directory: RunDirectory, checkpoint_seconds: float, tensorboard: bool):
        """Brings the loop to the directory's checkpoint, if it holds one, and the other files to the same step."""
        self._loop, self._directory, self._checkpoint_seconds = loop, directory, checkpoint_seconds
        self._wall_before, self._saved_step = 0.0, -1
        if (directory.checkpoint / checkpoint.INDEX).exists():
            self._wall_before = load_loop(loop, directory.checkpoint)["wall_time"]
            self._saved_step = loop.step
        directory.forget_after(loop.step)
        self._log = TensorBoardLog(directory.tensorboard, directory.rows(), self._wall_before) if tensorboard else None
        self._first_step = loop.step
        self._started = self._saved_at = time.perf_counter()

    def add(self, row: dict[str, float]) -> dict[str, float]:
        """Writes a row of progress, and a checkpoint if one is due; returns the row with the clock's columns."""
        check_finite(self._loop)
        seconds = time.perf_counter() - self._started
        rate = (self._loop.step - self._first_step) / seconds
        row = {**row, "steps_per_second": rate, "wall_time": self._wall_before + seconds}
        self._directory.append(row)
        if self._log is not None:
            self._log.add(row)
        if time.perf_counter() - self._saved_at >= self._checkpoint_seconds:
            self.save()
        return row

    def save(self) -> None:
        """Writes a checkpoint, unless the last one is of this step."""
        if self._loop.step != self._saved_step:
            save_loop(self._loop, self._directory.checkpoint, self._wall_time())
            self._saved_step, self._saved_at = self._loop.step, time.perf_counter()

    def summarise(self, status: str, **more: Any) -> dict[str, Any]:
        """Writes the summary, and returns it."""
        returns = [float(row["eval_return_mean"]) for row in self._directory.rows()]
        summary = {
            "status": status,
            "steps": self._loop.step,
            "final_eval_return_mean": returns[-1] if returns else None,
            "best_eval_return_mean": max(returns) if returns else None,
            "wall_time": self._wall_time(),
            **more,
        }
        self._directory.write_summary(summary)
        return summary

    def close(self) -> None:
        """Ends the files that are kept open."""
        if self._log is not None:
            self._log.close()

    def _wall_time(self) -> float:
        return self._wall_before + time.perf_counter() - self._started
