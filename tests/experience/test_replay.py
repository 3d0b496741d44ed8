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


def n_steps(ring, rows, num_envs, n_step):
    return jax.tree.map(np.asarray, replays._n_steps_at(ring, jnp.asarray(rows), num_envs, n_step))


def episodes(capacity: int, steps: int) -> replays.Replay:
    """Two environments, whose rewards are 1, 2, 3, ... and 10, 20, 30, ...

    The first one's episodes have three steps, at whose end the task ends; the second one's have four, and are cut.
    """
    steps_of = lambda t: transitions(2 * t, 2)._replace(  # noqa: E731
        reward=np.array([t + 1, 10 * (t + 1)], np.float32),
        terminated=np.array([t % 3 == 2, False]),
        starts=np.array([t % 3 == 0, t % 4 == 0]),
    )
    ring = replays.init(capacity, steps_of(0))
    for t in range(steps):
        ring = replays.add(ring, steps_of(t))
    return ring


def test_several_steps_end_with_the_episode_or_with_the_newest_step():
    drawn = n_steps(episodes(30, steps=8), np.arange(16), 2, 3)
    first, second = (jax.tree.map(lambda x, env=env: x[env::2], drawn) for env in (0, 1))
    # Steps 0-2, 3-5 and 6-7 are the first environment's episodes: the last one goes on, and is bootstrapped.
    assert first.num_steps.tolist() == [3, 2, 1, 3, 2, 1, 2, 1]
    assert first.terminated.tolist() == [True] * 6 + [False] * 2
    assert first.reward[:2].tolist() == [[1, 2, 3], [2, 3, 0]]
    assert first.reward[6:].tolist() == [[7, 8, 0], [8, 0, 0]]
    # Steps 0-3 and 4-7 are the second one's; a time limit is no end of the task.
    assert second.num_steps.tolist() == [3, 3, 2, 1, 3, 3, 2, 1]
    assert not second.terminated.any()
    assert second.reward[1:3].tolist() == [[20, 30, 40], [30, 40, 0]]
    last = 2 * (np.arange(8) + second.num_steps - 1) + 1
    np.testing.assert_array_equal(second.next_obs, transitions(0, 16).next_obs[last])
    np.testing.assert_array_equal(drawn.obs, transitions(0, 16).obs)
    np.testing.assert_array_equal(drawn.action, np.arange(16))


def test_several_steps_never_go_on_from_the_newest_step_to_the_oldest():
    ring = episodes(8, steps=6)  # four steps of each are left, 2 to 5; step 4 is in the first row
    assert ring.data.reward.tolist() == [5, 50, 6, 60, 3, 30, 4, 40]
    drawn = n_steps(ring, np.arange(8), 2, 4)
    assert drawn.num_steps[0::2].tolist() == [2, 1, 1, 3]  # steps 4, 5, 2, 3 of the first environment
    assert drawn.num_steps[1::2].tolist() == [2, 1, 2, 1]
    assert drawn.reward[6].tolist() == [4, 5, 6, 0]


def test_draws_by_priority_find_new_rows_and_forget_those_overwritten():
    ring = replays.init(6, transitions(0, 2), prioritized=True)
    add = jax.jit(replays.add)
    for first in (0, 2, 4, 6):
        ring = add(ring, transitions(first, 2))
    assert ring.priorities.levels[0].ravel()[:8].tolist() == [1] * 6 + [0] * 2
    errors = replays.priority_tree.update(ring.priorities, jnp.array([0, 3]), jnp.array([9.0, 0.0]), 0.5)
    ring = add(ring._replace(priorities=errors), transitions(8, 2))  # over rows 2 and 3
    np.testing.assert_allclose(ring.priorities.levels[0].ravel()[:6], [3, 1, 3, 3, 1, 1], rtol=1e-5)
    batch, rows = replays.draw(jax.random.key(0), ring, 100, 2, replays.Drawing(alpha=0.5))
    assert set(numbers(batch)) == {4, 5, 6, 7, 8, 9}
    np.testing.assert_array_equal(ring.data.action[rows], batch.action)
    np.testing.assert_allclose(batch.probability, np.array([3, 1, 3, 3, 1, 1])[rows] / 12, rtol=1e-5)


def test_uniform_draws_are_those_of_sample():
    ring = filled(num_envs=2, capacity=20, batches=7)
    batch, rows = replays.draw(jax.random.key(6), ring, 9, 2, replays.Drawing())
    assert numbers(batch) == numbers(replays.sample(jax.random.key(6), ring, 9))
    assert rows is None
    assert batch.probability is batch.num_steps is None
