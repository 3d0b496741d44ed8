"""The runs of a figure's directory as points: one form for every kind of results, in which rules look at them.

`exploration` of a point is the method. A directory without the file has no points.
"""

import math
from pathlib import Path

from paramnoise.figures import atari_results, chain_results, curve_results
from paramnoise.figures.atari_figure import SCORES
from paramnoise.figures.base import RESULTS
from paramnoise.figures.chain_figure import CHAIN
from paramnoise.figures.curve_distances import DISTANCES, read_distances
from paramnoise.figures.curve_results import Point


def curves(directory: Path) -> list[Point]:
    """Learning curves: noise-free returns."""
    path = directory / RESULTS
    return curve_results.read_results(path) if path.exists() else []


def agents(directory: Path) -> list[Point]:
    """Learning curves of a figure that compares agents: the method is the agent."""
    return [point._replace(exploration=point.algorithm) for point in curves(directory)]


def chains(directory: Path) -> list[Point]:
    """One point for each run of the chain: minus the episodes until solved, minus infinity if it was not.

    Its step is the budget of episodes. A solved run needs no more than it had: those that were not solved say what the
    budget was.
    """
    path = directory / RESULTS
    outcomes = chain_results.read_results(path) if path.exists() else []
    budget = min((each.episodes for each in outcomes if not each.solved), default=CHAIN.scales["paper"].episodes)
    return [
        Point(
            chain(each.length),
            each.algorithm,
            each.exploration,
            each.seed,
            budget,
            -float(each.episodes) if each.solved else -math.inf,
        )
        for each in outcomes
    ]


def chain(length: int) -> str:
    """A chain as a task."""
    return f"Chain-{length}"


def exploring_scores(directory: Path) -> list[Point]:
    """Scores of the exploring policy on Atari games; a run's last one counts where no game ended."""
    return atari_results.carried(curves(directory))


def noise_free_scores(directory: Path) -> list[Point]:
    """The median game of each noise-free evaluation on Atari games."""
    scores = atari_results.read_scores(directory / SCORES)
    return [Point(each.env, "dqn", each.exploration, each.seed, each.step, each.median) for each in scores]


def relative_distances(directory: Path) -> list[Point]:
    """The distance between perturbed and clean policy, in units of its threshold delta."""
    distances = read_distances(directory / DISTANCES)
    return [Point(*each[:5], each.distance / each.delta) for each in distances]
