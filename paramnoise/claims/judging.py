"""What rules share: the scores that they look at, how shares become verdicts, and how rules and evidence are worded."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from paramnoise.claims.base import Verdict
from paramnoise.envs.base import env_label
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_summary import compare
from paramnoise.figures.statistics import Estimate

Scores = dict[str, dict[str, np.ndarray]]
"""By task and method, a score per seed."""


def final_scores(points: Iterable[Point]) -> Scores:
    """The scores at the last step that all runs of a task have; a task whose runs have no step in common has none."""
    return {env: task.scores for env, task in compare(points).items()}


def pairs(scores: Scores, subject: str, other: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By task, the scores of both where both have two seeds or more: with one there is no interval."""
    both = {env: (own[subject], own[other]) for env, own in scores.items() if {subject, other} <= own.keys()}
    return {env: pair for env, pair in both.items() if min(map(len, pair)) > 1}


def by_share(value: float, reproduced: float, partly: float) -> Verdict:
    """The verdict of a number that should be large, by the least that means each verdict."""
    if value >= reproduced:
        return Verdict.REPRODUCED
    return Verdict.PARTLY if value >= partly else Verdict.NOT_REPRODUCED


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def tasks_text(tasks: Sequence[str]) -> str:
    """Tasks in a sentence: by name, or as a number of them."""
    labels = [env_label(env) for env in tasks]
    if not labels:
        return "every task of the figure"
    return listed(labels) if len(labels) <= 3 else f"{len(labels)} tasks ({labels[0]} to {labels[-1]})"


def levels_text(tasks: Sequence[str], solved: Mapping[str, float]) -> str:
    """The returns that count as solved, in a sentence."""
    return listed([f"{solved[env]:g} on {env_label(env)}" for env in tasks])


def estimate_text(estimate: Estimate) -> str:
    """A number with its interval."""
    value, low, high = (f"{number:.2f}" for number in estimate)
    return f"{value} ({low} to {high})"
