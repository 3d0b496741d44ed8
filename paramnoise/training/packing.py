"""Many small arrays as few flat ones: a compiled call pays for each array that crosses it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Packing:
    """The layout of a pytree's arrays in one flat vector for each dtype; made once, for all trees of one structure."""

    def __init__(self, tree: Any):
        """Takes the layout of a tree of arrays, or of their shapes."""
        leaves, self._structure = jax.tree.flatten(tree)
        self._shapes = [leaf.shape for leaf in leaves]
        self._dtypes = [leaf.dtype for leaf in leaves]
        self._kinds = sorted(set(self._dtypes), key=str)

    def pack(self, tree: Any) -> list[Array]:
        """The vectors of a tree."""
        leaves = jax.tree.leaves(tree)
        return [
            jnp.concatenate([leaf.ravel() for leaf, dtype in zip(leaves, self._dtypes, strict=True) if dtype == kind])
            for kind in self._kinds
        ]

    def unpack(self, vectors: Sequence[Any]) -> Any:
        """The tree of these vectors, JAX's or NumPy's."""
        starts = dict.fromkeys(self._kinds, 0)
        leaves = []
        for shape, dtype in zip(self._shapes, self._dtypes, strict=True):
            start, size = starts[dtype], int(np.prod(shape))
            leaves.append(vectors[self._kinds.index(dtype)][start : start + size].reshape(shape))
            starts[dtype] += size
        return jax.tree.unflatten(self._structure, leaves)
