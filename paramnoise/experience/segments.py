"""Sums over a batch in which every episode has parameters of its own.

A segment is the part of one episode that a batch holds. Rows are in order of environment, then step, so that a
segment's rows are contiguous. Gathering parameters for each row would cost thousands of copies of the policy; so
segments are cut into chunks, parameters are gathered per chunk, and sums run over blocks of chunks. The number of
blocks is known only at run time: one compiled program serves any number of episodes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Chunks(NamedTuple):
    """Rows of a batch, cut into chunks that belong to one segment each."""

    first: Any
    """The first row of each chunk, [capacity]."""
    length: Any
    """How many rows each has, [capacity]; 0 beyond `count`."""
    segment: Any
    """The segment of each, [capacity]."""
    count: Any
    """Chunks in use."""


class Layout(NamedTuple):
    """How rows are cut; decides shapes, so it is fixed for a program."""

    stride: int
    """One row of this many is taken: 1 takes all."""
    rows: int
    """Rows of a chunk at the most."""
    block: int
    """Chunks that are evaluated together."""

    def capacity(self, num_rows: int, num_segments: int) -> int:
        """Chunks that any batch of that many rows and at most that many segments fits in, as whole blocks."""
        most = -(-num_rows // (self.stride * self.rows)) + num_segments
        return -(-most // self.block) * self.block


def cut(segments: np.ndarray, layout: Layout, num_segments: int, phase: int = 0) -> Chunks:
    """Cuts a batch into chunks, on the host.

    Args:
        segments: the segment of each row, [rows]; those of a segment are contiguous.
        layout: how to cut.
        num_segments: more than any segment's number; decides the capacity.
        phase: the first row that a stride takes.
    """
    taken = np.arange(phase % layout.stride, len(segments), layout.stride)
    of_taken = segments[taken]
    begins = np.flatnonzero(np.diff(of_taken, prepend=-1))
    lengths = np.diff(begins, append=len(taken))
    pieces = -(-lengths // layout.rows)
    which = np.repeat(np.arange(len(begins)), pieces)  # of each chunk, the segment in order
    inner = np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # and its place in it
    chunks = np.zeros((3, layout.capacity(len(segments), num_segments)), np.int32)
    chunks[0, : len(which)] = taken[begins[which] + inner * layout.rows]
    chunks[1, : len(which)] = np.minimum(layout.rows, lengths[which] - inner * layout.rows)
    chunks[2, : len(which)] = of_taken[begins[which]]
    first, length, segment = chunks
    return Chunks(first, length, segment, np.int32(len(which)))


class Block(NamedTuple):
    """What a block of chunks holds, [block, rows, ...]."""

    row: Array
    """The number of each row; that of some other row where `weight` is 0."""
    weight: Array
    """1 for a row of the batch, 0 for padding."""
    offset: Array
    """What the chunk's segment adds to the parameters, [block, parameters]."""
    place: Array
    """Where the block is among all chunks: the number of its first."""


def accumulate(
    function: Callable[[Block, Any], Any], chunks: Chunks, offsets: Array, layout: Layout, num_rows: int, start: Any
) -> Any:
    """Carries a value over all blocks: `function(block, carry)` returns the next carry.

    Args:
        function: called for each block.
        chunks: what `cut` made.
        offsets: of each segment, [segments, parameters].
        layout: the layout of the chunks.
        num_rows: rows of the batch.
        start: the first carry.
    """

    def step(i: Array, carry: Any) -> Any:
        place = i * layout.block
        first, length, segment = (jax.lax.dynamic_slice_in_dim(x, place, layout.block) for x in chunks[:3])
        within = jnp.arange(layout.rows)
        row = jnp.minimum(first[:, None] + layout.stride * within, num_rows - 1)
        weight = (within < length[:, None]).astype(jnp.float32)
        return function(Block(row, weight, offsets[segment], place), carry)

    return jax.lax.fori_loop(0, -(-chunks.count // layout.block), step, start)


class _Beside(eqx.Module):
    """A linear layer and the offset of its parameters, applied to the input side by side."""

    layer: eqx.nn.Linear
    offset: eqx.nn.Linear

    def __call__(self, x: Array) -> Array:
        return self.layer(x) + self.offset(x)


def beside(policy: Any, offset: Any) -> Any:
    """The policy at its parameters plus an offset, both of the same structure.

    A linear layer with the sum of two matrices is the sum of two layers. So the clean matrix stays one for all
    segments, and what is computed with it, gradients above all, is one large product and not one for each segment.
    """
    is_linear = lambda node: isinstance(node, eqx.nn.Linear)  # noqa: E731
    join = lambda node, added: _Beside(node, added) if is_linear(node) else node + added  # noqa: E731
    return jax.tree.map(join, policy, offset, is_leaf=is_linear)
