"""Rules that count: seeds that solve a task, returns that are reached sooner, games, runs.

The values that mean *reproduced* and *partly* are here; all others mean *not reproduced*.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from paramnoise.claims.base import Finding, Number, Rule, Verdict
from paramnoise.claims.judging import Scores, by_share, final_scores, levels_text, listed, tasks_text
from paramnoise.envs.base import env_label
from paramnoise.figures.curve_results import Point
from paramnoise.figures.sample_efficiency import summarise

MOST, FEW = 0.6, 0.2
"""Shares of the runs: a method with the first solves a task, one with the second does not; 3 and 1 of 5 seeds."""
NEARLY_ALL = 0.9
"""The share of the runs that has to be as stated, where the statement is about every run."""

Counts = dict[str, list[tuple[int, int]]]
"""By method, for each task the seeds that solve it and all seeds; a method without runs is not there."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlySolves(Rule):
    """The subject solves the tasks and the others do not: by the seeds that end at or above a return."""

    subject: str
    others: tuple[str, ...]
    solved: Mapping[str, float]
    """The return that counts as solved, by task."""
    in_words: str = ""
    """What these seeds do, where "end at or above a return" does not say it."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The subject and what it is held against."""
        return (self.subject, *self.others)

    @property
    def text(self) -> str:
        """The rule in words."""
        solving = self.in_words or f"end at or above {levels_text(self.tasks, self.solved)}"
        return (
            f"seeds that {solving}. Reproduced: {MOST:.0%} or more of {self.subject} on each task, and {FEW:.0%} or "
            f"less of {listed(self.others)} over the tasks together; partly: {self.subject} so, and more of it than of "
            "each other"
        )

    def judge(self, points: list[Point]) -> Finding | None:
        """Counts at the last step that all runs of a task have."""
        counts = _counts(final_scores(points), self.methods, self.solved)
        others = [_share(own) for method, own in counts.items() if method != self.subject]
        if self.subject not in counts or not others:
            return None
        verdict = Verdict.NOT_REPRODUCED
        if all(_share([own]) >= MOST for own in counts[self.subject]):
            if max(others) <= FEW:
                verdict = Verdict.REPRODUCED
            elif _share(counts[self.subject]) > max(others):
                verdict = Verdict.PARTLY
        return _finding(verdict, counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllAlike(Rule):
    """Every method solves the tasks, or none does: by the seeds that end at or above a return."""

    each: tuple[str, ...]
    """The methods."""
    solve: bool
    """Whether they are said to solve the tasks."""
    solved: Mapping[str, float]
    """The return that counts as solved, by task."""

    @property
    def methods(self) -> tuple[str, ...]:
        """All of them."""
        return self.each

    @property
    def text(self) -> str:
        """The rule in words."""
        wanted = f"{MOST:.0%} or more" if self.solve else f"{FEW:.0%} or less"
        return (
            f"seeds that end at or above {levels_text(self.tasks, self.solved)}. Reproduced: {wanted} of each of "
            f"{listed(self.each)}; partly: of half of these or more"
        )

    def judge(self, points: list[Point]) -> Finding | None:
        """Counts at the last step that all runs of a task have."""
        counts = _counts(final_scores(points), self.methods, self.solved)
        if not counts:
            return None
        shares = [_share(own) for own in counts.values()]
        as_said = [share >= MOST if self.solve else share <= FEW for share in shares]
        return _finding(by_share(sum(as_said) / len(as_said), 1.0, 0.5), counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewerSteps(Rule):
    """An agent reaches returns in a fraction of the steps of evolution strategies: by the ratio of medians."""

    subject: str
    returns: Mapping[str, tuple[float, ...]]
    """The returns to be reached, by task."""
    times: float
    """How many times the steps ES has to need."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The two agents."""
        return (self.subject, "es")

    @property
    def text(self) -> str:
        """The rule in words."""
        count = sum(len(self.returns[env]) for env in self.tasks)
        return (
            f"median steps of es until a return is reached, over those of {self.subject}, for {count} returns on "
            f"{tasks_text(self.tasks)}. Reproduced: at least {self.times:g} at each of them; partly: at more than half"
        )

    def judge(self, points: list[Point]) -> Finding | None:
        """Takes the ratios, and bounds where one of the two did not get there, from the figure's own summary."""
        rows = [row for row in summarise(points, self.returns) if row.algorithm == self.subject]
        known = [row for row in rows if not math.isnan(row.ratio)]
        if not known:
            return None
        # Where the subject did not get there the ratio is a bound from above, which says nothing for it.
        fewer = sum(row.ratio >= self.times and math.isfinite(row.steps) for row in known)
        partly = Verdict.PARTLY if 2 * fewer > len(known) else Verdict.NOT_REPRODUCED
        return Finding(
            Verdict.REPRODUCED if fewer == len(known) else partly,
            f"ES needs at least {self.times:g} times the steps at {fewer} of {len(known)} returns",
            tuple(_plain(f"{row.threshold:g} on {env_label(row.env)}", row.ratio) for row in known),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MediansReach(Rule):
    """The subject's median over seeds is at or above a published score: by the number of tasks."""

    subject: str
    published: Mapping[str, float]
    reproduced: int
    """On how many of all these tasks; on the same share of them where some were not run."""
    partly: int

    @property
    def methods(self) -> tuple[str, ...]:
        """The subject."""
        return (self.subject,)

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"of {tasks_text(self.tasks)}, those on which the median over seeds of {self.subject} is at or above the "
            f"published score. Reproduced: {self.reproduced} or more; partly: {self.partly} or more"
        )

    def judge(self, points: list[Point]) -> Finding | None:
        """Counts at the last step that all runs of a task have."""
        medians = {env: float(np.median(own[self.subject])) for env, own in final_scores(points).items()}
        if not medians:
            return None
        reached = sum(median >= self.published[env] for env, median in medians.items())
        least = [count / len(self.tasks) for count in (self.reproduced, self.partly)]
        return Finding(
            by_share(reached / len(medians), *least),
            f"at or above the published score on {reached} of {len(medians)}",
            tuple(_plain(env_label(env), median) for env, median in medians.items()),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaysNear(Rule):
    """A quantity stays near 1: by each run's median over the second half of its steps."""

    subject: str
    what: str
    """The quantity, in words."""
    near: float = 1.25
    """Reproduced: nearly all runs are within this factor of 1."""
    far: float = 2.0
    """Partly: within this one."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The subject."""
        return (self.subject,)

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"{self.what}, the median over the second half of each run of {self.subject} on {tasks_text(self.tasks)}. "
            f"Reproduced: {NEARLY_ALL:.0%} of the runs or more are within a factor {self.near:g} of 1; partly: within "
            f"{self.far:g}"
        )

    def judge(self, points: list[Point]) -> Finding | None:
        """Looks at all evaluations of the second half."""
        runs: dict[tuple[str, int], dict[int, float]] = {}
        for point in points:
            runs.setdefault((point.env, point.seed), {})[point.step] = point.value
        if not runs:
            return None
        later = {run: [value for step, value in curve.items() if 2 * step > max(curve)] for run, curve in runs.items()}
        medians = {run: float(np.median(values)) for run, values in later.items()}
        near, far = (
            sum(1 / factor <= median <= factor for median in medians.values()) for factor in (self.near, self.far)
        )
        partly = Verdict.PARTLY if far >= NEARLY_ALL * len(medians) else Verdict.NOT_REPRODUCED
        return Finding(
            Verdict.REPRODUCED if near >= NEARLY_ALL * len(medians) else partly,
            f"within a factor {self.near:g} of 1 in {near} of {len(medians)} runs",
            tuple(_plain(f"{env_label(env)}, seed {seed}", median) for (env, seed), median in medians.items()),
        )


def _counts(scores: Scores, methods: Sequence[str], solved: Mapping[str, float]) -> Counts:
    counts = {
        method: [
            (int(np.sum(task[method] >= solved[env])), len(task[method]))
            for env, task in scores.items()
            if method in task
        ]
        for method in methods
    }
    return {method: own for method, own in counts.items() if own}


def _share(counts: Sequence[tuple[int, int]]) -> float:
    return sum(solving for solving, _ in counts) / sum(seeds for _, seeds in counts)


def _finding(verdict: Verdict, counts: Counts) -> Finding:
    texts = [
        f"{method} {sum(own[0] for own in each)} of {sum(own[1] for own in each)}" for method, each in counts.items()
    ]
    numbers = tuple(_plain(f"share of {method}", _share(own)) for method, own in counts.items())
    return Finding(verdict, f"seeds that solve: {', '.join(texts)}", numbers)


def _plain(name: str, value: float) -> Number:
    """A number without an interval."""
    return Number(name, value, math.nan, math.nan)
