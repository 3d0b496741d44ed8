"""The batch of an on-policy learner: whose steps belong to which segment, and what outlasts a batch."""

import numpy as np
import pytest

from paramnoise.experience.rollout import FIRST_CAPACITY, RolloutBuffer

STEPS = 4
NONE, FIRST, BOTH = np.array([False, False]), np.array([True, False]), np.array([True, True])


def buffer(steps=STEPS):
    """For two environments that show one number, with one action and two parameters."""
    return RolloutBuffer(np.zeros((2, 1), np.float32), np.zeros(2, np.int32), steps, 2)


def offsets(number):
    return np.array([[number, 1], [number, 2]], np.float32)


def add(rows, number):
    """Adds a step whose every field tells its number."""
    shown, flags = np.full((2, 1), number, np.float32), np.array([number % 2 == 0] * 2)
    rows.add(
        obs=shown,
        action=np.full(2, number),
        reward=np.full(2, number),
        next_obs=shown + 1,
        terminated=flags,
        truncated=~flags,
    )


def filled():
    """A batch in which the first environment's second episode starts at the third step."""
    rows = buffer()
    for t, starts in enumerate([BOTH, NONE, FIRST, NONE]):
        if starts.any():
            rows.begin_segments(starts, starts, offsets(t))
        add(rows, t)
    return rows


def test_every_episode_is_a_segment_with_its_own_offset_and_its_own_clock():
    batch = filled().rollout()
    assert batch.segment.tolist() == [[0, 0, 2, 2], [1, 1, 1, 1]]
    assert batch.time.tolist() == [[0, 1, 0, 1], [0, 1, 2, 3]]
    assert batch.offsets[:3].tolist() == [[0, 1], [0, 2], [2, 1]]
    for field in (batch.action, batch.reward, batch.obs[..., 0], batch.next_obs[..., 0] - 1):
        assert field.tolist() == [[0, 1, 2, 3]] * 2
    assert batch.terminated.tolist() == [[True, False, True, False]] * 2
    np.testing.assert_array_equal(batch.truncated, ~batch.terminated)


def test_an_episode_goes_on_in_the_next_batch_as_a_new_segment():
    rows = filled()
    assert rows.is_full
    rows.clear()
    assert (rows.filled, rows.is_full) == (0, False)
    rows.begin_segments(BOTH, NONE, offsets(9))
    add(rows, 0)
    batch = rows.rollout()
    assert batch.time[:, 0].tolist() == [2, 4]
    assert batch.segment[:, 0].tolist() == [0, 1]
    assert batch.offsets[:2].tolist() == offsets(9).tolist()


def test_there_is_room_for_a_segment_at_every_step():
    rows = buffer(steps=FIRST_CAPACITY)
    for t in range(FIRST_CAPACITY):
        rows.begin_segments(BOTH, BOTH, offsets(t))
        add(rows, t)
    found = rows.rollout()
    assert len(found.offsets) >= 2 * FIRST_CAPACITY
    assert found.offsets[found.segment[0], 0].tolist() == list(range(FIRST_CAPACITY))


@pytest.mark.parametrize("stopped_at", [0, 1, 3])
def test_a_restored_batch_is_filled_as_the_one_that_was_never_stopped(stopped_at):
    rows = buffer()
    for t, starts in enumerate([BOTH, NONE, FIRST, NONE]):
        if t == stopped_at:
            parts = rows.snapshot()
            rows = filled()  # of no matter
            rows.restore(parts)
        if starts.any():
            rows.begin_segments(starts, starts, offsets(t))
        add(rows, t)
    for found, expected in zip(rows.rollout(), filled().rollout(), strict=True):
        np.testing.assert_array_equal(found, expected)
