"""What several figures come to together: how every exploration stands, learner by learner, in one table.

A score is a return on its task's fixed scale, or as it is where a task has none; what is put together has one scale.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paramnoise.envs.base import return_bounds
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_summary import Comparison, compare, estimate_text, improvements
from paramnoise.figures.statistics import CONFIDENCE, Estimate, estimate_interquartile_mean, normalise
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text

SUBJECT = "parameter"
"""The exploration that is held against each other one."""
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
    """Tasks of the group that have results."""
    of: int
    """Tasks of the group."""
    seeds: int
    """The fewest seeds that a task has."""
    step: int
    """The least step at which a task is compared."""
    iqm: float
    """The interquartile mean of the runs of all tasks together."""
    low: float
    high: float
    better: float
    """The probability that a run with parameter noise scores above one of this exploration; NaN for parameter noise."""
    better_low: float
    better_high: float

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
    compared = compare(points)
    return [
        _standing(figure, group, agents[name], name, {env: compared[env] for env in group.tasks if env in compared})
        for group in groups
        for name in agents
        if any(env in compared and name in compared[env].scores for env in group.tasks)
    ]


def _standing(figure: str, group: Group, agent: str, name: str, compared: dict[str, Comparison]) -> Standing:
    own = {env: task for env, task in compared.items() if name in task.scores}
    score = estimate_interquartile_mean([_scaled(env, task.scores[name]) for env, task in own.items()])
    chance = improvements(own, SUBJECT).get(name, NO_ESTIMATE)
    seeds, step = min(len(task.scores[name]) for task in own.values()), min(task.step for task in own.values())
    return Standing(figure, group.name, agent, name, len(own), len(group.tasks), seeds, step, *score, *chance)


def _scaled(env: str, scores: np.ndarray) -> np.ndarray:
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
    "seeds, steps",
)
"""Of the table for people."""


def cells(row: Standing, learner: str) -> tuple[str, ...]:
    """A row of the table for people."""
    part = f" ({row.tasks} of {row.of} run)" if row.tasks < row.of else ""
    chance = "" if math.isnan(row.better) else estimate_text(row.chance, ".2f")
    digits = ".2f" if abs(row.iqm) < 10 else ""
    return (
        learner,
        f"{row.group}{part}",
        row.exploration,
        estimate_text(row.score, digits),
        chance,
        f"{row.seeds}, {row.step:,}",
    )
