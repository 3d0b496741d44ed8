"""Trees as few vectors, or as lists of their arrays, and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.loops.fast.packing import LARGE, FlatVectors, Leaves

TREE = {
    "weights": jnp.arange(6.0).reshape(2, 3),
    "count": jnp.int32(7),
    "key": jnp.array([1, 2], jnp.uint32),
    "bias": jnp.array([8.0, 9.0]),
    "nothing": jnp.zeros((0, 4)),
}


def test_there_is_one_vector_for_each_dtype_with_the_leaves_in_order():
    floats, ints, words = FlatVectors(TREE).pack(TREE)
    np.testing.assert_array_equal(floats, [8, 9, 0, 1, 2, 3, 4, 5])  # a dict's leaves are ordered by name
    np.testing.assert_array_equal(ints, [7])
    np.testing.assert_array_equal(words, [1, 2])


def test_a_large_array_crosses_beside_the_vectors_as_it_is():
    tree = {"moment": jnp.ones((LARGE // 8, 8)), "weights": jnp.arange(6.0).reshape(2, 3)}
    packing = FlatVectors(tree)
    vector, large = packing.pack(tree)
    np.testing.assert_array_equal(vector, np.arange(6))
    assert large is tree["moment"]
    assert packing.unpack([vector, large])["moment"] is large


@pytest.mark.parametrize("kind", [FlatVectors, Leaves])
def test_unpacking_gives_the_tree_back_bit_for_bit(kind):
    packing = kind(TREE)
    back = jax.jit(lambda tree: packing.unpack(packing.pack(tree)))(TREE)
    assert jax.tree.structure(back) == jax.tree.structure(TREE)
    for old, new in zip(jax.tree.leaves(TREE), jax.tree.leaves(back), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("kind", [FlatVectors, Leaves])
def test_a_tree_without_arrays_needs_no_vector(kind):
    assert kind(()).pack(()) == []
    assert kind(()).unpack([]) == ()


def test_large_arrays_are_passed_on_and_not_copied():
    packed = Leaves(TREE).pack(TREE)
    assert all(one is other for one, other in zip(packed, jax.tree.leaves(TREE), strict=True))
