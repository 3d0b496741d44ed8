"""A run: a config and a directory in, progress and a checkpoint out, resumable at any time; or several side by side."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from paramnoise.loops.host import HostLoop
from paramnoise.runs import checkpoint
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.display import Bar, StopFlag, bar, describe, stop_on_signals
from paramnoise.runs.files import CHECKPOINT_SECONDS, RunFiles
from paramnoise.runs.lock import only_writer
from paramnoise.runs.loop import make_loop
from paramnoise.runs.training import Watcher, train
from paramnoise.validation import UsageError, require, require_extra

BAR_EVERY = 100
"""Steps between moves of the progress bar."""


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
    """Trains several seeds of one config, of an agent that learns from replay, side by side; otherwise as `run`.

    Each has its run directory, with which it can go on alone, too; together they go on from one step. `watcher` hears
    of the rows of all of them.
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
        if len({checkpoint.saved_step(directory.checkpoint) for directory in directories}) > 1:
            raise UsageError(f"runs side by side are at different steps: go on with each alone ({paths[0]})")
        files = [
            RunFiles(loop, member, own, directory, checkpoint_seconds, tensorboard)
            for member, (own, directory) in enumerate(zip(configs, directories, strict=True))
        ]
        for each in files:
            each.begin()
        on_start(loop)
        watching = stack.enter_context(_terminal(config) if watcher is None else contextlib.nullcontext(watcher))
        return train(loop, files, config, watching)


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
