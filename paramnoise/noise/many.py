"""Many policies side by side, some of which are drawn anew: the cost is in proportion to their number."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

MANY = 64
"""Policies from which on only those that are needed are drawn: of few it costs less to draw all."""
LARGE = 4_096
"""Policies from which on the numbers below are those of a large GPU."""
PARTS, LARGE_PARTS = 32, 64
"""A chunk of policies that are drawn together is a part of all: where fewer are needed, the rest is wasted. The parts
of fewer than `LARGE` policies, and of as many or more."""
TURNS = 16
"""The parts in which `LARGE` policies or more act one after the other."""
NEVER = 0x7FC0DEAD
"""The bits of a float32, not a number, that no computation makes."""
ROW = 128
"""Policies that are counted together; of more, rows are counted first."""

_takes_turns = ContextVar("takes_turns", default=False)

Draw = Callable[[Array, Any], Any]
"""Makes the arrays of one policy from its place among those of its seed and from what policies are drawn from."""


def replace_some(draw: Draw, policies: Any, source: Any, chosen: Array) -> Any:
    """Draws the chosen ones of many policies anew, as many chunks as are needed, and leaves the others alone.

    Under `vmap` over seeds the policies of all seeds are drawn together. No draw depends on what else is chosen.

    Args:
        draw: makes one policy.
        policies: their arrays, [policies, ...].
        source: the arrays that they are drawn from.
        chosen: bool[policies].

    Returns:
        The policies, replaced where `chosen` is true.
    """

    def in_chunks(policies: Any, sources: Any, chosen: Array) -> Any:
        places, chunk = places_of(chosen), chunk_of(chosen.size)
        chunks = (jnp.sum(chosen, dtype=jnp.int32) + chunk - 1) // chunk

        def replace_chunk(i: Array, policies: Any) -> Any:
            return _replace(draw, policies, sources, jax.lax.dynamic_slice(places, (i * chunk,), (chunk,)))

        return jax.lax.fori_loop(0, chunks, replace_chunk, policies)

    return _over_seeds(in_chunks, policies, source, chosen)


def replace_first(draw: Draw, policies: Any, source: Any, chosen: Array) -> tuple[Any, Array]:
    """As `replace_some`, but draws one chunk, needed or not: what it costs is always the same.

    On an accelerator the host is asked before each round of a loop that has as many rounds as are needed.

    Returns:
        The policies, and which of the chosen are left, bool[policies].
    """

    def in_one_chunk(policies: Any, sources: Any, chosen: Array) -> tuple[Any, Array]:
        chunk = chunk_of(chosen.size)
        after = _replace(draw, policies, sources, places_of(chosen)[:chunk])
        return after, chosen & (numbers_of(chosen) >= chunk)

    return _over_seeds(in_one_chunk, policies, source, chosen)


@contextlib.contextmanager
def taking_turns() -> Iterator[None]:
    """What is traced within has `values_of_each` read thousands of policies in parts, one after the other.

    Reading all of them fills a GPU for as long as it takes, so that small programs which could run beside it wait: with
    16,384 policies the train steps of a step did. Between two parts they get their turn.
    """
    before = _takes_turns.set(True)
    try:
        yield
    finally:
        _takes_turns.reset(before)


def values_of_each(call: Callable[[Any, Array], Array], policies: Any, obs: Array) -> Array:
    """What each of several policies makes of its own observation.

    Args:
        call: makes the values of one policy.
        policies: arrays, [policies, ...].
        obs: [policies, ...].

    Returns:
        The values, [policies, ...].
    """
    each, size = eqx.filter_vmap(call), obs.shape[0]
    if not _takes_turns.get() or size < LARGE or size % TURNS:
        return each(policies, obs)
    values: list[Array] = []
    for turn in range(TURNS):
        places = slice(turn * size // TURNS, (turn + 1) * size // TURNS)
        part = jax.tree.map(lambda leaf: leaf[places] if eqx.is_array(leaf) else leaf, policies)  # noqa: B023
        seen = obs[places]
        if values:  # no part begins before a number of the one before is known, whatever it is
            bits = jax.lax.bitcast_convert_type(values[-1].reshape(-1)[0].astype(jnp.float32), jnp.int32)
            seen = jnp.where(bits == NEVER, 0, seen)
        values.append(each(part, seen))
    return jnp.concatenate(values)


def chunk_of(size: int) -> int:
    """How many of so many policies are drawn together."""
    return -(-size // (LARGE_PARTS if size >= LARGE else PARTS))


def loops_are_cheap() -> bool:
    """Whether a loop of as many rounds as are needed costs no more than its rounds: not on an accelerator."""
    return jax.default_backend() == "cpu"


def _over_seeds(change: Callable[[Any, Any, Array], Any], policies: Any, source: Any, chosen: Array) -> Any:
    """Changes policies; under `vmap` those of all seeds at once, as one axis.

    Args:
        change: of policies [seeds * policies, ...], sources [seeds, ...], chosen [seeds * policies]; neighbouring
            policies are of one seed. What it returns has the axis of policies.
        policies: arrays, [policies, ...].
        source: what they are drawn from.
        chosen: bool[policies].
    """

    @jax.custom_batching.custom_vmap
    def of_one_seed(policies: Any, source: Any, chosen: Array) -> Any:
        return change(policies, jax.tree.map(lambda leaf: leaf[None], source), chosen)

    @of_one_seed.def_vmap
    def _(axis_size: int, in_batched: Any, *parts: Any) -> tuple[Any, Any]:
        policies, sources, chosen = jax.tree.map(
            lambda leaf, has: leaf if has else jnp.broadcast_to(leaf, (axis_size, *jnp.shape(leaf))),
            parts,
            tuple(in_batched),
        )
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (policies, chosen))
        after = change(flat[0], sources, flat[1])
        after = jax.tree.map(lambda leaf: leaf.reshape(axis_size, -1, *leaf.shape[1:]), after)
        return after, jax.tree.map(lambda _: True, after)

    return of_one_seed(policies, source, chosen)


def _replace(draw: Draw, policies: Any, sources: Any, places: Array) -> Any:
    """Draws the policies of some places anew; those that are no places are left out."""
    size, seeds = (jax.tree.leaves(tree)[0].shape[0] for tree in (policies, sources))
    here, per_seed = jnp.minimum(places, size - 1), size // seeds
    if seeds == 1:  # nothing to choose from
        fresh = jax.vmap(draw, in_axes=(0, None))(here, jax.tree.map(lambda leaf: leaf[0], sources))
    else:
        fresh = jax.vmap(draw)(here % per_seed, jax.tree.map(lambda leaf: leaf[here // per_seed], sources))
    return jax.tree.map(lambda old, new: old.at[places].set(new.astype(old.dtype), mode="drop"), policies, fresh)


def places_of(chosen: Array) -> Array:
    """The places of the chosen ones in order, and after them the number of places, as long as all chunks are."""
    size = chosen.shape[0]
    chunk = chunk_of(size)
    length = -(-size // chunk) * chunk
    numbers = jnp.where(chosen, numbers_of(chosen), length)
    return jnp.full(length, size).at[numbers].set(jnp.arange(size), mode="drop")


def numbers_of(chosen: Array) -> Array:
    """How many are chosen before each place, which numbers the chosen from 0 on.

    They are counted within rows by a product with a triangle of ones, and by rows with a mask: on a GPU a running sum
    is many small programs. No precision of a product has an error in ones and zeros.
    """
    size = chosen.shape[0]
    rows = jnp.pad(chosen, (0, -size % ROW)).reshape(-1, ROW).astype(jnp.float32)
    row = jnp.arange(rows.shape[0])  # not of NumPy: its mask would be a constant, of 67 MB for a million
    within = (rows @ np.triu(np.ones((ROW, ROW), np.float32), 1)).astype(jnp.int32)
    before = jnp.sum(jnp.where((row < row[:, None])[:, :, None], rows, 0), axis=(1, 2)).astype(jnp.int32)
    return (before[:, None] + within).reshape(-1)[:size]
