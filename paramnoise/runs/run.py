"""A run: a config and a directory in, progress and a checkpoint out, resumable at any time; or several side by side."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from paramnoise.envs import EnvLike, env_source
from paramnoise.envs.atari import is_atari
from paramnoise.loops.evaluation import EndedEpisode
from paramnoise.loops.host import HostLoop
from paramnoise.parallel.process import cores, use_compilation_cache, use_one_thread
from paramnoise.runs import checkpoint
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.display import Bar, StopFlag, bar, describe, stop_on_signals
from paramnoise.runs.lock import only_writer
from paramnoise.runs.tensorboard import TensorBoardLog
from paramnoise.validation import RunError, UsageError, one_line, raised_by, require, require_extra, system_error

BAR_EVERY = 100
"""Steps between moves of the progress bar."""

CHECKPOINT_SECONDS = 60.0
"""The age of a checkpoint at which the next one is due: with a replay of 100,000 one is tens of megabytes."""


class Watcher(Protocol):
    """Who follows a run: it hears of steps and evaluations, and may ask the run to stop."""

    def on_step(self, step: int) -> None:
        """So many environment steps are done."""

    def on_row(self, row: dict[str, float]) -> None:
        """A row of progress is complete, and kept on disk if there is a run directory."""

    def should_stop(self) -> bool:
        """Whether the run should save a checkpoint and end here."""

    @property
    def signal(self) -> int | None:
        """The signal that asked the run to stop."""


LARGE_PRODUCT = 2**23
"""Multiplications of a layer's product, units x units x batch, from which XLA may have all threads: 256-256 with
batches of 256 is above it, 64-64 with batches of 128 below."""


def set_up_process(config: RunConfig, env: EnvLike) -> None:
    """Keeps compiled programs for the next process, and gives XLA one thread where networks are small or cores few.

    Both only where JAX was not told otherwise; the second only if JAX has not computed anything yet.
    """
    use_compilation_cache()
    shape = getattr(getattr(env, "observation_space", None), "shape", None) or ()
    is_small = not (is_atari(config.env) or len(shape) == 3 or _has_large_products(config))
    if config.made_by.experience == "returns" or is_small or cores() == 1:
        use_one_thread()  # workers are how a population uses more cores; and threads that share one core wait in turn


def _has_large_products(config: RunConfig) -> bool:
    """Whether a train step from replay multiplies matrices that are worth more than one thread."""
    units, batch = max(getattr(config.agent, "hidden_sizes", ()), default=0), getattr(config.agent, "batch_size", 0)
    return config.made_by.experience == "replay" and units * units * batch >= LARGE_PRODUCT


def fitting_here(config: RunConfig) -> RunConfig:
    """A stored config as this machine can go on with it: on one device, if it has fewer than the run was on."""
    if config.devices == 1 or config.devices <= len(jax.local_devices()):
        return config
    return dataclasses.replace(config, devices=1)


def make_loop(configs: Sequence[RunConfig], env: EnvLike) -> HostLoop:
    """The loop of configs that differ in their seeds alone, for an environment, before its first step."""
    config = configs[0]
    source = env_source(env, config.env_kwargs if isinstance(env, str) else None)
    num_envs = source.num_envs or config.num_envs
    if config.num_envs not in (1, num_envs):
        raise UsageError(f"num_envs is {config.num_envs}, but the vector environment {config.env} has {num_envs}")
    learner = config.made_by.build(config.agent, config.env, source.observation_space, source.action_space)
    return HostLoop(
        learner,
        config.exploration,
        source,
        seeds=[each.seed for each in configs],
        num_envs=num_envs,
        eval_max_steps=config.eval_max_steps,
        log_every=config.log_every,
        overlap=config.overlap,
        terminal_time_limits=config.terminal_time_limits,
        replay_on=config.replay_on,
        save_replay=config.save_replay,
        devices=config.devices,
    )


def save_loop(loop: HostLoop, directory: Path, facts: dict[str, Any]) -> None:
    """Writes a checkpoint of a loop of one seed, unless its parameters are not finite: then the one before is kept."""
    stage_loop(loop, 0, directory, facts)()


def stage_loop(loop: HostLoop, member: int, directory: Path, facts: dict[str, Any]) -> Callable[[], None]:
    """Writes a checkpoint of one of the seeds beside the one before; the function returned puts it in its place."""
    check_finite(loop, member)
    state, own = loop.snapshot(member)
    return checkpoint.stage(directory, state, own, {"step": loop.step, **facts})


def load_loop(loop: HostLoop, directory: Path, member: int = 0) -> dict[str, Any]:
    """Brings one of the seeds of a fresh loop of the same config to its checkpoint; returns the checkpoint's facts.

    Of a checkpoint without experience (`holds_experience` is false) the loop knows what was learned, and cannot go on.
    """
    template = loop.state(member)
    if not checkpoint.facts(directory).get("holds_experience", True):
        state, _, facts = checkpoint.load(directory, template._replace(experience=()))
        loop.restore_learned(state, member)
        return facts
    state, own, facts = checkpoint.load(directory, template)
    try:
        loop.restore(state, own, member)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UsageError):
            raise
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UsageError(f"checkpoint {directory} does not fit its config: {reason}") from error
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
    with contextlib.ExitStack() as stack:
        stack.callback(loop.close)
        for directory, own in zip(directories, configs, strict=True):
            directory.check(own, resume)
        for directory in directories:
            stack.enter_context(only_writer(directory.path))
        files = [
            RunFiles(loop, member, own, directory, checkpoint_seconds, tensorboard)
            for member, (own, directory) in enumerate(zip(configs, directories, strict=True))
        ]
        if len({each.first_step for each in files}) > 1:
            raise UsageError(
                "runs side by side were saved at different steps and cannot go on: remove them to start over"
            )
        for each in files:
            each.begin()
        on_start(loop)
        watching = stack.enter_context(_terminal(config) if watcher is None else contextlib.nullcontext(watcher))
        return train(loop, files, config, watching)


def train(
    loop: HostLoop,
    files: Sequence["RunFiles"],
    config: RunConfig,
    watcher: Watcher,
    on_episode: Callable[[EndedEpisode], None] | None = None,
) -> list[dict[str, Any]]:
    """Trains a loop to the end that its config says, or until it is asked to stop; returns the files' summaries.

    Args:
        loop: what to train.
        files: where each of its seeds is written down; none: nowhere.
        config: how long to train, and when to evaluate.
        watcher: who follows.
        on_episode: hears of the first seed's episodes of training as they end.

    Raises:
        RunError: if the run cannot go on; the summary then says why, and the last checkpoint is kept.
    """
    clocks = [each.clock for each in files] or [Clock(loop.step) for _ in loop.seeds]
    try:
        rows_of_seeds = loop.run(
            config.steps,
            eval_every=config.eval_every,
            eval_episodes=config.eval_episodes,
            on_step=watcher.on_step,
            on_episode=on_episode,
            should_stop=watcher.should_stop,
        )
        for rows in rows_of_seeds:
            stamped = [clock.stamp(row) for clock, row in zip(clocks, rows, strict=True)]
            with _writing():
                for each, row in zip(files, stamped, strict=bool(files)):
                    each.add(row)
            for row in stamped:
                watcher.on_row(row)
            if files and files[0].is_due():
                _save(files)
        _save(files)
        how: dict[str, Any] = {"status": "finished"}
        if loop.step < config.steps:
            how = {"status": "interrupted", "signal": watcher.signal}
        with _writing():
            return [each.summarise(**how) for each in files]
    except (RunError, jax.errors.JaxRuntimeError) as error:
        failed = error if isinstance(error, RunError) else raised_by("JAX", error)  # such as a device without memory
        if traceback := _fail(files, failed):
            failed = RunError(f"{failed} (traceback: {traceback})")
        if failed is error:
            raise
        raise failed from error
    finally:
        for each in files:
            each.close()


def _save(files: Sequence["RunFiles"]) -> None:
    """Writes a checkpoint of each run; a kill on the way leaves all at the same step, but for an instant."""
    with _writing():
        for commit in [each.stage() for each in files]:
            commit()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Makes an error of the operating system, such as a full disk, the end of the run; not those of callbacks."""
    try:
        yield
    except OSError as error:
        raise RunError(system_error(error)) from error


def _fail(files: Sequence["RunFiles"], error: RunError) -> Path | None:
    """Writes down why a run ended, as far as files can be written; returns where a traceback is, if there is one."""
    traceback = None
    for each in files:
        with contextlib.suppress(OSError, UsageError):
            traceback = each.fail(error) or traceback
    return traceback


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


class Clock:
    """The time that training takes, as rows show it."""

    def __init__(self, step: int, before: float = 0.0):
        """Starts at a step, after so many seconds of training."""
        self._first_step, self._before, self._started = step, before, time.perf_counter()

    def seconds(self) -> float:
        """Seconds of training so far."""
        return self._before + time.perf_counter() - self._started

    def stamp(self, row: dict[str, float]) -> dict[str, float]:
        """A row with the clock's columns."""
        wall_time = self.seconds()
        rate = (row["step"] - self._first_step) / (wall_time - self._before)
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
        if (directory.checkpoint / checkpoint.INDEX).exists():
            facts = (
                load_loop(loop, directory.checkpoint, member) if restores else checkpoint.facts(directory.checkpoint)
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
        state = self._loop.state(self._member)._replace(experience=())
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
