"""How a pytree crosses a compiled call: flattening its modules, or passing each array, may cost more than the call."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

LARGE = 2**14
"""Numbers of an array from which it crosses a call by itself: to copy it costs more than to pass it. Weights of 64 x 64
are below it, those of 256 x 256 above."""


class FlatVectors:
    """A tree as one flat vector for each dtype, so that many small arrays become few, and its large arrays as they are.

    Made once, for trees of one structure.
    """

    def __init__(self, tree: Any):
        """Takes the layout of a tree of arrays, or of their shapes."""
        leaves, self._structure = jax.tree.flatten(tree)
        sizes = [int(np.prod(leaf.shape)) for leaf in leaves]
        self._large = [place for place, size in enumerate(sizes) if size >= LARGE]
        dtypes = {place: leaf.dtype for place, leaf in enumerate(leaves) if place not in self._large}
        self._joined = [[p for p in dtypes if dtypes[p] == kind] for kind in sorted(set(dtypes.values()), key=str)]
        self._places = {}  # of each small leaf: its vector, where it begins and ends there, its shape
        for vector, places in enumerate(self._joined):
            ends = np.cumsum([sizes[place] for place in places]).tolist()
            for place, end in zip(places, ends, strict=True):
                self._places[place] = (vector, end - sizes[place], end, leaves[place].shape)

    def pack(self, tree: Any) -> list[Array]:
        """The vectors of a tree, then its large arrays."""
        leaves = jax.tree.leaves(tree)
        vectors = [jnp.concatenate([leaves[place].ravel() for place in places]) for places in self._joined]
        return vectors + [leaves[place] for place in self._large]

    def unpack(self, packed: Sequence[Any]) -> Any:
        """The tree of what `pack` gave, in arrays of JAX or NumPy; they may have axes before those of one tree."""
        found = dict(zip(self._large, packed[len(self._joined) :], strict=True))
        for place, (vector, start, end, shape) in self._places.items():
            own = packed[vector]
            one = own.ndim == 1  # which is the quicker to cut
            found[place] = own[start:end].reshape(shape) if one else own[..., start:end].reshape(own.shape[:-1] + shape)
        return jax.tree.unflatten(self._structure, [found[place] for place in range(len(found))])


class Leaves:
    """A tree as the list of its arrays: nothing is copied, however large they are. The face of `FlatVectors`."""

    def __init__(self, tree: Any):
        """Takes the structure of a tree."""
        self._structure = jax.tree.structure(tree)

    def pack(self, tree: Any) -> list[Array]:
        """The arrays of a tree."""
        return jax.tree.leaves(tree)

    def unpack(self, arrays: Sequence[Any]) -> Any:
        """The tree of these arrays."""
        return jax.tree.unflatten(self._structure, list(arrays))


Packing = FlatVectors | Leaves
