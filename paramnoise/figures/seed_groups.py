"""Groups of a figure's runs: one task and one method, with its seeds side by side in one process and one program."""

import statistics
from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from paramnoise.envs.base import env_label
from paramnoise.figures.curve_runs import CurveRun, result_of
from paramnoise.figures.pieces import Reporter
from paramnoise.parallel.sweep import Line
from paramnoise.runs.config import RunConfig
from paramnoise.runs.files import CHECKPOINT_SECONDS
from paramnoise.runs.machine import set_up_process
from paramnoise.runs.run import run_together

Run = TypeVar("Run", bound=CurveRun)


class SeedGroup(NamedTuple, Generic[Run]):
    """Seeds of one task and one method, which differ in nothing else."""

    runs: tuple[Run, ...]
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    """The age of a checkpoint at which the next one is due."""

    @property
    def name(self) -> str:
        """The group in a line of progress."""
        seeds = [str(each.config.seed) for each in self.runs]
        first = self.runs[0]
        return f"{env_label(first.config.env)}/{first.method} (seed{'s' * (len(seeds) > 1)} {', '.join(seeds)})"

    @property
    def steps(self) -> int:
        """The steps asked for, of each seed."""
        return self.config.steps

    @property
    def config(self) -> RunConfig:
        """The config of its first seed."""
        return self.runs[0].config

    def steps_done(self) -> int:
        """The steps that all its seeds have rows of."""
        return min(each.steps_done() for each in self.runs)

    def summary(self) -> dict[str, Any] | None:
        """The summaries of its seeds in one: the median return, the least steps; None if a seed has none."""
        found = [each.directory.summary() for each in self.runs]
        summaries = [summary for summary in found if summary is not None]
        if len(summaries) < len(found):
            return None
        finals: list[Any] = [summary.get("final_eval_return_mean") for summary in summaries]
        return {
            "steps": min(summary["steps"] for summary in summaries),
            "final_eval_return_mean": None if None in finals else statistics.median(finals),
        }

    def result(self) -> str:
        """The median return of its seeds, in words."""
        return result_of(self.summary() or {})

    def stopped_after(self) -> int:
        """The steps of the checkpoints that its seeds were stopped with."""
        return (self.summary() or {}).get("steps", 0)

    def train(self, line: Line) -> bool:
        """Begins the group or goes on with it; returns whether it came to the end."""
        set_up_process(self.config, self.config.env)
        summaries = run_together(
            [each.config for each in self.runs],
            [each.directory.path for each in self.runs],
            resume=self.runs[0].directory.exists(),
            checkpoint_seconds=self.checkpoint_seconds,
            watcher=Reporter(line, len(self.runs)),
        )
        return all(summary["status"] == "finished" for summary in summaries)

    def unfinished(self) -> list["SeedGroup[Run]"]:
        """What is left of it, in groups that can go on: of seeds that are at one step."""
        parts: dict[int | None, list[Run]] = {}
        for each in self.runs:
            if not each.is_finished():
                parts.setdefault(each.saved_at(), []).append(each)
        return [self._replace(runs=tuple(runs)) for runs in parts.values()]


def in_order(groups: Iterable[SeedGroup[Run]]) -> list[SeedGroup[Run]]:
    """What is left of the groups: what was begun first, as of single runs, then the longest."""
    parts = [part for group in groups for part in group.unfinished()]
    return sorted(parts, key=lambda part: (part.steps_done() == 0, part.steps_done() - part.steps))


def by_task_and_method(runs: Iterable[Run]) -> list[SeedGroup[Run]]:
    """The runs in groups: those that learn from replay with all seeds of a task and a method, others alone."""
    groups: dict[Any, list[Run]] = {}
    for each in runs:
        apart = None if each.config.made_by.experience == "replay" else each.config.seed
        groups.setdefault((each.config.env, each.method, apart), []).append(each)
    return [SeedGroup(tuple(group)) for group in groups.values()]
