"""Rules on runs made by hand: which values mean which verdict."""

import math

import pytest

from paramnoise.claims import Verdict
from paramnoise.claims.comparisons import Improves, Narrows, OnPar
from paramnoise.claims.counts import AllAlike, FewerSteps, MediansReach, OnlySolves, StaysNear
from paramnoise.figures.curve_results import Point

TASK = "Task-v0"
LOW, HIGH = [1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]


def runs(method: str, scores: list[float], task: str = TASK, step: int = 10) -> list[Point]:
    """A seed for each score."""
    return [Point(task, "ddpg", method, seed, step, score) for seed, score in enumerate(scores)]


IMPROVES = Improves(tasks=(TASK,), subject="ours", others=("theirs",))


@pytest.mark.parametrize(
    ("ours", "verdict", "value"),
    [
        (HIGH, Verdict.REPRODUCED, 1.0),
        ([0.0, *HIGH[1:]], Verdict.PARTLY, 0.8),  # one seed fails: the interval reaches down to chance
        ([0.0, 0.0, *HIGH[2:]], Verdict.NOT_REPRODUCED, 0.6),
        (LOW, Verdict.NOT_REPRODUCED, 0.5),
        ([0.0] * 5, Verdict.NOT_REPRODUCED, 0.0),
    ],
)
def test_an_improvement_is_reproduced_beyond_chance_and_partly_if_it_is_large(ours, verdict, value):
    finding = IMPROVES.judge(runs("ours", ours) + runs("theirs", LOW))
    assert (finding.verdict, finding.numbers[0].value) == (verdict, value)


def test_an_improvement_over_one_of_two_is_partly_there():
    rule = Improves(tasks=(TASK,), subject="ours", others=("theirs", "none"))
    points = runs("ours", HIGH) + runs("theirs", LOW) + runs("none", HIGH)
    finding = rule.judge(points)
    assert (finding.verdict, [number.name for number in finding.numbers]) == (
        Verdict.PARTLY,
        ["over theirs", "over none"],
    )


def test_runs_are_compared_at_the_last_step_that_all_have():
    late = runs("ours", LOW, step=20)  # would not be above theirs, which have no evaluation there
    assert IMPROVES.judge(runs("ours", HIGH) + late + runs("theirs", LOW)).verdict is Verdict.REPRODUCED


@pytest.mark.parametrize("rule", [IMPROVES, OnPar(tasks=(TASK,), subject="ours", others=("theirs",))])
@pytest.mark.parametrize("theirs", [[], [1.0]])
def test_without_two_seeds_of_both_nothing_is_compared(rule, theirs):
    assert rule.judge(runs("ours", HIGH) + runs("theirs", theirs)) is None


@pytest.mark.parametrize(
    ("level", "verdict"),
    [(10, Verdict.REPRODUCED), (7, Verdict.REPRODUCED), (6, Verdict.PARTLY), (4, Verdict.NOT_REPRODUCED)],
)
def test_methods_are_on_par_if_few_comparisons_show_a_difference(level, verdict):
    tasks = [f"Task{i}-v0" for i in range(10)]
    points = [
        point
        for i, task in enumerate(tasks)
        for point in runs("ours", LOW if i < level else HIGH, task) + runs("theirs", LOW, task)
    ]
    finding = OnPar(tasks=tuple(tasks), subject="ours", others=("theirs",)).judge(points)
    assert (finding.verdict, finding.evidence) == (verdict, f"no difference in {level} of 10 comparisons")


NARROWS = Narrows(tasks=(TASK,), subject="ours", other="theirs")
WIDE = [10.0 * i for i in range(12)]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([0.5 * i for i in range(12)], WIDE, Verdict.REPRODUCED),
        ([0.0, 2.0, 4.0, 6.0, 9.0], [1.0, 1.0, 6.0, 9.0, 9.0], Verdict.PARTLY),  # 4 over 8, and few seeds
        (WIDE, WIDE, Verdict.NOT_REPRODUCED),
        (WIDE, [0.5 * i for i in range(12)], Verdict.NOT_REPRODUCED),
    ],
)
def test_a_spread_is_narrower_beyond_chance_or_by_a_third(ours, theirs, verdict):
    assert NARROWS.judge(runs("ours", ours) + runs("theirs", theirs)).verdict is verdict


ONLY = OnlySolves(tasks=(TASK, "Other-v0"), subject="ours", others=("theirs",), solved={TASK: 5.0, "Other-v0": 0.9})


def solving(method: str, first: int, second: int) -> list[Point]:
    """Five seeds on each task, of which so many end at the return that counts as solved."""
    return runs(method, [5.0] * first + [4.9] * (5 - first)) + runs(
        method, [1.0] * second + [0.0] * (5 - second), "Other-v0"
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((5, 3), (0, 2), Verdict.REPRODUCED),
        ((4, 4), (3, 2), Verdict.PARTLY),
        ((4, 4), (4, 4), Verdict.NOT_REPRODUCED),  # the others do as well
        ((5, 2), (0, 0), Verdict.NOT_REPRODUCED),  # one task is not solved
    ],
)
def test_only_one_solves_if_most_of_its_seeds_do_on_each_task_and_few_of_the_others(ours, theirs, verdict):
    finding = ONLY.judge(solving("ours", *ours) + solving("theirs", *theirs))
    assert finding.verdict is verdict
    assert finding.evidence == f"seeds that solve: ours {sum(ours)} of 10, theirs {sum(theirs)} of 10"


def test_only_one_solves_says_nothing_without_the_others():
    assert ONLY.judge(solving("ours", 5, 5)) is None


@pytest.mark.parametrize(
    ("solve", "counts", "verdict"),
    [
        (True, (3, 5), Verdict.REPRODUCED),
        (True, (2, 5), Verdict.PARTLY),
        (True, (2, 0), Verdict.NOT_REPRODUCED),
        (False, (0, 1), Verdict.REPRODUCED),
        (False, (0, 3), Verdict.PARTLY),
        (False, (2, 2), Verdict.NOT_REPRODUCED),
    ],
)
def test_all_are_alike_if_each_method_is(solve, counts, verdict):
    rule = AllAlike(tasks=(TASK,), each=("a", "b"), solve=solve, solved={TASK: 5.0})
    points = [
        point
        for method, count in zip("ab", counts, strict=True)
        for point in runs(method, [5.0] * count + [0.0] * (5 - count))
    ]
    assert rule.judge(points).verdict is verdict


def climbs(agent: str, reached_at: int | None, end: int = 1_000) -> list[Point]:
    """A run that is evaluated every 10 steps, and at 1 from some step on."""
    steps = range(10, end + 1, 10)
    return [Point(TASK, agent, agent, 0, step, float(reached_at is not None and step >= reached_at)) for step in steps]


@pytest.mark.parametrize(
    ("ours", "es", "verdict", "ratio"),
    [
        (100, 200, Verdict.REPRODUCED, 2.0),
        (100, 190, Verdict.NOT_REPRODUCED, 1.9),
        (100, None, Verdict.REPRODUCED, 10.0),  # at least
        (None, 900, Verdict.NOT_REPRODUCED, 0.9),
    ],
)
def test_fewer_steps_are_a_ratio_of_medians_or_a_bound_of_it(ours, es, verdict, ratio):
    rule = FewerSteps(tasks=(TASK,), subject="ddpg", returns={TASK: (1.0,)}, times=2.0)
    finding = rule.judge(climbs("ddpg", ours) + climbs("es", es))
    assert (finding.verdict, finding.numbers[0].value) == (verdict, ratio)


def test_a_large_bound_for_an_agent_that_did_not_get_there_says_nothing_for_it():
    rule = FewerSteps(tasks=(TASK,), subject="ddpg", returns={TASK: (1.0,)}, times=2.0)
    finding = rule.judge(climbs("ddpg", None, end=100) + climbs("es", 900))
    assert (finding.verdict, finding.numbers[0].value) == (Verdict.NOT_REPRODUCED, 9.0)


@pytest.mark.parametrize(
    ("reached", "games", "verdict"),
    [
        (3, 4, Verdict.REPRODUCED),
        (2, 4, Verdict.PARTLY),
        (1, 4, Verdict.NOT_REPRODUCED),
        (1, 1, Verdict.REPRODUCED),  # so far
    ],
)
def test_medians_are_held_against_published_scores_game_by_game(reached, games, verdict):
    names = ("A", "B", "C", "D")
    rule = MediansReach(tasks=names, subject="ours", published=dict.fromkeys(names, 7.0), reproduced=3, partly=2)
    points = [
        point
        for i, name in enumerate(names[:games])
        for point in runs("ours", [0.0, 7.0 if i < reached else 6.5, 90.0], name)
    ]
    assert rule.judge(points).verdict is verdict


@pytest.mark.parametrize(
    ("later", "verdict"),
    [
        (1.2, Verdict.REPRODUCED),
        (0.8, Verdict.REPRODUCED),
        (0.6, Verdict.PARTLY),
        (2.1, Verdict.NOT_REPRODUCED),
    ],
)
def test_what_stays_near_one_is_looked_at_in_the_second_half_of_a_run(later, verdict):
    rule = StaysNear(subject="ours", what="distance over delta")
    points = [
        point
        for seed in range(10)
        for step in range(10, 101, 10)
        for point in [Point(TASK, "ddpg", "ours", seed, step, 9.0 if step <= 50 else 1.0 if seed < 8 else later)]
    ]
    assert rule.judge(points).verdict is verdict


def test_numbers_without_an_interval_say_so():
    finding = ONLY.judge(solving("ours", 5, 3) + solving("theirs", 0, 2))
    assert finding.numbers[0][:2] == ("share of ours", 0.8)
    assert all(math.isnan(end) for number in finding.numbers for end in number[2:])
