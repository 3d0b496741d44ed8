"""Replay in preallocated arrays, as pure functions, for the compiled and the host loop."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


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


class Replay(NamedTuple):
    """A ring of transitions."""

    data: Transition
    """Arrays with a leading axis of the capacity."""
    added: Array
    """Transitions ever added."""

    @property
    def capacity(self) -> int:
        """How many transitions it holds."""
        return self.data.reward.shape[0]


def init(capacity: int, batch: Transition) -> Replay:
    """An empty replay for batches like the one given.

    The capacity is rounded down to a multiple of the batch size, so that a batch is one contiguous write.
    """
    num_envs = batch.reward.shape[0]
    rows = max(capacity // num_envs, 1) * num_envs
    return Replay(jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), batch), jnp.int32(0))


def add(replay: Replay, batch: Transition) -> Replay:
    """Writes a batch, [num_envs, ...], over the oldest transitions."""
    start = replay.added % replay.capacity

    def write(rows: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(rows, new.astype(rows.dtype), start, axis=0)

    return Replay(jax.tree.map(write, replay.data, batch), replay.added + batch.reward.shape[0])


def sample(key: Array, replay: Replay, batch_size: int) -> Transition:
    """Draws transitions uniformly, with replacement, from those added."""
    size = jnp.minimum(replay.added, replay.capacity)
    rows = jax.random.randint(key, (batch_size,), 0, size)
    return jax.tree.map(lambda x: x[rows], replay.data)
