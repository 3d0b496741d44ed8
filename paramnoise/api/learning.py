"""One call of `learn`: its loop, the run directory that may keep it, and what follows it."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

from paramnoise.callbacks import Followers
from paramnoise.loops.host import HostLoop
from paramnoise.runs import checkpoint
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.display import Bar, StopFlag, bar, describe, interrupt_when_clean
from paramnoise.runs.files import RunFiles
from paramnoise.runs.lock import only_writer
from paramnoise.runs.training import train
from paramnoise.validation import UsageError, require_extra


def learn_on(
    loop: HostLoop,
    config: RunConfig,
    history: list[dict[str, float]],
    followers: Followers,
    log_dir: Path | None,
    tensorboard: bool,
    progress: bool,
) -> None:
    """Trains a loop on to the end that the config says.

    Args:
        loop: what to train.
        config: with the steps in all.
        history: gets the rows of progress.
        followers: hear of steps, episodes and evaluations, and may stop it.
        log_dir: a run directory that is new, or this loop's own; None: nothing is written.
        tensorboard: whether to write event files to it too.
        progress: whether to show a bar and a line for every evaluation.

    Raises:
        KeyboardInterrupt: after Ctrl-C, at the next step: loop and files are whole, and go on from there.
    """
    with (
        interrupt_when_clean() as stop,
        _logged(loop, config, log_dir, tensorboard) as files,
        bar(config.steps, f"{config.algorithm} {config.env}", "steps", show=progress) as shown,
    ):
        watcher = _Learning(history, followers, shown if progress else None, _seconds_before(history, files), stop)
        train(loop, files, config, watcher, followers.on_episode_end)


@contextlib.contextmanager
def _logged(loop: HostLoop, config: RunConfig, path: Path | None, tensorboard: bool) -> Iterator[list[RunFiles]]:
    """The files of a run directory that is new, or this loop's own, and is held meanwhile; without a path, none."""
    if path is None:
        yield []
        return
    if tensorboard:
        require_extra("tensorboardX", "tensorboard", "TensorBoard logs")
    config.to_json()  # refuses what could not be loaded, before anything is written
    directory = RunDirectory(path)
    holds_run = directory.exists()
    planned = max(config.steps, directory.config().steps) if holds_run else config.steps
    directory.check(dataclasses.replace(config, steps=planned), resume=holds_run)
    at = checkpoint.facts(directory.checkpoint)["step"] if checkpoint.is_in(directory.checkpoint) else 0
    if holds_run and at != loop.step:
        raise UsageError(
            f"{path} holds a run at step {at:,}, and this agent is at step {loop.step:,}: choose another log_dir, "
            f"or go on with the run itself, pn.load({str(path)!r})"
        )
    with only_writer(path):
        files = RunFiles(loop, 0, config, directory, tensorboard=tensorboard, restores=False)
        files.begin()
        yield [files]


def _seconds_before(history: list[dict[str, float]], files: list[RunFiles]) -> float:
    """Seconds of earlier calls of `learn` that the clock of this one does not count."""
    counts = bool(files) and files[0].clock.before > 0  # as that of a directory which is gone on with does
    return history[-1]["wall_time"] if history and not counts else 0.0


class _Learning:
    """Follows one call of `learn` for the agent's history, for its callbacks and for people."""

    def __init__(
        self, history: list[dict[str, float]], followers: Followers, shown: Bar | None, before: float, stop: StopFlag
    ):
        self._history, self._followers, self._shown, self._before = history, followers, shown, before
        self._stop = stop

    def on_step(self, step: int) -> None:
        if self._shown is not None:
            self._shown.advance_to(step)
        self._followers.on_step(step)

    def on_row(self, row: dict[str, float]) -> None:
        row = {**row, "wall_time": row["wall_time"] + self._before}
        self._history.append(row)
        if self._shown is not None:
            self._shown.line(describe(row))
        if not math.isnan(row["eval_return_mean"]):
            self._followers.on_evaluation(row)

    def should_stop(self) -> bool:
        return bool(self._stop) or self._followers.wants_to_stop

    @property
    def signal(self) -> int | None:
        return self._stop.signal
