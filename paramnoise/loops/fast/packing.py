"""How a pytree crosses a compiled call: flattening its modules, or passing each array, may cost more than the call."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class FlatVectors:
    """A tree as one flat vector for each dtype: many small arrays become few. Made once, for trees of one structure."""

    def __init__(self, tree: Any):
        """Takes the layout of a tree of arrays, or of their shapes."""
        leaves, self._structure = jax.tree.flatten(tree)
        self._dtypes = [leaf.dtype for leaf in leaves]
        self._kinds = sorted(set(self._dtypes), key=str)
        ends = dict.fromkeys(self._kinds, 0)
        self._places = []  # of each leaf: its vector, where it begins and ends there, its shape
        for leaf, dtype in zip(leaves, self._dtypes, strict=True):
            start = ends[dtype]
            ends[dtype] += int(np.prod(leaf.shape))
            self._places.append((self._kinds.index(dtype), start, ends[dtype], leaf.shape))

    def pack(self, tree: Any) -> list[Array]:
        """The vectors of a tree."""
        leaves = jax.tree.leaves(tree)
        return [
            jnp.concatenate([leaf.ravel() for leaf, dtype in zip(leaves, self._dtypes, strict=True) if dtype == kind])
            for kind in self._kinds
        ]

    def unpack(self, vectors: Sequence[Any]) -> Any:
        """The tree of these vectors, JAX's or NumPy's."""
        leaves = [vectors[kind][start:end].reshape(shape) for kind, start, end, shape in self._places]
        return jax.tree.unflatten(self._structure, leaves)


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
