"""Statistics over seeds and tasks, by hand, by their properties, and against rliable."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import library, metrics
from scipy import stats

from paramnoise.figures.statistics import (
    Estimate,
    estimate_interquartile_mean,
    estimate_ratio,
    estimate_ratio_by_task,
    estimate_spread_ratio,
    holm,
    interquartile_mean,
    normalise,
    permutation_p,
    probability_of_improvement,
)

# Whole numbers, so that ties are common.
scores = st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=8).map(np.array)
pairs = st.lists(st.tuples(scores, scores), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 6.0], 3.0),  # a quarter of three is less than one score
        ([100.0, 3.0, 1.0, -50.0], 2.0),
        ([9.0, 1.0, 2.0, 3.0, -100.0], 2.0),
        ([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 80.0, 90.0], 2.5),
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end(values, mean):
    assert interquartile_mean(np.array(values)) == mean


def test_the_interquartile_mean_is_taken_along_the_last_axis():
    assert interquartile_mean(np.array([[1.0, 2.0, 3.0, 9.0], [5.0, 4.0, 0.0, 8.0]])).tolist() == [2.5, 4.5]


def test_an_interval_is_the_middle_95_percent_of_all_resamples():
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    means = interquartile_mean(np.array(list(itertools.product(values, repeat=5))))
    low, high = np.quantile(means, [0.025, 0.975], method="inverted_cdf")
    assert (low, high) == (4 / 3, 40 / 3)  # of 1, 1, 2 and of 8, 16, 16
    assert estimate_interquartile_mean([values], repetitions=50_000) == pytest.approx((14 / 3, low, high))


def test_tasks_are_resampled_within_themselves():
    # Between these tasks there is all the difference, within them none.
    together = estimate_interquartile_mean([np.array([0.0, 0.0]), np.array([8.0, 8.0, 8.0])])
    assert together == Estimate(16 / 3, 16 / 3, 16 / 3)


def test_tasks_of_different_numbers_of_seeds_are_pooled():
    assert estimate_interquartile_mean([np.array([0.0, 2.0]), np.array([1.0, 3.0, 5.0, 90.0])]).value == 2.75


def test_a_single_seed_has_no_interval():
    for estimate in (
        estimate_interquartile_mean([np.array([3.0])]),
        estimate_interquartile_mean([np.array([3.0]), np.array([2.0, 4.0])]),
        probability_of_improvement([np.array([3.0, 4.0])], [np.array([1.0])]),
    ):
        assert np.isnan(estimate[1:]).all()
        assert not np.isnan(estimate.value)


@pytest.mark.parametrize(
    ("ours", "others", "ratio"),
    [
        ([0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 10.0, 20.0, 30.0, 40.0], 0.1),
        ([0.0, 5.0, 5.0, 5.0, 90.0], [1.0, 2.0, 3.0, 4.0, 5.0], 0.0),  # the outer seeds do not count
        ([1.0, 1.0], [2.0, 2.0], 1.0),
        ([1.0, 3.0], [2.0, 2.0], np.inf),
    ],
)
def test_the_ratio_of_spreads_is_that_of_interquartile_ranges(ours, others, ratio):
    assert estimate_spread_ratio(np.array(ours), np.array(others)).value == pytest.approx(ratio)


def test_the_ratio_of_spreads_has_an_interval_that_turns_with_its_sides():
    narrow, wide = np.arange(12.0), 20 * np.arange(12.0)
    ratio, other_way = estimate_spread_ratio(narrow, wide), estimate_spread_ratio(wide, narrow)
    assert 0 < ratio.low < ratio.value < ratio.high < 1 < other_way.low < other_way.value < other_way.high
    assert ratio == estimate_spread_ratio(narrow[::-1], wide)  # which seed is which says nothing
    assert np.isnan(estimate_spread_ratio(narrow[:1], wide)[1:]).all()


@pytest.mark.parametrize(
    ("ours", "others", "value"),
    [
        ([2.0, 3.0], [0.0, 1.0], 1.0),
        ([0.0, 2.0], [1.0, 1.0], 0.5),
        ([1.0, 1.0], [1.0, 1.0, 1.0], 0.5),
        ([1.0, 2.0, 3.0], [2.0, 4.0], 0.25),  # 1 + 1/2 of the 6 pairs
    ],
)
def test_the_probability_of_improvement_counts_pairs_and_half_the_ties(ours, others, value):
    assert probability_of_improvement([np.array(ours)], [np.array(others)]).value == value


def test_the_probability_of_improvement_is_the_mean_over_tasks():
    ours = [np.array([1.0, 1.0]), np.array([5.0, 6.0, 7.0, 8.0])]
    others = [np.array([2.0, 2.0]), np.array([5.5, 5.5])]
    assert probability_of_improvement(ours, others).value == (0 + 3 / 4) / 2


def test_scores_are_normalised_between_bounds():
    assert normalise(np.array([-1.0, 0.0, 3.0]), -1.0, 3.0).tolist() == [0.0, 0.25, 1.0]
    assert normalise(np.array([2.0, 2.0]), 2.0, 2.0).tolist() == [0.0, 0.0]


@given(pairs, st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_an_interval_holds_the_estimate_whatever_the_order_of_the_seeds(tasks, seed):
    ours, others = [x for x, _ in tasks], [y for _, y in tasks]
    reverse = [x[::-1] for x in ours]
    for estimate, again in (
        (estimate_interquartile_mean(ours, 200, seed), estimate_interquartile_mean(reverse, 200, seed)),
        (probability_of_improvement(ours, others, 200, seed), probability_of_improvement(reverse, others, 200, seed)),
    ):
        assert estimate.low - 1e-9 <= estimate.value <= estimate.high + 1e-9
        assert estimate == again


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_the_probabilities_of_improvement_of_two_over_each_other_add_up_to_one(tasks):
    ours, others = [x for x, _ in tasks], [y for _, y in tasks]
    there, back = probability_of_improvement(ours, others, 10), probability_of_improvement(others, ours, 10)
    assert there.value + back.value == pytest.approx(1.0)


def matrices() -> tuple[np.ndarray, np.ndarray]:
    """Scores as rliable wants them, a row per seed and a column per task, with ties."""
    rng = np.random.default_rng(1)
    tasks = np.array([0.0, 1.0, 2.0])
    return (rng.normal(tasks + 0.3, 1.0, (10, 3)).round(1), rng.normal(tasks, 1.0, (8, 3)).round(1))


def test_estimates_are_those_of_rliable():
    x, y = matrices()
    assert estimate_interquartile_mean(x.T).value == pytest.approx(metrics.aggregate_iqm(x))
    assert interquartile_mean(y[:, 0]) == pytest.approx(metrics.aggregate_iqm(y[:, :1]))
    assert probability_of_improvement(x.T, y.T).value == pytest.approx(metrics.probability_of_improvement(x, y))


@pytest.fixture
def _rliable_s_random_state():
    """rliable draws from NumPy's global state, whatever it is told."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


@pytest.mark.usefixtures("_rliable_s_random_state")
def test_intervals_are_those_of_rliable():
    x, y = matrices()
    _, mean = library.get_interval_estimates({"x": x}, lambda s: np.array([metrics.aggregate_iqm(s)]), reps=2_000)
    ours = estimate_interquartile_mean(x.T, 20_000)
    assert [ours.low, ours.high] == pytest.approx(mean["x"][:, 0], abs=0.03)

    def improvement(a, b):
        return np.array([metrics.probability_of_improvement(a, b)])

    _, chance = library.get_interval_estimates({"x": (x, y)}, improvement, reps=300)
    ours = probability_of_improvement(x.T, y.T, 20_000)
    assert [ours.low, ours.high] == pytest.approx(chance["x"][:, 0], abs=0.03)


def test_a_ratio_of_interquartile_means_resamples_both_sides():
    ours, others = [np.array([2.0, 4.0, 6.0, 8.0])], [np.array([1.0, 2.0, 3.0, 4.0])]
    ratio = estimate_ratio(ours, others)
    assert ratio.value == 2.0  # (4 + 6) / (2 + 3)
    assert ratio.low < 1.2
    assert ratio.high > 3.0
    one_sided = estimate_ratio(ours, [np.full(4, 2.5)])
    assert ratio.low <= one_sided.low < 2.0 < one_sided.high < ratio.high


def test_by_task_each_task_counts_alike_in_a_ratio_whatever_its_scale_and_spread():
    high, low = np.array([99.0, 100.0, 100.0, 101.0]), np.array([0.5, 1.0, 3.0, 9.0])
    ours, others = [high * 1.5, low * 0.5], [high, low]
    ratio = estimate_ratio_by_task(ours, others)
    assert ratio.value == pytest.approx((1.5 + 0.5) / 2)
    assert ratio.low < 0.9
    assert ratio.high > 1.1
    assert estimate_ratio_by_task(ours[::-1], others[::-1]).value == pytest.approx(1.0)
    again = estimate_ratio_by_task([ours[0] * 7, ours[1]], [high * 7, low])
    assert tuple(again) == pytest.approx(tuple(ratio))
    one, pooled = estimate_ratio_by_task(ours[:1], others[:1]), estimate_ratio(ours[:1], others[:1])
    assert tuple(one) == pytest.approx(tuple(pooled))  # of one task they are the same


def test_a_ratio_needs_a_mean_above_0():
    with pytest.raises(ValueError, match="above 0"):
        estimate_ratio_by_task([np.ones(4)], [np.array([-3.0, -1.0, 0.0, 5.0])])
    at_times = estimate_ratio_by_task([np.ones(4)], [np.array([-3.0, -1.0, 2.0, 5.0])])
    assert at_times.value == 2.0
    assert np.isnan([at_times.low, at_times.high]).all()


def test_a_p_value_is_the_share_of_all_ways_to_share_out_the_runs_that_are_as_far_apart():
    ours, others = np.array([0.9, 0.4, 0.8, 0.7]), np.array([0.1, 0.5, 0.3])
    pooled = np.concatenate([ours, others])

    def distance(chosen: tuple[int, ...]) -> float:
        x, y = pooled[list(chosen)], np.delete(pooled, chosen)
        return abs((x[:, None] > y).mean() - 0.5)

    ways = [distance(chosen) for chosen in itertools.combinations(range(7), 4)]
    exact = np.mean([way >= distance((0, 1, 2, 3)) - 1e-9 for way in ways])
    assert permutation_p([ours], [others]) == pytest.approx(exact, abs=0.01)
    assert permutation_p([others], [ours]) == pytest.approx(exact, abs=0.01)
    assert exact == pytest.approx(stats.mannwhitneyu(ours, others, method="exact").pvalue)


def test_a_p_value_of_several_tasks_shares_out_runs_within_each():
    low, high = np.arange(3.0), np.arange(3.0) + 10
    assert permutation_p([high], [low]) == pytest.approx(2 / 20, abs=0.01)
    assert permutation_p([high, high], [low, low]) == pytest.approx(2 / 20**2, abs=0.002)
    assert permutation_p([high, low], [low, high]) == 1.0  # as good on one as they are bad on the other
    assert permutation_p([low], [low]) == 1.0


def test_holm_multiplies_the_least_p_value_by_all_comparisons_and_never_turns_their_order():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
