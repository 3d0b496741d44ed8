"""What several figures come to together: how every exploration stands, learner by learner, in one table.

A run's score is the mean of its last evaluations, on its task's fixed scale, or as it is where a task has none; what is
put together has one scale. Only whole runs have a score: one that stopped or failed takes nothing from the others.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paramnoise.envs.base import return_bounds
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_summary import Comparison, estimate_text, improvements, runs_by_task
from paramnoise.figures.statistics import (
    CONFIDENCE,
    Estimate,
    estimate_interquartile_mean,
    holm,
    normalise,
    permutation_p,
)
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text

SUBJECT = "parameter"
"""The exploration that is held against each other one."""
LAST = 5
"""Evaluations at the end of a run whose mean is its score; what has fewer is scored by all."""
SEEDS, LEVEL = 5, 0.05
"""A verdict needs so many seeds of both sides on every task of the group, and a p value below the level."""
UNDECIDED = "not told apart"
NO_ESTIMATE = Estimate(math.nan, math.nan, math.nan)


class Group(NamedTuple):
    """Tasks whose scores are put together."""

    name: str
    tasks: tuple[str, ...]


class Standing(NamedTuple):
    """One exploration of one learner on a group of tasks: a row of summary.csv."""

    figure: str
    group: str
    algorithm: str
    exploration: str
    tasks: int
    """Tasks of the group that have whole runs."""
    of: int
    """Tasks of the group."""
    seeds: int
    """The fewest seeds that a task has."""
    step: int
    """The least of the tasks' last steps."""
    iqm: float
    """The interquartile mean of the runs of all tasks together."""
    low: float
    high: float
    better: float
    """The probability that a run with parameter noise scores above one of this exploration; NaN for parameter noise."""
    better_low: float
    better_high: float
    p: float
    """That of a permutation test of the two, after Holm for all explorations of the learner on the group; NaN where
    there can be no verdict yet."""

    @property
    def scope(self) -> str:
        """The group, and how many of its tasks have runs if not all have."""
        return f"{self.group} ({self.tasks} of {self.of} run)" if self.tasks < self.of else self.group

    @property
    def verdict(self) -> str:
        """Which of the two is better; empty where there can be no verdict yet."""
        if math.isnan(self.p):
            return ""
        if self.p >= LEVEL:
            return UNDECIDED
        return SUBJECT if self.better > 0.5 else self.exploration

    @property
    def score(self) -> Estimate:
        """The interquartile mean with its interval."""
        return Estimate(self.iqm, self.low, self.high)

    @property
    def chance(self) -> Estimate:
        """The probability that parameter noise is better, with its interval."""
        return Estimate(self.better, self.better_low, self.better_high)


def standings(figure: str, points: Iterable[Point], groups: Sequence[Group]) -> list[Standing]:
    """How each exploration of a figure stands on each group that has results."""
    points = list(points)
    agents = {point.exploration: point.algorithm for point in points}
    scored = scores_of_whole_runs(points)
    found = []
    for group in groups:
        tasks = {env: scored[env] for env in group.tasks if env in scored}
        p_values = _p_values(group, tasks)
        found += [
            _standing(figure, group, agents[name], name, tasks, p_values.get(name, math.nan))
            for name in agents
            if any(name in task.scores for task in tasks.values())
        ]
    return found


def scores_of_whole_runs(points: Iterable[Point]) -> dict[str, Comparison]:
    """By task and exploration, a score for each run that reached the last step that any of the task has."""
    compared = {}
    for env, runs in runs_by_task(points).items():
        end = max(step for curve in runs.values() for step in curve)
        scores: dict[str, list[float]] = {}
        for (exploration, _), curve in runs.items():
            if end in curve:
                scores.setdefault(exploration, []).append(mean_of_last(curve))
        compared[env] = Comparison(end, end, {name: np.array(values) for name, values in scores.items()})
    return compared


def mean_of_last(curve: Mapping[int, float], last: int = LAST) -> float:
    """The score of a run: the mean of its last values, which are given by step."""
    return float(np.mean([curve[step] for step in sorted(curve)[-last:]]))


def _p_values(group: Group, tasks: dict[str, Comparison]) -> dict[str, float]:
    """Of each exploration that can be held against parameter noise on all tasks of a group."""
    enough = [{name for name, scores in task.scores.items() if len(scores) >= SEEDS} for task in tasks.values()]
    names = set.intersection(*enough) if len(tasks) == len(group.tasks) else set()
    others = sorted(names - {SUBJECT}) if SUBJECT in names else []
    ours = [task.scores[SUBJECT] for task in tasks.values()] if others else []
    found = [permutation_p(ours, [task.scores[name] for task in tasks.values()]) for name in others]
    return dict(zip(others, holm(found), strict=True))


def _standing(
    figure: str, group: Group, agent: str, name: str, compared: dict[str, Comparison], p_value: float
) -> Standing:
    own = {env: task for env, task in compared.items() if name in task.scores}
    score = estimate_interquartile_mean([scaled(env, task.scores[name]) for env, task in own.items()])
    chance = improvements(own, SUBJECT).get(name, NO_ESTIMATE)
    seeds, step = min(len(task.scores[name]) for task in own.values()), min(task.step for task in own.values())
    return Standing(figure, group.name, agent, name, len(own), len(group.tasks), seeds, step, *score, *chance, p_value)


def scaled(env: str, scores: np.ndarray) -> np.ndarray:
    """Scores on the fixed scale of their task, as they are where it has none."""
    bounds = return_bounds(env)
    return scores if bounds is None else normalise(scores, bounds.low, bounds.high)


def write_standings(rows: Iterable[Standing], path: Path) -> None:
    """Writes summary.csv; what there is not is left empty."""
    found = (
        {name: "" if isinstance(value, float) and math.isnan(value) else value for name, value in row._asdict().items()}
        for row in rows
    )
    text = csv_text(Standing._fields, found)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode()))


HEADER = (
    "learner",
    "tasks",
    "exploration",
    f"IQM ({CONFIDENCE:.0%} interval)",
    "P(parameter noise is better)",
    f"better, if p < {LEVEL}",
    "seeds, steps",
)
"""Of the table for people."""


def cells(row: Standing, learner: str) -> tuple[str, ...]:
    """A row of the table for people."""
    chance = "" if math.isnan(row.better) else estimate_text(row.chance, ".2f")
    digits = ".2f" if abs(row.iqm) < 10 else ""
    return (
        learner,
        row.scope,
        row.exploration,
        estimate_text(row.score, digits),
        chance,
        f"{row.verdict} (p {'< 0.001' if row.p < 0.001 else f'= {row.p:.3f}'})" if row.verdict else "",
        f"{row.seeds}, {row.step:,}",
    )
