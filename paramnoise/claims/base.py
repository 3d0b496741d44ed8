"""A claim as data, and how a verdict on it is made from a directory of results.

A rule looks at the runs of some methods on some tasks. A claim asks for a scale: below it, what the runs say so far is
reported, and the verdict stays *not tested*.
"""

import abc
import dataclasses
import enum
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from paramnoise.figures.curve_results import Point


class Verdict(enum.StrEnum):
    """What the runs say of a claim."""

    REPRODUCED = "reproduced"
    PARTLY = "partly"
    NOT_REPRODUCED = "not reproduced"
    """The runs do not show it, which is not to say that they show the opposite."""
    NOT_TESTED = "not tested"


class Decided(NamedTuple):
    """When a rule was fixed: a rule that was made with the data in view is weaker evidence."""

    when: Literal["before the runs", "after data was seen"]
    date: str


class Scale(NamedTuple):
    """How much a claim asks for before there is a verdict on it."""

    seeds: int
    """Of every method on every task."""
    steps: int
    """Of every run."""
    unit: str = "steps"


class Coverage(NamedTuple):
    """How much of that the results hold."""

    tasks: int
    seeds: int
    """The fewest that a method has on a task; 0 if one of them was not run there."""
    steps: int
    """Of the shortest run."""


class Number(NamedTuple):
    """A measured number; the interval is NaN where there is none."""

    name: str
    value: float
    low: float
    high: float


class Finding(NamedTuple):
    """What a rule makes of the runs."""

    verdict: Verdict
    evidence: str
    """In a few words."""
    numbers: tuple[Number, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule(abc.ABC):
    """Which statistic of which runs decides, and which of its values mean what."""

    tasks: tuple[str, ...] = ()
    """The tasks that it looks at; every one of the figure's if there are none here."""

    @property
    @abc.abstractmethod
    def methods(self) -> tuple[str, ...]:
        """The methods that it looks at."""

    @property
    @abc.abstractmethod
    def text(self) -> str:
        """The rule in words."""

    @abc.abstractmethod
    def judge(self, points: list[Point]) -> Finding | None:
        """What the runs say; None if they say nothing, for want of a method, of seeds or of a step in common.

        Args:
            points: the evaluations of the rule's methods on its tasks; `exploration` names the method.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that runs can bear out or not."""

    name: str
    sentence: str
    where: str
    """Where it stands in the paper; "ours" for a claim of this package."""
    figure: str
    """Whose runs test it: a directory of the results."""
    read: Callable[[Path], list[Point]]
    """Reads the runs of that directory, see `sources`."""
    rule: Rule
    asks: Scale
    decided: Decided


class Outcome(NamedTuple):
    """A claim and what the results say of it."""

    claim: Claim
    verdict: Verdict
    so_far: Verdict | None
    """What runs at less than the scale asked for come to, where the verdict is *not tested* because of that."""
    evidence: str
    coverage: Coverage
    numbers: tuple[Number, ...]


def judge(claim: Claim, results: Path) -> Outcome:
    """The verdict that a directory of results allows."""
    read = claim.read(results / claim.figure)
    points = selected(read, claim.rule)
    held = coverage(points, claim.rule)
    finding = claim.rule.judge(points)
    if finding is None:
        return Outcome(claim, Verdict.NOT_TESTED, None, _why_not(claim, read, points), held, ())
    evidence = f"{finding.evidence}; {_scale_text(claim, held)}"
    if is_enough(held, claim):
        return Outcome(claim, finding.verdict, None, evidence, held, finding.numbers)
    return Outcome(claim, Verdict.NOT_TESTED, finding.verdict, evidence, held, finding.numbers)


def selected(points: Iterable[Point], rule: Rule) -> list[Point]:
    """The points of a rule's methods on its tasks."""
    return [
        point for point in points if point.exploration in rule.methods and (not rule.tasks or point.env in rule.tasks)
    ]


def coverage(points: Iterable[Point], rule: Rule) -> Coverage:
    """How many tasks, seeds and steps there are of a rule's methods."""
    ends: dict[tuple[str, str, int], int] = {}
    for point in points:
        run = (point.env, point.exploration, point.seed)
        ends[run] = max(point.step, ends.get(run, 0))
    tasks = {env for env, *_ in ends}
    counts = [sum(run[:2] == (env, method) for run in ends) for env in tasks for method in rule.methods]
    return Coverage(len(tasks), min(counts, default=0), min(ends.values(), default=0))


def is_enough(held: Coverage, claim: Claim) -> bool:
    """Whether results are of the scale that a claim asks for."""
    return held.tasks >= len(claim.rule.tasks) and held.seeds >= claim.asks.seeds and held.steps >= claim.asks.steps


def _why_not(claim: Claim, read: list[Point], points: list[Point]) -> str:
    if not read:
        return f"no results of {claim.figure}"
    if not points:
        return f"the results of {claim.figure} have none of these tasks and methods"
    if missing := [name for name in claim.rule.methods if name not in {point.exploration for point in points}]:
        return f"the results of {claim.figure} lack {', '.join(missing)}"
    return f"the results of {claim.figure} cannot be compared yet"


def _scale_text(claim: Claim, held: Coverage) -> str:
    asks = claim.asks
    parts = [_of(held.seeds, asks.seeds, "seeds"), _of(held.steps, asks.steps, asks.unit)]
    if held.tasks < len(claim.rule.tasks):
        parts.append(_of(held.tasks, len(claim.rule.tasks), "tasks"))
    return ", ".join(parts)


def _of(held: int, asked: int, unit: str) -> str:
    return f"{held:,} {unit}" if held >= asked else f"{held:,} of {asked:,} {unit}"
