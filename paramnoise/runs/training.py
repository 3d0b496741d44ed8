"""Training a loop to its end, or until it is asked to stop: who follows, when checkpoints are due, how it may fail."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax

from paramnoise.loops.evaluation import EndedEpisode
from paramnoise.loops.host import HostLoop
from paramnoise.runs.config import RunConfig
from paramnoise.runs.files import Clock, RunFiles
from paramnoise.validation import RunError, UsageError, raised_by, system_error


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


def train(
    loop: HostLoop,
    files: Sequence[RunFiles],
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


def _save(files: Sequence[RunFiles]) -> None:
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


def _fail(files: Sequence[RunFiles], error: RunError) -> Path | None:
    """Writes down why a run ended, as far as files can be written; returns where a traceback is, if there is one."""
    traceback = None
    for each in files:
        with contextlib.suppress(OSError, UsageError):
            traceback = each.fail(error) or traceback
    return traceback
