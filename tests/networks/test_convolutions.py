"""Convolutions as products against XLA's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from paramnoise.networks import convolutions
from paramnoise.networks.convolutions import NATURE, Convolution, Convolutions, output_size, stack_patches

CASES = [
    ((13, 10), ((3, 4, 2), (2, 3, 1))),  # pixels are left over, in rows and in columns
    ((14, 9), ((3, 4, 4), (2, 2, 1))),
    ((5, 6), ((2, 3, 1), (3, 2, 2))),
]


def kernel(layer: Convolution, of_stack: bool) -> Array:
    """The weights as XLA orders them: [filters, channels, rows, columns]."""
    reach = layer.size // layer.stride
    cells = (layer.weight.shape[0], reach, reach)
    if of_stack:
        blocks = layer.weight.reshape(*cells, -1, layer.stride, layer.stride).transpose(0, 3, 1, 4, 2, 5)
    else:
        blocks = layer.weight.reshape(*cells, layer.stride, layer.stride, -1).transpose(0, 5, 1, 3, 2, 4)
    return blocks.reshape(layer.weight.shape[0], -1, layer.size, layer.size)


def convolve(layer: Convolution, image: Array, of_stack: bool = False) -> Array:
    """[channels, height, width] -> [filters, rows, columns]."""
    strides = (layer.stride, layer.stride)
    out = jax.lax.conv_general_dilated(image[None], kernel(layer, of_stack), strides, "VALID")[0]
    return out + layer.bias[:, None, None]


def reference(convolutions: Convolutions, stack: Array) -> Array:
    x = stack.astype(jnp.float32) / 255
    for i, layer in enumerate(convolutions.layers):
        x = jax.nn.relu(convolve(layer, x, of_stack=i == 0))
    return x.transpose(1, 2, 0).reshape(-1)


def stacks(count: int, frame_shape: tuple[int, int]) -> Array:
    return jax.random.randint(jax.random.key(0), (count, 4, *frame_shape), 0, 256).astype(jnp.uint8)


def several(count: int, layers) -> Convolutions:
    """Different ones, with a leading axis on every array."""
    make = jax.jit(jax.vmap(lambda key: Convolutions(4, layers, key=key)))
    return make(jax.random.split(jax.random.key(1), count))


@pytest.mark.parametrize(("frame_shape", "layers"), CASES)
def test_features_and_gradients_are_those_of_xla_for_a_vector_of_different_networks(frame_shape, layers):
    networks, seen = several(2, layers), stacks(2, frame_shape)
    weights = jax.random.normal(jax.random.key(2), (2, output_size(frame_shape, layers)))

    def outcome(call, networks):
        """Features of each network on its own stack, and a sum of them that tells them apart."""
        features = jax.vmap(call)(networks, seen)
        return jnp.sum(features * weights), features

    def both(call):
        return jax.jit(jax.grad(functools.partial(outcome, call), has_aux=True))(networks)

    gradients, features = both(lambda network, stack: network(stack))
    expected_gradients, expected = both(reference)
    assert features.shape == weights.shape
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-5)
    for found, wanted in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected_gradients), strict=True):
        assert np.abs(wanted).max() > 0
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


SMALL = (44, 36)


def batch_outcome(call, network):
    """The gradient of a sum of a batch's features that tells them apart, as one vector, and the features."""
    weights = jax.random.normal(jax.random.key(2), (3, output_size(SMALL, NATURE)))

    def outcome(network):
        features = call(network, stacks(3, SMALL))
        return jnp.sum(features * weights), features

    gradient, features = jax.jit(jax.grad(outcome, has_aux=True))(network)
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)]), features


@functools.cache
def batch_outcome_of_xla():
    return batch_outcome(jax.vmap(reference, in_axes=(None, 0)), Convolutions(4, NATURE, key=jax.random.key(0)))


# bfloat16 has 8 bits, and moves some units to the other side of 0.
@pytest.mark.parametrize(("precision", "least", "most"), [("float32", 0, 1e-5), ("bfloat16", 1e-3, 0.05)])
def test_features_and_gradient_of_a_batch_are_those_of_xla_within_the_precision(precision, least, most):
    network = Convolutions(4, NATURE, key=jax.random.key(0), precision=precision)
    found = batch_outcome(lambda network, stacks: network.of_batch(stacks), network)
    for ours, theirs in zip(found, batch_outcome_of_xla(), strict=True):
        assert ours.dtype == jnp.float32
        assert least <= np.linalg.norm(ours - theirs) / np.linalg.norm(theirs) < most


@pytest.mark.parametrize(("has_instructions", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_takes_bfloat16_where_the_cpu_multiplies_it(monkeypatch, has_instructions, expected):
    monkeypatch.setattr(convolutions, "_cpu_multiplies_bfloat16", lambda: has_instructions)
    assert convolutions.product_dtype("auto") == expected
    assert convolutions.product_dtype("float32") == "float32"


def test_a_patch_is_ordered_by_cell_frame_and_pixel():
    stack = jnp.arange(2 * 3 * 4, dtype=jnp.uint8).reshape(2, 3, 4)
    patches = stack_patches(stack, 2, 1)
    assert patches.shape == (2, 3, 8)
    assert patches[1, 2].tolist() == [6, 18, 7, 19, 10, 22, 11, 23]
    assert stack_patches(stack, 2, 2)[0, 1].tolist() == [2, 3, 6, 7, 14, 15, 18, 19]


@pytest.mark.parametrize(
    ("frame_shape", "layers", "features"),
    [
        ((84, 84), NATURE, 7 * 7 * 64),  # 84 -> 20 -> 9 -> 7
        ((12, 12), ((4, 4, 2), (8, 3, 1)), 3 * 3 * 8),  # 12 -> 5 -> 3
        ((13, 10), ((3, 4, 2), (2, 3, 1)), 3 * 2 * 2),  # 13 -> 5 -> 3, 10 -> 4 -> 2
        ((36, 36), NATURE, 1 * 1 * 64),  # 36 -> 8 -> 3 -> 1: the smallest
        ((35, 84), NATURE, 0),
        ((3, 3), NATURE, 0),
    ],
)
def test_the_number_of_features(frame_shape, layers, features):
    assert output_size(frame_shape, layers) == features
