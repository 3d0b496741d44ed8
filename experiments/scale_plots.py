"""The plots of docs/scale.md, drawn from results.csv alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scale_cells import LABELS, ONE_ENVIRONMENT, SIZES
from scale_results import Outcome

from paramnoise.figures.base import Method
from paramnoise.figures.curve_results import Point
from paramnoise.figures.plots import Solved, plot_learning_curves, plot_until_solved

TITLES = {"deepsea": "DeepSea", "chain": "chain", "shuffled": "DeepSea, shuffled actions"}
MEASURES = {"solved_steps": "environment steps until solved", "solved_seconds": "seconds until solved (all seeds)"}
CURVES = {
    "minatar": ("pqn", "dqn"),
    "brax": ("td3", "ppo"),
}
"""The agents of the parts that are drawn as learning curves."""
EXPLORERS = {"parameter": "parameter noise", "epsilon-greedy": "epsilon-greedy", "gaussian": "Gaussian", "none": "none"}


class Lines(NamedTuple):
    """The methods of a plot of learning curves."""

    methods: Sequence[Method]
    steps_per_epoch: int = 1_000_000


def draw(results: Sequence[Outcome], folder: Path) -> list[Path]:
    """Draws what there are results of; returns the pictures."""
    drawn = []
    panels = {
        (TITLES[part], label): _solved(part, measure, results)
        for part in SIZES
        if any(outcome.part == part for outcome in results)
        for measure, label in MEASURES.items()
    }
    if panels:
        plot_until_solved(panels, folder / "scale.png")
        drawn.append(folder / "scale.png")
    for part, agents in CURVES.items():
        own = [outcome for outcome in results if outcome.part == part]
        if own:
            plot_learning_curves(_lines(agents), _points(own), folder / f"{part}.png", x_label="million steps")
            drawn.append(folder / f"{part}.png")
    return drawn


def _solved(part: str, measure: str, results: Sequence[Outcome]) -> list[Solved]:
    lines = []
    for explorer, label in LABELS.items():
        own = [outcome for outcome in results if (outcome.part, outcome.explorer) == (part, explorer)]
        exploration = "parameter" if explorer.startswith("policies") or explorer == ONE_ENVIRONMENT else explorer
        seeds: dict[int, list[float]] = {}
        for outcome in own:
            value = getattr(outcome, measure)
            seeds.setdefault(outcome.size or 0, []).append(float("inf") if value is None else value)
        lines.append(Solved(Method("dqn", exploration, label), seeds))
    return lines


def _lines(agents: Sequence[str]) -> Lines:
    methods = [
        Method(agent, explorer, f"{agent.upper()}, {label}", variant=agent)
        for agent in agents
        for explorer, label in EXPLORERS.items()
    ]
    return Lines(methods)


def _points(results: Sequence[Outcome]) -> list[Point]:
    """The evaluations of each seed, which are equally far apart."""
    points = []
    for outcome in results:
        values = [float(value) for value in outcome.returns.split()]
        for place, value in enumerate(values, start=1):
            step, name = outcome.steps * place // len(values), f"{outcome.explorer}-{outcome.algorithm}"
            points.append(Point(outcome.task, outcome.algorithm, name, outcome.seed, step, value))
    return points
