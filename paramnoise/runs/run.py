"""A run: a config and a directory in, progress and a checkpoint out, resumable at any time; or several side by side."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from paramnoise.envs import EnvLike, env_source
from paramnoise.loops.host import HostLoop
from paramnoise.runs import checkpoint
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.display import Bar, StopFlag, bar, describe, stop_on_signals
from paramnoise.runs.tensorboard import TensorBoardLog
from paramnoise.validation import RunError, UsageError, require, require_extra

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


def make_loop(configs: Sequence[RunConfig], env: EnvLike) -> HostLoop:
    """The loop of configs that differ in their seeds alone, for an environment, before its first step."""
    config = configs[0]
    source = env_source(env, config.env_kwargs if isinstance(env, str) else None)
    learner = config.made_by.build(config.agent, config.env, source.observation_space, source.action_space)
    return HostLoop(
        learner,
        config.exploration,
        source,
        seeds=[each.seed for each in configs],
        num_envs=config.num_envs,
        eval_max_steps=config.eval_max_steps,
        log_every=config.log_every,
        overlap=config.overlap,
        replay_on=config.replay_on,
        save_replay=config.save_replay,
    )


def save_loop(loop: HostLoop, directory: Path, wall_time: float) -> None:
    """Writes a checkpoint of a loop of one seed, unless its parameters are not finite: then the one before is kept."""
    stage_loop(loop, 0, directory, wall_time)()


def stage_loop(loop: HostLoop, member: int, directory: Path, wall_time: float) -> Callable[[], None]:
    """Writes a checkpoint of one of the seeds beside the one before; the function returned puts it in its place."""
    check_finite(loop, member)
    state, own = loop.snapshot(member)
    return checkpoint.stage(directory, state, own, {"step": loop.step, "wall_time": wall_time})


def load_loop(loop: HostLoop, directory: Path, member: int = 0) -> dict[str, Any]:
    """Brings one of the seeds of a fresh loop of the same config to its checkpoint; returns the checkpoint's facts."""
    state, own, facts = checkpoint.load(directory, loop.state(member))
    loop.restore(state, own, member)
    return facts


def check_finite(loop: HostLoop, member: int) -> None:
    """Raises RunError if an array of the learner, such as a weight, holds NaN or infinity."""
    for name, leaf in checkpoint.named_leaves(loop.state(member).learner).items():
        if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all():
            raise RunError(f"{name} is not finite by step {loop.step}: learning has diverged (a lower rate may help)")


def run(
    config: RunConfig,
    path: Path,
    *,
    resume: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    tensorboard: bool = False,
    on_start: Callable[[HostLoop], None] = lambda loop: None,
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
        on_start: called with the loop once the environment and the directory have proved usable.
        watcher: who follows the run, which then prints nothing and touches no signal; None: the terminal, with a bar,
            and Ctrl-C and SIGTERM stop it.

    Raises:
        RunError: if the run cannot go on; the summary then says why, and the last checkpoint is kept.
    """
    return _run([config], [path], resume, checkpoint_seconds, tensorboard, on_start, watcher)[0]


def run_together(
    configs: Sequence[RunConfig],
    paths: Sequence[Path],
    *,
    resume: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    watcher: Watcher | None = None,
) -> list[dict[str, Any]]:
    """Trains several seeds of one config on pixels side by side in one process; otherwise as `run`.

    Each has its run directory; they are stopped, and resumed, together. `watcher` hears of the rows of all of them.
    """
    alike = {repr(dataclasses.replace(config, seed=0)) for config in configs}
    if len(alike) != 1 or len({config.seed for config in configs}) != len(configs):
        raise UsageError("runs side by side differ in their seeds, and in nothing else")
    return _run(configs, paths, resume, checkpoint_seconds, False, lambda loop: None, watcher)


def _run(
    configs: Sequence[RunConfig],
    paths: Sequence[Path],
    resume: bool,
    checkpoint_seconds: float,
    tensorboard: bool,
    on_start: Callable[[HostLoop], None],
    watcher: Watcher | None,
) -> list[dict[str, Any]]:
    require(checkpoint_seconds >= 0, "checkpoint_seconds", checkpoint_seconds, "at least 0")
    if tensorboard:
        require_extra("tensorboardX", "tensorboard", "TensorBoard logs")
    config = configs[0]
    loop = make_loop(configs, config.env)
    directories = [RunDirectory(path) for path in paths]
    for directory, own in zip(directories, configs, strict=True):
        directory.claim(own, resume)
    on_start(loop)
    files = [_RunFiles(loop, member, each, checkpoint_seconds, tensorboard) for member, each in enumerate(directories)]
    if len({each.first_step for each in files}) > 1:
        raise UsageError("runs side by side were saved at different steps and cannot go on: remove them to start over")
    try:
        with _terminal(config) if watcher is None else contextlib.nullcontext(watcher) as watching:
            rows_of_seeds = loop.run(
                config.steps,
                eval_every=config.eval_every,
                eval_episodes=config.eval_episodes,
                on_step=watching.on_step,
                should_stop=watching.should_stop,
            )
            for rows in rows_of_seeds:
                for each, row in zip(files, rows, strict=True):
                    watching.on_row(each.add(row))
                if files[0].is_due():
                    _save(files)
            _save(files)
            if loop.step < config.steps:
                return [each.summarise("interrupted", signal=watching.signal) for each in files]
            return [each.summarise("finished") for each in files]
    except RunError as error:
        for each in files:
            each.summarise("failed", reason=str(error))
        raise
    finally:
        for each in files:
            each.close()
        loop.close()


def _save(files: Sequence["_RunFiles"]) -> None:
    """Writes a checkpoint of each run; a kill on the way leaves all at the same step, but for an instant."""
    for commit in [each.stage() for each in files]:
        commit()


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

    def __init__(
        self, loop: HostLoop, member: int, directory: RunDirectory, checkpoint_seconds: float, tensorboard: bool
    ):
        """Brings one of the loop's seeds to the directory's checkpoint, if it holds one, and the other files to it."""
        self._loop, self._member = loop, member
        self._directory, self._checkpoint_seconds = directory, checkpoint_seconds
        self._wall_before, self._saved_step = 0.0, -1
        if (directory.checkpoint / checkpoint.INDEX).exists():
            self._wall_before = load_loop(loop, directory.checkpoint, member)["wall_time"]
            self._saved_step = loop.step
        directory.forget_after(loop.step)
        self._log = TensorBoardLog(directory.tensorboard, directory.rows(), self._wall_before) if tensorboard else None
        self.first_step = loop.step
        self._started = self._saved_at = time.perf_counter()

    def add(self, row: dict[str, float]) -> dict[str, float]:
        """Writes a row of progress; returns the row with the clock's columns."""
        check_finite(self._loop, self._member)
        seconds = time.perf_counter() - self._started
        rate = (self._loop.step - self.first_step) / seconds
        row = {**row, "steps_per_second": rate, "wall_time": self._wall_before + seconds}
        self._directory.append(row)
        if self._log is not None:
            self._log.add(row)
        return row

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough for a new one."""
        return time.perf_counter() - self._saved_at >= self._checkpoint_seconds

    def stage(self) -> Callable[[], None]:
        """Writes a checkpoint that takes its place when the function is called, unless the last one is of this step."""
        if self._loop.step == self._saved_step:
            return lambda: None
        commit = stage_loop(self._loop, self._member, self._directory.checkpoint, self._wall_time())
        self._saved_step, self._saved_at = self._loop.step, time.perf_counter()
        return commit

    def summarise(self, status: str, **more: Any) -> dict[str, Any]:
        """Writes the summary, and returns it."""
        returns = [float(row["eval_return_mean"]) for row in self._directory.rows()]
        returns = [value for value in returns if not np.isnan(value)]  # rows without an evaluation
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
