"""Replay in preallocated arrays, as pure functions, for the compiled and the host loop."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.experience import priorities as priority_tree
from paramnoise.experience.priorities import Priorities


class Drawing(NamedTuple):
    """How batches are drawn from replay: what a learner asks for."""

    n_step: int = 1
    """Consecutive steps of an episode that make an item of a batch."""
    alpha: float | None = None
    """The exponent of priorities by TD error; None: draws are uniform."""


class Transition(NamedTuple):
    """One step, or a batch of them, as replay keeps it.

    A time limit is no part of it: the value at a truncated end is bootstrapped like any other.
    """

    obs: Array
    action: Array
    """The executed action, exploration included."""
    reward: Array
    next_obs: Array
    """What the environment showed after the action; at an episode's end the final observation, not the next reset's."""
    terminated: Array
    """Whether the task itself ended there, so that nothing follows."""
    mask: Array | None = None
    """Bootstrapped DQN: which heads learn from the transition, [heads]."""
    starts: Array | None = None
    """With several steps per item: whether an episode starts with `obs`, so that the step before belongs to another."""
    num_steps: Array | None = None
    """With several steps per item: how many it has; `reward` is then [n_step], of which as many count."""
    probability: Array | None = None
    """With priorities: that with which it was drawn."""


class Replay(NamedTuple):
    """A ring of transitions."""

    data: Transition
    """Arrays with a leading axis of the capacity."""
    added: Array
    """Transitions ever added."""
    priorities: Priorities | None = None
    """Of the rows, if draws follow them."""

    @property
    def capacity(self) -> int:
        """How many transitions it holds."""
        return self.data.reward.shape[0]


def init(capacity: int, batch: Transition, *, prioritized: bool = False) -> Replay:
    """An empty replay for batches like the one given.

    The capacity is rounded down to a multiple of the batch size, so that a batch is one contiguous write.
    """
    num_envs = batch.reward.shape[0]
    rows = max(capacity // num_envs, 1) * num_envs
    data = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), batch)
    return Replay(data, jnp.int32(0), priority_tree.init(rows) if prioritized else None)


def add(replay: Replay, batch: Transition) -> Replay:
    """Writes a batch, [num_envs, ...], over the oldest transitions."""
    start, num_envs = replay.added % replay.capacity, batch.reward.shape[0]

    def write(rows: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(rows, new.astype(rows.dtype), start, axis=0)

    priorities = replay.priorities
    if priorities is not None:
        new = jnp.full(num_envs, priorities.highest)
        priorities = priority_tree.set_at(priorities, start + jnp.arange(num_envs), new)
    return Replay(jax.tree.map(write, replay.data, batch), replay.added + num_envs, priorities)


def sample(key: Array, replay: Replay, batch_size: int) -> Transition:
    """Draws transitions uniformly, with replacement, from those added."""
    return _at(replay, _uniform_rows(key, replay, batch_size))


def draw(
    key: Array, replay: Replay, batch_size: int, num_envs: int, drawing: Drawing
) -> tuple[Transition, Array | None]:
    """Draws a batch to learn from, as a learner asks for it.

    Args:
        key: a random key, used once.
        replay: what was added.
        batch_size: how many items to draw.
        num_envs: transitions that were added together, which are a step of each environment.
        drawing: how to draw, and what an item is.

    Returns:
        The batch, and with priorities the rows it is from.
    """
    probability = None
    if replay.priorities is None:
        rows = _uniform_rows(key, replay, batch_size)
    else:
        rows, probability = priority_tree.draw(key, replay.priorities, batch_size, batch_size)
    batch = _at(replay, rows) if drawing.n_step == 1 else _n_steps_at(replay, rows, num_envs, drawing.n_step)
    return batch._replace(probability=probability), None if probability is None else rows


def _uniform_rows(key: Array, replay: Replay, count: int) -> Array:
    size = jnp.minimum(replay.added, replay.capacity)
    return jax.random.randint(key, (count,), 0, size)


def _at(replay: Replay, rows: Array) -> Transition:
    return jax.tree.map(lambda x: x[rows], replay.data)


def _n_steps_at(replay: Replay, rows: Array, num_envs: int, n_step: int) -> Transition:
    """The steps from each row on, up to `n_step`, to the end of its episode, or to the newest step."""
    data, newest = replay.data, (replay.added - 1) % replay.capacity
    assert data.starts is not None
    later = (newest // num_envs - rows // num_envs) % (replay.capacity // num_envs)  # steps after it that there are
    span = (rows[:, None] + jnp.arange(n_step) * num_envs) % replay.capacity  # [batch, n_step]
    follows = ~data.terminated[span[:, :-1]] & ~data.starts[span[:, 1:]] & (jnp.arange(1, n_step) <= later[:, None])
    goes_on = jnp.cumprod(follows, axis=1, dtype=jnp.int32)
    num_steps = 1 + jnp.sum(goes_on, axis=1)
    last = span[jnp.arange(len(rows)), num_steps - 1]
    return _at(replay, rows)._replace(
        reward=jnp.where(jnp.arange(n_step) < num_steps[:, None], data.reward[span], 0.0),
        next_obs=data.next_obs[last],
        terminated=data.terminated[last],
        num_steps=num_steps,
        starts=None,
    )
