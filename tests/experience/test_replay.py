"""The replay ring against a Python list."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paramnoise.experience import replay as replays
from paramnoise.experience.replay import Transition


def transitions(first: int, count: int, heads: int | None = None) -> Transition:
    """Rows numbered from `first`; every field tells the number."""
    number = np.arange(first, first + count)
    return Transition(
        obs=np.stack([number, -number], axis=1).astype(np.float32),
        action=number.astype(np.int32),
        reward=number.astype(np.float32),
        next_obs=np.stack([number + 0.5, number - 0.5], axis=1).astype(np.float32),
        terminated=number % 3 == 0,
        mask=None if heads is None else np.stack([number % 2 == 0] * heads, axis=1),
    )


def filled(num_envs: int, capacity: int, batches: int) -> replays.Replay:
    ring = replays.init(capacity, transitions(0, num_envs))
    for i in range(batches):
        ring = replays.add(ring, transitions(i * num_envs, num_envs))
    return ring


def numbers(rows: Transition) -> list[int]:
    """The numbers of rows, once it is sure that their fields belong together."""
    found = np.asarray(rows.action).tolist()
    expected = [np.concatenate(field) for field in zip(*(transitions(i, 1)[:5] for i in found), strict=True)]
    for field, want in zip(rows[:5], expected, strict=True):
        np.testing.assert_array_equal(field, want)
    return found


@given(num_envs=st.integers(1, 3), capacity=st.integers(1, 8), batches=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_the_ring_holds_what_the_end_of_a_list_would(num_envs, capacity, batches):
    ring = filled(num_envs, capacity, batches)
    size = max(capacity - capacity % num_envs, num_envs)
    added = list(range(batches * num_envs))
    assert ring.capacity == size
    assert int(ring.added) == len(added)
    held = jax.tree.map(lambda x: x[: min(len(added), size)], ring.data)
    assert sorted(numbers(held)) == added[-size:]


@pytest.mark.parametrize(("num_envs", "capacity", "rounded"), [(1, 7, 7), (2, 7, 6), (3, 8, 6), (4, 4, 4), (5, 3, 5)])
def test_the_capacity_is_rounded_down_to_whole_batches_but_holds_one(num_envs, capacity, rounded):
    assert replays.init(capacity, transitions(0, num_envs)).capacity == rounded


def test_an_empty_ring_has_the_dtypes_of_its_batches():
    batch = transitions(0, 2, heads=3)
    ring = replays.init(6, batch)
    assert [x.dtype for x in jax.tree.leaves(ring.data)] == [x.dtype for x in jax.tree.leaves(batch)]
    assert ring.data.obs.shape == (6, 2)
    assert ring.data.mask.shape == (6, 3)


def test_sampling_returns_every_added_row_and_nothing_else():
    ring = filled(num_envs=2, capacity=20, batches=3)
    assert set(numbers(replays.sample(jax.random.key(0), ring, 300))) == set(range(6))


def test_sampling_after_the_ring_wrapped_returns_only_what_is_left():
    ring = filled(num_envs=2, capacity=6, batches=5)
    assert set(numbers(replays.sample(jax.random.key(1), ring, 300))) == set(range(4, 10))


def test_sampling_is_uniform():
    ring, draws = filled(num_envs=2, capacity=10, batches=7), 20_000
    counts = np.bincount(numbers(replays.sample(jax.random.key(2), ring, draws)), minlength=14)[4:]
    deviation = np.sqrt(draws * 0.1 * 0.9)
    assert np.all(np.abs(counts - draws / 10) < 5 * deviation)


def test_a_key_decides_the_sample():
    ring = filled(num_envs=1, capacity=50, batches=50)
    draw = lambda seed: numbers(replays.sample(jax.random.key(seed), ring, 20))  # noqa: E731
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def test_a_ring_without_masks_stays_without():
    ring = filled(num_envs=2, capacity=4, batches=3)
    assert ring.data.mask is None
    assert replays.sample(jax.random.key(0), ring, 5).mask is None


def test_masks_stay_with_their_rows():
    ring = replays.init(4, transitions(0, 2, heads=3))
    for first in (0, 2, 4):
        ring = replays.add(ring, transitions(first, 2, heads=3))
    sampled = replays.sample(jax.random.key(0), ring, 50)
    assert set(numbers(sampled)) == {2, 3, 4, 5}
    np.testing.assert_array_equal(sampled.mask, np.asarray(sampled.action % 2 == 0)[:, None].repeat(3, axis=1))


def test_adding_and_sampling_compile_to_what_they_are():
    plain = filled(num_envs=2, capacity=6, batches=4)
    ring = replays.init(6, transitions(0, 2))
    for first in (0, 2, 4, 6):
        ring = jax.jit(replays.add)(ring, transitions(first, 2))
    for one, other in zip(jax.tree.leaves(ring), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(one, other)
    sample = jax.jit(replays.sample, static_argnums=2)
    assert numbers(sample(jax.random.key(5), ring, 8)) == numbers(replays.sample(jax.random.key(5), plain, 8))
    assert jnp.issubdtype(ring.added.dtype, jnp.integer)
