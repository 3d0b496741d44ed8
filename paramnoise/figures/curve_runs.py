"""One run of a figure of learning curves: an ordinary run directory, and what of it is on disk."""

import dataclasses
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from paramnoise.envs import env_source
from paramnoise.envs.base import env_label
from paramnoise.figures.curve_results import Point
from paramnoise.figures.pieces import Reporter
from paramnoise.parallel.sweep import Line
from paramnoise.runs.checkpoint import saved_step
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.run import run


class CurveRun(NamedTuple):
    """One run of a figure."""

    folder: Path
    """The figure's directory."""
    method: str
    """What the figure calls the method."""
    exploration: str
    """What results.csv calls its exploration, with the variant if the figure compares some."""
    config: RunConfig

    @property
    def name(self) -> str:
        """The run in a line of progress, and its directory below the figure's."""
        return f"{env_label(self.config.env)}/{self.method}/seed-{self.config.seed}"

    @property
    def directory(self) -> RunDirectory:
        """Where it is kept."""
        return RunDirectory(self.folder / self.name)

    @property
    def steps(self) -> int:
        """The steps asked for."""
        return self.config.steps

    def is_finished(self) -> bool:
        """Whether what is on disk covers the steps asked for."""
        if not self.directory.exists() or (summary := self.directory.summary()) is None:
            return False
        return summary["status"] != "failed" and summary["steps"] >= self.config.steps

    def result(self) -> str:
        """The return of the last evaluation, in words."""
        return result_of(self.directory.summary() or {})

    def stopped_after(self) -> int:
        """The steps of the checkpoint that it was stopped with."""
        return (self.directory.summary() or {}).get("steps", 0)

    def check(self) -> None:
        """Raises UsageError if the directory holds what this run cannot go on with."""
        held = self.directory
        longer = dataclasses.replace(self.config, steps=held.config().steps) if held.exists() else self.config
        held.check(longer if self.is_finished() else self.config, resume=held.exists())

    def curve(self) -> list[Point]:
        """The evaluations so far, up to the steps asked for."""
        config = self.config
        agent = (config.env, config.algorithm, self.exploration, config.seed)
        rows = self.rows_every(config.eval_every)
        return [Point(*agent, step, float(row["eval_return_mean"])) for step, row in rows]

    def rows_every(self, *intervals: int | None) -> list[tuple[int, dict[str, str]]]:
        """The steps and rows of progress, up to the steps asked for, that every run of this config has.

        A shorter run that was gone on with has one more row, at its first end.
        """
        kept, before = [], 0
        for row in self.directory.rows():
            step = int(row["step"])
            if before >= self.config.steps:
                break
            if step >= self.config.steps or any(every and step // every > before // every for every in intervals):
                kept.append((step, row))
            before = step
        return kept

    def steps_done(self) -> int:
        """The steps up to the last row on disk."""
        rows = self.directory.rows()
        return min(int(rows[-1]["step"]), self.config.steps) if rows else 0

    def saved_at(self) -> int | None:
        """The step of its checkpoint, 0 where it has none; None where it has not begun."""
        return saved_step(self.directory.checkpoint) if self.directory.exists() else None

    def train(self, line: Line) -> bool:
        """Begins the run or goes on with it; returns whether it came to the end."""
        directory = self.directory
        summary = run(self.config, directory.path, resume=directory.exists(), watcher=Reporter(line))
        return summary["status"] == "finished"


def result_of(summary: dict[str, Any]) -> str:
    """A run's summary in words."""
    return f"return {summary['final_eval_return_mean']:.1f} after {summary['steps']:,} steps"


def in_order(runs: Iterable[CurveRun]) -> list[CurveRun]:
    """Runs that were begun, so that a sweep which is stopped and called again ends some; then the longest first."""
    return sorted(runs, key=lambda each: (each.steps_done() == 0, each.steps_done() - each.config.steps))


def check_envs(runs: Iterable[CurveRun]) -> None:
    """Raises UsageError if an environment cannot be made, or its actions do not fit, before anything runs."""
    for config in {(each.config.env, each.config.algorithm): each.config for each in runs}.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium warns of every version but the newest
            source = env_source(config.env, config.env_kwargs)
        config.made_by.build(config.agent, config.env, source.observation_space, source.action_space)
