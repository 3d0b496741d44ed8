"""What the comparison of our learners with their peers comes to: scores, ratios, and the page that shows them.

Only whole runs count: a run that is still on its way is behind, and would be held against others that have ended. A
ratio is a verdict once all runs that were decided on are whole; until then the page says how many are missing.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from learners_runs import NAME, OURS
from learners_settings import AGENTS, LAST, LIBRARIES, TASKS

from paramnoise.figures.base import Method
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_summary import estimate_text, runs_by_task
from paramnoise.figures.standings import mean_of_last, scaled
from paramnoise.figures.statistics import (
    Estimate,
    estimate_interquartile_mean,
    estimate_ratio,
    estimate_ratio_by_task,
    interquartile_mean,
)
from paramnoise.markdown import markdown_table, with_table

ASKED = 0.8
"""What the lower end of a ratio's interval should reach."""


def whole(points: Iterable[Point]) -> list[Point]:
    """The points of whole runs of the seeds that were decided on."""
    points = [point for point in points if point.algorithm in AGENTS]
    ends: dict[tuple[str, str, str, int], int] = {}
    for point in points:
        run = (point.env, point.algorithm, point.exploration, point.seed)
        ends[run] = max(point.step, ends.get(run, 0))
    return [
        point
        for point in points
        if ends[point.env, point.algorithm, point.exploration, point.seed] >= AGENTS[point.algorithm].steps
        and point.seed in decided(point.algorithm, point.exploration)
    ]


def decided(agent: str, side: str) -> range:
    """The seeds of an agent, ours or its peer."""
    first = AGENTS[agent].first_seed if side == OURS else 0
    return range(first, first + AGENTS[agent].seeds)


def scores(points: Iterable[Point], agent: str, side: str) -> dict[str, np.ndarray]:
    """The score of each seed by task: the mean return of a whole run's last evaluations."""
    own = [point for point in whole(points) if (point.algorithm, point.exploration) == (agent, side)]
    runs = runs_by_task(own)
    return {
        env: np.array([mean_of_last(curve, LAST) for _, curve in sorted(runs[env].items())])
        for env in TASKS
        if env in runs
    }


class Ratio(NamedTuple):
    """What is said of an agent and its peer."""

    ours: float
    """The interquartile mean of all runs of all tasks, each between the bounds of its task."""
    theirs: float
    on_the_scale: Estimate
    """The ratio of these two."""
    ratio: Estimate
    """The mean over tasks of the ratio of interquartile means: what the verdict is of."""
    runs: int
    """Whole runs, of both sides."""
    of: int
    """Runs that were decided on."""

    @property
    def verdict(self) -> str:
        """Whether the ratio is what is asked; only all runs together say so."""
        return f"{self.of - self.runs} runs missing" if self.runs < self.of else _yes(self.ratio.low >= ASKED)


def compare(points: Sequence[Point], agent: str) -> Ratio | None:
    """Ours and the peer's over all tasks; None unless both have a whole run of every task."""
    sides = [scores(points, agent, side) for side in (OURS, AGENTS[agent].library)]
    if any(len(side) < len(TASKS) for side in sides):
        return None
    ours, theirs = ([scaled(env, side[env]) for env in TASKS] for side in sides)
    means = [float(interquartile_mean(np.concatenate(side))) for side in (ours, theirs)]
    runs, of = sum(len(task) for side in (ours, theirs) for task in side), 2 * len(TASKS) * AGENTS[agent].seeds
    return Ratio(means[0], means[1], estimate_ratio(ours, theirs), estimate_ratio_by_task(ours, theirs), runs, of)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def lines(points: Sequence[Point]) -> list[str]:
    """A line for people on each agent."""
    found = []
    for agent, compared in AGENTS.items():
        if (result := compare(points, agent)) is None:
            found.append(f"{agent}: not all tasks have a whole run of both sides yet")
            continue
        found.append(
            f"{agent}: interquartile mean {result.ours:.3f}, {compared.library} {result.theirs:.3f}; "
            f"ratio, mean over tasks, {result.ratio.value:.3f} "
            f"(95 % interval {result.ratio.low:.3f} to {result.ratio.high:.3f}); "
            f"{result.runs} of {result.of} runs; lower end at least {ASKED}: {result.verdict}"
        )
    return found


def ratios_table(points: Sequence[Point]) -> str:
    """A row per agent, run or not."""
    shown = ("IQM, ours", "IQM, peer", "ratio of these", "ratio, mean over tasks (95% interval)")
    heads = ("agent", "peer", *shown, f"lower end at least {ASKED}", "runs")
    rows: list[Sequence[str]] = []
    for agent, compared in AGENTS.items():
        name, result = (agent.upper(), LIBRARIES[compared.library]), compare(points, agent)
        if result is None:
            has_some = any(point.algorithm == agent for point in points)
            rows.append((*name, "not all tasks run yet" if has_some else "not run yet", "", "", "", "", ""))
            continue
        ratios = (estimate_text(ratio, ".2f") for ratio in (result.on_the_scale, result.ratio))
        of = f"{result.runs} of {result.of}"
        rows.append((*name, f"{result.ours:.3f}", f"{result.theirs:.3f}", *ratios, result.verdict, of))
    return markdown_table(heads, rows)


def tasks_table(points: Sequence[Point]) -> str:
    """A row per agent and task: returns as they are, so that no task hides behind the others."""
    heads = ("agent", "task", "IQM of returns, ours (95% interval)", "peer", "runs, ours", "runs, peer")
    rows: list[Sequence[str]] = []
    for agent, compared in AGENTS.items():
        sides = [scores(points, agent, side) for side in (OURS, compared.library)]
        for env in TASKS:
            own = [side.get(env, np.array([])) for side in sides]
            shown = [estimate_text(estimate_interquartile_mean([each])) if len(each) else "none" for each in own]
            rows.append((agent.upper(), env, *shown, *(f"{len(each)} of {compared.seeds}" for each in own)))
    return markdown_table(heads, rows)


class Curves(NamedTuple):
    """The two sides of one agent as lines of a figure."""

    methods: Sequence[Method]
    steps_per_epoch: int = 10_000


def pictures(points: Iterable[Point]) -> str:
    """The curves of the agents that have whole runs, in Markdown."""
    have = {point.algorithm for point in whole(points)}
    return "\n".join(
        f"![{agent.upper()}: ours and {LIBRARIES[compared.library]}](../results/{NAME}/{agent}.png)"
        for agent, compared in AGENTS.items()
        if agent in have
    )


def draw(points: Sequence[Point], folder: Path) -> None:
    """Draws both curves of each agent that has whole runs: a panel per task."""
    from paramnoise.figures.plots import plot_learning_curves

    points = whole(points)
    for agent, compared in AGENTS.items():
        sides = {OURS: "Ours", compared.library: LIBRARIES[compared.library]}
        methods = Curves([Method(agent, side, label) for side, label in sides.items()])
        if own := [point for point in points if point.algorithm == agent]:
            plot_learning_curves(methods, own, folder / f"{agent}.png")


def page(text: str, points: Sequence[Point]) -> str:
    """The page with the tables and the pictures of these results between its marks."""
    parts = {"ratios": ratios_table(points), "by-task": tasks_table(points), "curves": pictures(points)}
    for mark, part in parts.items():
        text = with_table(text, mark, part)
    return text
