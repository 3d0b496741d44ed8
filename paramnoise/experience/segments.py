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
from jax.flatten_util import ravel_pytree

UNROLLED = 8
"""Columns that one pass over the rows of a minibatch adds up."""


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


class Table(eqx.Module):
    """The offsets of a linear layer, of all segments: rows of a minibatch take theirs without a copy of it.

    A matrix for each row, gathered, would be written to memory and read back twice. Instead a product adds up columns,
    one after the other for all rows at once, and each is read where it is: forward those of the matrix, backward those
    of its transpose. So both are kept.
    """

    weight: Array
    """[segments, outputs, inputs]."""
    across: Array
    """[segments, inputs, outputs]."""
    bias: Array | None
    """[segments, outputs]."""

    def __call__(self, segment: Array, x: Array) -> Array:
        """What the offset of one segment makes of an input; for many rows under `vmap`."""
        product = _product(self.weight, self.across, segment, x.astype(self.weight.dtype))  # it may show whole numbers
        return product if self.bias is None else product + self.bias[segment]


@jax.custom_vjp
def _product(weight: Array, across: Array, segment: Array, x: Array) -> Array:
    """The segment's matrix times x; gradients go to x alone."""
    return _add_up(across, segment, x)


def _product_forward(weight: Array, across: Array, segment: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
    return _add_up(across, segment, x), (weight, segment)


def _product_backward(kept: tuple[Array, Array], slope: Array) -> tuple[None, None, None, Array]:
    return None, None, None, _add_up(*kept, slope)


_product.defvjp(_product_forward, _product_backward)


def _add_up(columns: Array, segment: Array, factors: Array) -> Array:
    """The sum of a segment's columns, [segments, number, length], each by its factor."""
    add = lambda i, total: total + factors[i] * columns[segment, i]  # noqa: E731
    number, length = columns.shape[1:]
    return jax.lax.fori_loop(0, number, add, jnp.zeros(length, factors.dtype), unroll=min(UNROLLED, number))


class _BesideRow(eqx.Module):
    """A linear layer and its table of offsets, of which one segment's is applied to the input too."""

    layer: eqx.nn.Linear
    table: Table
    segment: Array

    def __call__(self, x: Array) -> Array:
        return self.layer(x) + self.table(self.segment, x)


def _has_table(node: Any) -> bool:
    """Whether a node of a policy is a linear layer between vectors."""
    return isinstance(node, eqx.nn.Linear) and "scalar" not in (node.in_features, node.out_features)


def tables(policy: Any, offsets: Array) -> Any:
    """The offsets of all segments, [segments, parameters], as `beside_row` takes them; made once a batch."""
    stacked = jax.vmap(ravel_pytree(policy)[1])(offsets)
    table = lambda layer: Table(layer.weight, jnp.swapaxes(layer.weight, 1, 2), layer.bias)  # noqa: E731
    return jax.tree.map(lambda node: table(node) if _has_table(node) else node, stacked, is_leaf=_has_table)


def beside_row(policy: Any, tables: Any, segment: Array) -> Any:
    """The policy at its parameters plus the offset of one segment of those in `tables`; for many rows under `vmap`."""
    join = lambda node, own: _BesideRow(node, own, segment) if _has_table(node) else node + own[segment]  # noqa: E731
    return jax.tree.map(join, policy, tables, is_leaf=_has_table)
