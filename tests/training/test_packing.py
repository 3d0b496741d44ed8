import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.loops.fast.packing import Packing

TREE = {
    "weights": jnp.arange(6.0).reshape(2, 3),
    "count": jnp.int32(7),
    "key": jnp.array([1, 2], jnp.uint32),
    "bias": jnp.array([8.0, 9.0]),
    "nothing": jnp.zeros((0, 4)),
}


def test_there_is_one_vector_for_each_dtype_with_the_leaves_in_order():
    floats, ints, words = Packing(TREE).pack(TREE)
    np.testing.assert_array_equal(floats, [8, 9, 0, 1, 2, 3, 4, 5])  # a dict's leaves are ordered by name
    np.testing.assert_array_equal(ints, [7])
    np.testing.assert_array_equal(words, [1, 2])


def test_unpacking_gives_the_tree_back_bit_for_bit():
    packing = Packing(TREE)
    back = jax.jit(lambda tree: packing.unpack(packing.pack(tree)))(TREE)
    assert jax.tree.structure(back) == jax.tree.structure(TREE)
    for old, new in zip(jax.tree.leaves(TREE), jax.tree.leaves(back), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
        np.testing.assert_array_equal(old, new)


def test_a_tree_without_arrays_needs_no_vector():
    assert Packing(()).pack(()) == []
    assert Packing(()).unpack([]) == ()
