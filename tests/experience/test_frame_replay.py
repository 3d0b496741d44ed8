"""The replay of frames against one that keeps every stack whole."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paramnoise.experience import frames as frame_replay
from paramnoise.experience.frames import STACK, Slot
from paramnoise.experience.host_frames import HostFrames
from paramnoise.validation import UsageError

FRAME = (3, 2)
STEPS, COUNT = 36, 24
SIZES = [(1, 9), (3, 14)]
"""Environments, and transitions that replay holds: its rings wrap three times and more."""
KEY = jax.random.PRNGKey(5)


class Stream(NamedTuple):
    """What several environments did: arrays with leading axes of steps and environments."""

    slots: Slot
    truncated: np.ndarray
    final_frame: np.ndarray


class Whole(NamedTuple):
    """A replay that stores whole stacks, by the number of each transition."""

    obs: np.ndarray
    next_obs: np.ndarray
    action: np.ndarray
    terminated: np.ndarray
    slot: np.ndarray
    """How many slots of its environment, final frames included, came before it."""
    has_next: np.ndarray
    """Whether there is anything that `next_obs` must equal: not if the game was over."""


def play(seed: int, num_envs: int, rates: tuple[float, float, float], begins_within_a_game: bool = False) -> Stream:
    """Random games; a step loses a life, ends the game or is the last before a time limit at these rates.

    The reward is the number of the step and its environment, which no other step has.
    """
    random = np.random.default_rng(seed)
    shape = (STEPS, num_envs)
    kind = random.choice(4, size=shape, p=[1 - sum(rates), *rates])
    resets = np.ones(shape, bool)
    resets[1:] = kind[:-1] >= 2
    resets[0] = not begins_within_a_game
    frames, finals = random.integers(1, 256, (2, *shape, *FRAME), np.uint8)
    number = np.arange(STEPS * num_envs, dtype=np.float32).reshape(shape)
    action = random.integers(0, 9, shape, np.int32)
    return Stream(Slot(frames, resets, action, number, (kind == 1) | (kind == 2)), kind == 3, finals)


def whole(stream: Stream) -> Whole:
    """The same steps with their stacks, put together as an agent sees them."""
    steps, num_envs = stream.truncated.shape
    rows = {}
    for env in range(num_envs):
        stack, slot = np.zeros((STACK, *FRAME), np.uint8), 0
        for t in range(steps):
            if stream.slots.resets[t, env]:
                stack = np.zeros_like(stack)
            stack = np.concatenate([stack[1:], stream.slots.frame[t, env][None]])
            cut = stream.truncated[t, env]
            is_over = t + 1 < steps and stream.slots.resets[t + 1, env] and not cut
            after = stream.final_frame[t, env] if cut else stream.slots.frame[min(t + 1, steps - 1), env]
            following = np.concatenate([stack[1:], after[None]])
            step = stream.slots.action[t, env], stream.slots.terminated[t, env]
            rows[t * num_envs + env] = stack, following, *step, slot, not is_over
            slot += 1 + cut
    return Whole(*map(np.array, zip(*(rows[i] for i in range(steps * num_envs)), strict=True)))


@functools.cache
def drawing(num_envs: int, capacity: int):
    """Stream -> replay at the end, what was drawn after each step, and `written` at that time."""

    def step(replay, now):
        t, slot, truncated, final_frame = now
        replay = frame_replay.add(replay, slot)
        drawn = frame_replay.draw(KEY, t, replay, COUNT)
        return frame_replay.add_final(replay, final_frame, truncated), (drawn, replay.written)

    def run(stream: Stream):
        replay = frame_replay.init(capacity, jax.tree.map(lambda x: x[0], stream.slots))
        replay, (drawn, written) = jax.lax.scan(step, replay, (jnp.arange(STEPS), *stream))
        return replay, drawn, jax.vmap(frame_replay.transitions)(drawn), written

    return jax.jit(run)


def check(batch, expected: Whole, written: np.ndarray, rows: int) -> np.ndarray:
    """That drawn transitions are those expected and were whole when `written`; returns their numbers."""
    number = np.asarray(batch.reward).astype(int)
    env = number % written.shape[0]
    for name in ("obs", "action", "terminated"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(expected, name)[number], err_msg=name)
    has_next = expected.has_next[number]
    np.testing.assert_array_equal(batch.next_obs[has_next], expected.next_obs[number][has_next])
    assert batch.terminated[~has_next].all()
    slot = expected.slot[number]
    assert np.all(slot + 1 < written[env])  # what followed is there
    oldest = np.maximum(slot - (STACK - 1), 0)
    assert np.all(oldest >= written[env] - rows)  # the write cursor has not come over its stack
    return number


RATES = st.sampled_from([(0.0, 0.0, 0.0), (0.1, 0.05, 0.1), (0.2, 0.2, 0.3), (0.0, 0.0, 0.9), (0.5, 0.5, 0.0)])


@pytest.mark.parametrize(("num_envs", "capacity"), SIZES)
@given(seed=st.integers(0, 2**32 - 1), rates=RATES, begins_within_a_game=st.booleans())
@settings(max_examples=120, deadline=None)
def test_drawn_stacks_equal_those_of_a_replay_that_keeps_them_whole(
    num_envs, capacity, seed, rates, begins_within_a_game
):
    stream = play(seed, num_envs, rates, begins_within_a_game)
    expected = whole(stream)
    _, _, batches, written = jax.tree.map(np.asarray, drawing(num_envs, capacity)(stream))
    rows = frame_replay.rows_for(capacity, num_envs)
    for t in range(1, STEPS):  # after a single step no transition has its next frame
        check(jax.tree.map(lambda x, t=t: x[t], batches), expected, written[t], rows)


def held(stream: Stream, capacity: int) -> dict[int, float]:
    """The probability of each transition that can be drawn, by its number, once the rings are full."""
    num_envs = stream.truncated.shape[1]
    per_env = capacity // num_envs
    probability: dict[int, float] = {}
    for env in range(num_envs):
        slots: list[int] = []
        for t in range(STEPS):  # a final frame stands for the transition that led to it
            slots += [t * num_envs + env] * (2 if stream.truncated[t, env] else 1)
        for number in slots[-1 - per_env : -1]:
            probability[number] = probability.get(number, 0.0) + 1 / (num_envs * per_env)
    return probability


@pytest.mark.parametrize(("num_envs", "capacity"), SIZES)
def test_every_transition_that_replay_holds_is_drawn_as_often_as_any(num_envs, capacity):
    stream = play(3, num_envs, (0.1, 0.1, 0.3))
    replay, *_ = drawing(num_envs, capacity)(stream)
    draws = 20_000
    batch = frame_replay.transitions(frame_replay.draw(KEY, jnp.int32(0), replay, draws))
    batch = jax.tree.map(np.asarray, batch)
    number = check(batch, whole(stream), np.asarray(replay.written), frame_replay.rows_for(capacity, num_envs))
    probability = held(stream, capacity)
    counts = np.bincount(number, minlength=STEPS * num_envs)
    assert set(np.flatnonzero(counts)) == set(probability)
    for drawn, p in ((counts[i], p) for i, p in probability.items()):
        assert abs(drawn - draws * p) < 5 * np.sqrt(draws * p * (1 - p))


@pytest.mark.parametrize(("num_envs", "capacity"), SIZES)
def test_host_and_device_draw_the_same(num_envs, capacity):
    stream = play(4, num_envs, (0.1, 0.1, 0.2))
    replay, on_device, *_ = drawing(num_envs, capacity)(stream)
    host = HostFrames(capacity, Slot(*(part[0] for part in stream.slots)))
    for t in range(STEPS):
        host.add(Slot(*(part[t] for part in stream.slots)))
        drawn = host.draw(np.asarray(KEY), np.int32(t), COUNT)
        for found, wanted in zip(jax.tree.leaves(drawn), jax.tree.leaves(on_device), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted[t])
        host.add_final(stream.final_frame[t], stream.truncated[t])
    for ours, theirs in zip(jax.tree.leaves(host.state), jax.tree.leaves(replay), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def slots_held(stream: Stream, capacity: int, steps: int) -> dict[tuple[int, int], int]:
    """The row and the environment of each transition that can be drawn after so many steps, and its number."""
    num_envs = stream.truncated.shape[1]
    rows, found = frame_replay.rows_for(capacity, num_envs), {}
    for env in range(num_envs):
        numbers: list[int | None] = []
        for t in range(steps):
            numbers.append(t * num_envs + env)
            if stream.truncated[t, env] and t + 1 < steps:  # a final frame is stored after the step's draw
                numbers.append(None)
        first = max(len(numbers) - rows + STACK, 0)
        held = [(slot, numbers[slot]) for slot in range(first, len(numbers) - 1)]
        found |= {(slot % rows, env): number for slot, number in held if number is not None}
    return found


@functools.cache
def noting(num_envs: int, capacity: int):
    """Stream -> the priorities after each step, and what is drawn by them at the end."""

    def step(replay, now):
        slot, truncated, final_frame = now
        replay = frame_replay.add(replay, slot)
        return frame_replay.add_final(replay, final_frame, truncated), replay.priorities.levels[0]

    def run(stream: Stream):
        slot = jax.tree.map(lambda x: x[0], stream.slots)
        replay, items = jax.lax.scan(step, frame_replay.init(capacity, slot, prioritized=True), stream)
        drawn = frame_replay.draw(KEY, jnp.int32(0), replay, 60, 3, 20)
        return items, drawn, frame_replay.transitions(drawn)

    return jax.jit(run)


@pytest.mark.parametrize("rates", [(0.1, 0.05, 0.1), (0.2, 0.2, 0.3), (0.0, 0.0, 0.9)])
def test_exactly_the_transitions_that_can_be_drawn_have_a_priority(rates):
    num_envs, capacity = SIZES[1]
    stream, rows = play(8, num_envs, rates), frame_replay.rows_for(capacity, num_envs)
    items, drawn, _ = jax.tree.map(np.asarray, noting(num_envs, capacity)(stream))
    for t in range(STEPS):
        ring = items[t].ravel()[: rows * num_envs].reshape(rows, num_envs)
        assert set(zip(*np.nonzero(ring), strict=True)) == set(slots_held(stream, capacity, t + 1))
        assert items[t].sum() == np.count_nonzero(items[t])  # all the same until something is learned
    assert (drawn.probability == 1 / len(set(drawn.place.tolist()))).all()  # sixty draws find each of them


@pytest.mark.parametrize("rates", [(0.1, 0.05, 0.1), (0.0, 0.0, 0.3), (0.3, 0.0, 0.0)])
def test_several_steps_of_frames_are_those_of_a_replay_that_keeps_stacks_whole(rates):
    num_envs, capacity = SIZES[1]
    stream = play(9, num_envs, rates)
    expected = whole(stream)
    _, drawn, batch = jax.tree.map(np.asarray, noting(num_envs, capacity)(stream))
    found = set()
    for i, first in enumerate(batch.reward[:, 0].astype(int)):
        last, num_steps = first, 1
        while num_steps < 3 and not (expected.terminated[last] or stream.truncated.ravel()[last]):
            if last + 2 * num_envs >= STEPS * num_envs:  # what the next step led to is not there yet
                break
            last, num_steps = last + num_envs, num_steps + 1
        assert drawn.num_steps[i] == num_steps
        numbers = [first + k * num_envs for k in range(num_steps)]
        assert batch.reward[i].tolist() == [*numbers, *[0] * (3 - num_steps)]
        assert batch.terminated[i] == expected.terminated[last]
        np.testing.assert_array_equal(batch.obs[i], expected.obs[first])
        if expected.has_next[last]:
            np.testing.assert_array_equal(batch.next_obs[i], expected.next_obs[last])
        found.add((num_steps, bool(expected.terminated[last]), bool(stream.truncated.ravel()[last])))
    assert len(found) > 2


def test_a_key_and_a_step_decide_the_draw():
    written = jnp.array([500, 700])
    one = frame_replay.positions(KEY, jnp.int32(3), written, 400, 50)
    np.testing.assert_array_equal(one, frame_replay.positions(KEY, jnp.int32(3), written, 400, 50))
    assert not np.array_equal(one, frame_replay.positions(KEY, jnp.int32(4), written, 400, 50))


@pytest.mark.parametrize("num_envs", [1, 8, 64])
def test_a_million_transitions_of_atari_fit_into_8_gb(num_envs):
    nothing = np.zeros(num_envs)
    flag, frame = nothing.astype(bool), np.zeros((num_envs, 84, 84), np.uint8)
    slot = Slot(frame, flag, nothing.astype(np.int32), nothing.astype(np.float32), flag)
    replay = jax.eval_shape(lambda: frame_replay.init(1_000_000, slot))
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(replay)) <= 8e9
    whole_stacks = replay.is_final.shape[0] - STACK - 1  # the newest has no next frame yet, the oldest no stack
    assert whole_stacks * num_envs == 1_000_000
    small = HostFrames(10, slot).state, jax.eval_shape(lambda: frame_replay.init(10, slot))
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(small[0])] == [
        (x.shape, x.dtype) for x in jax.tree.leaves(small[1])
    ]


def test_a_pushed_frame_is_the_newest_and_a_new_game_begins_on_black():
    stack = jnp.arange(2 * STACK, dtype=jnp.uint8).reshape(2, STACK, 1, 1) + 1
    frame = jnp.array([[[50]], [[60]]], jnp.uint8)
    pushed = frame_replay.push(stack, frame, jnp.array([False, True]))
    assert pushed[..., 0, 0].tolist() == [[2, 3, 4, 50], [0, 0, 0, 60]]


def test_replay_on_the_host_asks_for_the_backend_that_it_needs(monkeypatch):
    def no_backend(name):
        raise RuntimeError(f"Unknown backend {name}")

    monkeypatch.setattr(jax, "devices", no_backend)
    flags = np.zeros(1, bool)
    slot = Slot(np.zeros((1, *FRAME), np.uint8), flags, np.zeros(1, np.int32), np.zeros(1, np.float32), flags)
    with pytest.raises(UsageError, match="JAX_PLATFORMS=cuda,cpu"):
        HostFrames(10, slot)
