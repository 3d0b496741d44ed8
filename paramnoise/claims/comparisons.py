"""Rules that compare the scores of methods, by estimates with intervals.

The values that mean *reproduced* and *partly* are here; all others mean *not reproduced*.
"""

import dataclasses
from collections.abc import Sequence

from paramnoise.claims.base import Finding, Number, Rule, Verdict
from paramnoise.claims.judging import by_share, estimate_text, final_scores, listed, pairs, tasks_text
from paramnoise.envs.base import env_label
from paramnoise.figures.curve_results import Point
from paramnoise.figures.statistics import Estimate, estimate_spread_ratio, probability_of_improvement

CHANCE = 0.5
"""The probability of improvement of a method over itself."""
CLEAR = 0.75
"""A probability of improvement that matters; Bouthillier et al. (2021, arXiv 2103.03098) use it."""
NARROWED = 2 / 3
"""A ratio of spreads that matters."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Improves(Rule):
    """The subject scores above other methods: by the probability of improvement, the mean over tasks."""

    subject: str
    others: tuple[str, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """The subject and what it is held against."""
        return (self.subject, *self.others)

    @property
    def text(self) -> str:
        """The rule in words."""
        each, one = (" for each", "for one, or ") if len(self.others) > 1 else ("", "")
        return (
            f"probability of improvement of {self.subject} over {listed(self.others)} on {tasks_text(self.tasks)}. "
            f"Reproduced: its interval is above {CHANCE}{each}; partly: {one}its value is at least {CLEAR}"
        )

    def judge(self, points: list[Point]) -> Finding | None:
        """Compares at the last step that all runs of a task have."""
        scores = final_scores(points)
        found = {}
        for other in self.others:
            if both := pairs(scores, self.subject, other):
                found[other] = probability_of_improvement(*zip(*both.values(), strict=True))
        if not found:
            return None
        texts = [f"over {other} {estimate_text(estimate)}" for other, estimate in found.items()]
        return Finding(
            _together([_improvement(estimate) for estimate in found.values()]),
            f"probability of improvement {', '.join(texts)}",
            tuple(Number(f"over {other}", *estimate) for other, estimate in found.items()),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPar(Rule):
    """No difference between the subject and each other method shows, task by task.

    With few seeds an interval excludes chance too often, so some comparisons may: of two methods that do not differ at
    all, 20 % seem to with 3 seeds each and 10 % with 5 (counted over all orders of their scores).
    """

    subject: str
    others: tuple[str, ...]
    reproduced: float = 0.7
    """The share of the comparisons without a difference that is enough."""
    partly: float = 0.5

    @property
    def methods(self) -> tuple[str, ...]:
        """The subject and what it is held against."""
        return (self.subject, *self.others)

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"comparisons of {self.subject} with {listed(self.others)} on {tasks_text(self.tasks)}, one by one, whose "
            f"probability of improvement has {CHANCE} in its interval. Reproduced: {self.reproduced:.0%} of them or "
            f"more; partly: {self.partly:.0%} or more"
        )

    def judge(self, points: list[Point]) -> Finding | None:
        """Compares at the last step that all runs of a task have."""
        scores = final_scores(points)
        found = {
            f"{other} on {env_label(env)}": probability_of_improvement([ours], [theirs])
            for other in self.others
            for env, (ours, theirs) in pairs(scores, self.subject, other).items()
        }
        if not found:
            return None
        level = sum(estimate.low <= CHANCE <= estimate.high for estimate in found.values())
        return Finding(
            by_share(level / len(found), self.reproduced, self.partly),
            f"no difference in {level} of {len(found)} comparisons",
            tuple(Number(f"over {name}", *estimate) for name, estimate in found.items()),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Narrows(Rule):
    """The subject's seeds are closer together than another's: by the ratio of interquartile ranges on one task."""

    subject: str
    other: str

    @property
    def methods(self) -> tuple[str, ...]:
        """The two."""
        return (self.subject, self.other)

    @property
    def text(self) -> str:
        """The rule in words."""
        return (
            f"interquartile range over seeds of {self.subject} on {tasks_text(self.tasks)}, over that of {self.other}. "
            f"Reproduced: its interval is below 1; partly: its value is at most {NARROWED:.2f}"
        )

    def judge(self, points: list[Point]) -> Finding | None:
        """Compares at the last step that all runs of the task have."""
        both = pairs(final_scores(points), self.subject, self.other)
        if len(both) != 1:
            return None
        ((ours, theirs),) = both.values()
        ratio = estimate_spread_ratio(ours, theirs)
        verdict = Verdict.PARTLY if ratio.value <= NARROWED else Verdict.NOT_REPRODUCED
        return Finding(
            Verdict.REPRODUCED if ratio.high < 1 else verdict,
            f"interquartile range {estimate_text(ratio)} times that of {self.other}",
            (Number(f"spread over that of {self.other}", *ratio),),
        )


def _improvement(estimate: Estimate) -> Verdict:
    if estimate.low > CHANCE:
        return Verdict.REPRODUCED
    return Verdict.PARTLY if estimate.value >= CLEAR else Verdict.NOT_REPRODUCED


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that all have; *partly* where they differ."""
    return verdicts[0] if len(set(verdicts)) == 1 else Verdict.PARTLY
