"""Priorities of stored items, and draws in proportion to them (Schaul et al. 2016, proportional variant).

A tree of sums whose nodes have `FANOUT` children: a draw is found by one running sum of `FANOUT` numbers on each level,
and a change is followed by new sums of the nodes above it alone. A million items are five levels, where a tree of pairs
has twenty; a running sum over all of them would be a pass over the whole memory at each train step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

FANOUT = 16
"""Children of a node: on a CPU wider nodes cost more to add up, narrower ones are more levels to go down."""
NOWHERE = 2**30
"""A place that is passed over: beyond the nodes of every level."""
FLOOR = 1e-6
"""Is added to errors, so that what was once learned well may be drawn again."""


class Priorities(NamedTuple):
    """The tree: each number of a level is the sum of a row of the level before."""

    levels: tuple[Array, ...]
    """Arrays of shape [nodes, FANOUT]: first the priorities of the items, last a single node."""
    highest: Array
    """The highest priority that an item ever had, which new ones get: each is to be learned from soon."""


def init(capacity: int) -> Priorities:
    """Room for so many items, none of which can be drawn yet."""
    levels: list[Array] = []
    nodes = capacity
    while not levels or nodes > 1:
        nodes = -(-nodes // FANOUT)
        levels.append(jnp.zeros((nodes, FANOUT)))
    return Priorities(tuple(levels), jnp.float32(1.0))


def set_at(priorities: Priorities, places: Array, values: Array) -> Priorities:
    """Sets the priorities of some items; the place `NOWHERE` is passed over."""
    items, *above = priorities.levels
    changed = [items.at[places // FANOUT, places % FANOUT].set(values, mode="drop")]
    nodes = places // FANOUT
    for level in above:
        sums = jnp.sum(changed[-1][nodes], axis=-1)  # whole sums: differences would add up their rounding
        changed.append(level.at[nodes // FANOUT, nodes % FANOUT].set(sums, mode="drop"))
        nodes = nodes // FANOUT
    return priorities._replace(levels=tuple(changed))


def update(priorities: Priorities, places: Array, errors: Array, alpha: float) -> Priorities:
    """The priorities |error|^alpha of items that were learned from."""
    values = (jnp.abs(errors) + FLOOR) ** alpha
    highest = jnp.maximum(priorities.highest, jnp.max(values))
    return set_at(priorities._replace(highest=highest), places, values)


def draw(key: Array, priorities: Priorities, count: int, batch_size: int) -> tuple[Array, Array]:
    """Draws items in proportion to their priorities.

    As in the paper (app. B.2.1) the sum of all priorities is cut into as many equal parts as a batch has items, and one
    item is drawn from each.

    Args:
        key: a random key, used once.
        priorities: the tree, in which at least one priority is above 0.
        count: how many to draw, a multiple of the batch size.
        batch_size: of each batch that the draws are split into, in their order.

    Returns:
        The places of the items, int32[count], and the probability of each, [count].
    """
    total = jnp.sum(priorities.levels[-1])
    part = jnp.arange(count) % batch_size
    rest = (part + jax.random.uniform(key, (count,))) / batch_size * total
    place = jnp.zeros(count, jnp.int32)
    for level in reversed(priorities.levels):
        row = level[place]  # [count, FANOUT]
        sums = jnp.cumsum(row, axis=-1)
        # The first child whose running sum is above what is left; by rounding there may be none: then the last.
        holds = (row > 0) & (sums > rest[:, None])
        last = jnp.max(jnp.where(row > 0, jnp.arange(FANOUT), 0), axis=-1)
        child = jnp.where(jnp.any(holds, axis=-1), jnp.argmax(holds, axis=-1), last).astype(jnp.int32)
        value, until = (jnp.take_along_axis(each, child[:, None], axis=-1)[:, 0] for each in (row, sums))
        rest = jnp.maximum(rest - (until - value), 0.0)
        place = place * FANOUT + child
    return place, value / total
