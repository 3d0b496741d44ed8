"""Runs of the Atari figure: ordinary run directories, and the groups in which they are trained.

A group is one game and one method, with its seeds side by side in one process.
"""

import json
import math
import statistics
import zipfile
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from paramnoise.figures.atari_results import Score
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_runs import CurveRun, result_of
from paramnoise.figures.pieces import Reporter
from paramnoise.parallel.sweep import Line
from paramnoise.runs.checkpoint import INDEX
from paramnoise.runs.config import RunConfig
from paramnoise.runs.files import CHECKPOINT_SECONDS
from paramnoise.runs.run import run_together
from paramnoise.validation import UsageError

LARGE_CHECKPOINT_SECONDS = 600.0
"""The age of a checkpoint at which the next one is due, where it holds replay."""


class AtariRun(CurveRun):
    """One run of the figure."""

    def curve(self) -> list[Point]:
        """The mean score of the games that the exploring policy ended since the point before; NaN where none ended."""
        config = self.config
        return [
            Point(config.env, config.algorithm, self.exploration, config.seed, step, float(row["train_return_mean"]))
            for step, row in self.rows_every(config.log_every, config.eval_every)
        ]

    def scores(self) -> list[Score]:
        """The noise-free evaluations so far, up to the steps asked for."""
        config = self.config
        scores = [
            Score(
                config.env,
                self.exploration,
                config.seed,
                step,
                config.eval_episodes,
                float(row["eval_return_mean"]),
                float(row["eval_return_median"]),
            )
            for step, row in self.rows_every(config.eval_every)
        ]
        return [score for score in scores if not math.isnan(score.mean)]

    def saved_with(self) -> tuple[int, ...]:
        """The seeds that the checkpoint on disk was trained with, its own among them; none if it cannot be read."""
        try:
            index = json.loads((self.directory.checkpoint / INDEX).read_text())
            with np.load(self.directory.checkpoint / index["file"], allow_pickle=False) as arrays:
                return tuple(arrays["own/seeds"].tolist())
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return ()  # training says what is wrong with it


class AtariGroup(NamedTuple):
    """Seeds of one game and one method, which differ in nothing else."""

    runs: tuple[AtariRun, ...]

    @property
    def name(self) -> str:
        """The group in a line of progress."""
        seeds = [str(each.config.seed) for each in self.runs]
        first = self.runs[0]
        return f"{first.config.env}/{first.method} (seed{'s' * (len(seeds) > 1)} {', '.join(seeds)})"

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
        """The summaries of its seeds in one: the median score, the least steps; None if a seed has none."""
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
        """The median score of its seeds, in words."""
        return result_of(self.summary() or {})

    def stopped_after(self) -> int:
        """The steps of the checkpoints that its seeds were stopped with."""
        return (self.summary() or {}).get("steps", 0)

    def train(self, line: Line) -> bool:
        """Begins the group or goes on with it; returns whether it came to the end."""
        summaries = run_together(
            [each.config for each in self.runs],
            [each.directory.path for each in self.runs],
            resume=self.runs[0].directory.exists(),
            checkpoint_seconds=LARGE_CHECKPOINT_SECONDS if self.config.save_replay else CHECKPOINT_SECONDS,
            watcher=Reporter(line, len(self.runs)),
        )
        return all(summary["status"] == "finished" for summary in summaries)

    def unfinished(self) -> list["AtariGroup"]:
        """What is left of it, in groups that can go on.

        Seeds that were trained side by side go on together, be it that a kill left some of them finished.

        Raises:
            UsageError: if some of these seeds were not asked for.
        """
        by_seed = {each.config.seed: each for each in self.runs}
        together = {seed: seeds for each in self.runs for seeds in [each.saved_with()] for seed in seeds}
        parts: dict[tuple[int, ...] | bool, list[AtariRun]] = {}
        for seed, each in by_seed.items():
            if each.is_finished():
                continue
            if seed not in together or not each.directory.exists():
                parts.setdefault(each.directory.exists(), []).append(each)
                continue
            seeds = together[seed]
            if max(seeds) not in by_seed:
                raise UsageError(
                    f"{each.directory.path} goes on only together with seeds {', '.join(map(str, seeds))}: "
                    f"give --seeds {max(seeds) + 1} or more"
                )
            parts[seeds] = [by_seed[other] for other in seeds]
        return [AtariGroup(tuple(runs)) for runs in parts.values()]


def in_order(groups: Iterable[AtariGroup]) -> list[AtariGroup]:
    """What is left of the groups: what was begun first, so that a sweep which is stopped and called again ends some."""
    parts = [part for group in groups for part in group.unfinished()]
    return sorted(parts, key=lambda part: part.steps_done() == 0)
