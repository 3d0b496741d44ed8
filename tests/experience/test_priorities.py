"""Draws by priority: the tree of sums against plain arrays, and frequencies against priorities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from paramnoise.experience import priorities as tree
from paramnoise.experience.priorities import FANOUT, FLOOR, NOWHERE

CAPACITY = FANOUT**2 + 1  # three levels
set_at = jax.jit(tree.set_at)
update = jax.jit(tree.update, static_argnums=3)
draw = jax.jit(tree.draw, static_argnums=(2, 3))


def with_items(places, values, capacity=CAPACITY):
    return set_at(tree.init(capacity), jnp.asarray(places), jnp.asarray(values, jnp.float32))


def items(priorities):
    return np.asarray(priorities.levels[0]).ravel()


@pytest.mark.parametrize(
    ("capacity", "shapes"),
    [(1, [1]), (FANOUT, [1]), (FANOUT + 1, [2, 1]), (CAPACITY, [17, 2, 1]), (1_000_000, [62500, 3907, 245, 16, 1])],
)
def test_a_level_has_a_node_for_as_many_numbers_of_the_level_below_as_a_node_has_children(capacity, shapes):
    empty = jax.eval_shape(lambda: tree.init(capacity))
    assert [level.shape for level in empty.levels] == [(nodes, FANOUT) for nodes in shapes]


def test_every_number_is_the_sum_of_a_row_below_after_any_changes():
    random, plain = np.random.default_rng(0), np.zeros(FANOUT**2 + FANOUT, np.float32)
    priorities = tree.init(CAPACITY)
    for _ in range(20):
        places, values = random.choice(CAPACITY, 30, replace=False), random.random(30).astype(np.float32)
        priorities, plain[places] = set_at(priorities, places, values), values
    np.testing.assert_array_equal(items(priorities), plain)
    for below, above in zip(priorities.levels, priorities.levels[1:], strict=False):
        np.testing.assert_allclose(np.ravel(above)[: len(below)], np.sum(below, axis=1), rtol=1e-6)


def test_nowhere_is_no_item_of_any_level():
    before = with_items([3], [2.0])
    after = set_at(before, jnp.array([NOWHERE, NOWHERE]), jnp.array([9.0, 9.0]))
    for one, other in zip(before.levels, after.levels, strict=True):
        np.testing.assert_array_equal(one, other)


def test_frequencies_are_those_of_the_priorities():
    random = np.random.default_rng(1)
    places, values = np.sort(random.choice(CAPACITY, 200, replace=False)), random.gamma(1.0, size=200) + 0.05
    count = 40_000
    found, probability = draw(jax.random.key(2), with_items(places, values), count, 1)  # batches of 1 are independent
    drawn = np.bincount(found, minlength=CAPACITY)
    assert drawn[places].sum() == count  # nothing without priority
    expected = values / values.sum()
    assert stats.chisquare(drawn[places], count * expected).pvalue > 0.001
    assert stats.chisquare(drawn[places], np.full(200, count / 200)).pvalue < 1e-6  # it would have been seen
    np.testing.assert_allclose(probability, expected[np.searchsorted(places, found)], rtol=1e-5)


def test_a_batch_has_one_item_of_each_equal_part_of_the_sum():
    priorities = with_items(np.arange(40), np.ones(40), capacity=300)
    found, probability = draw(jax.random.key(3), priorities, 60, 20)
    assert (np.asarray(found).reshape(3, 20) // 2 == np.arange(20)).all()  # twenty parts of two items
    np.testing.assert_allclose(probability, 1 / 40, rtol=1e-6)


def test_a_single_item_is_drawn_whatever_rounding_does():
    for place in (0, FANOUT - 1, FANOUT**2):
        found, probability = draw(jax.random.key(4), with_items([place], [1e-7]), 60, 20)
        assert set(found.tolist()) == {place}
        np.testing.assert_allclose(probability, 1.0)


def test_what_was_learned_from_has_the_power_of_its_error_for_a_priority_and_the_highest_is_kept():
    priorities = update(with_items([5], [1.0], capacity=9), jnp.array([2, 7]), jnp.array([-4.0, 0.0]), 0.5)
    np.testing.assert_allclose(items(priorities)[[2, 5, 7]], [2.0, 1.0, np.sqrt(FLOOR)], rtol=1e-5)
    assert priorities.highest == pytest.approx(2.0)
    lower = update(priorities, jnp.array([2, 7]), jnp.array([0.25, 1.0]), 0.5)
    np.testing.assert_allclose(items(lower)[[2, 7]], [0.5, 1.0], rtol=1e-5)
    assert lower.highest == pytest.approx(2.0)
