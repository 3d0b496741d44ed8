"""Noisy layers against arrays written out by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.networks import MLP, PixelQNetwork, QNetwork
from paramnoise.networks.noisy import DrawnLinear, NoisyLinear, draw_noise, noise_scale, with_noisy_layers
from paramnoise.noise import perturb


@jax.jit
def made(key):
    """A layer, a layer without bias, networks of vectors and of pixels; as one program."""
    frames = PixelQNetwork((4, 6, 6), ((2, 2, 2),), (5,), 3, key=key)
    both = QNetwork((4, 8, 2), key=key, policy_head=True, dueling=True)
    linear, without_bias = (eqx.nn.Linear(4, 2, use_bias=bias, key=key) for bias in (True, False))
    return linear, without_bias, MLP((30, 20, 10), key=key), both, frames


LINEAR, WITHOUT_BIAS, NETWORK, BOTH, FRAMES = made(jax.random.key(0))
X = jnp.array([1.0, -2.0, 0.5, 3.0])
drawn = jax.jit(draw_noise)


def hand_made():
    layer = NoisyLinear(LINEAR, 0.5)
    mean = eqx.tree_at(lambda n: [n.weight, n.bias], LINEAR, [jnp.ones((2, 4)), jnp.array([1.0, -1.0])])
    parts = [mean, jnp.array([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 2.0]]), jnp.array([0.5, 0.25])]
    return eqx.tree_at(lambda n: [n.mean, n.weight_sigma, n.bias_sigma], layer, parts)


def test_a_layer_begins_with_the_means_of_an_ordinary_one_and_sigma_over_the_root_of_its_inputs():
    layer = NoisyLinear(LINEAR, 0.5)
    np.testing.assert_array_equal(layer.mean.weight, LINEAR.weight)
    np.testing.assert_allclose(layer.weight_sigma, np.full((2, 4), 0.25))
    np.testing.assert_allclose(layer.bias_sigma, np.full(2, 0.25))
    np.testing.assert_array_equal(layer(X), LINEAR(X))  # noise-free


def test_noise_is_factorised_over_inputs_and_outputs():
    layer, inputs, outputs = hand_made(), np.array([1.0, -1.0, 2.0, 0.5]), np.array([2.0, -1.0])
    weight = np.asarray(layer.mean.weight) + np.asarray(layer.weight_sigma) * np.outer(outputs, inputs)
    np.testing.assert_allclose(weight[0], [1.2, 0.6, 2.2, 1.4], rtol=1e-6)
    np.testing.assert_allclose(weight[1], [0.0, 1.0, 1.0, 0.0], atol=1e-6)
    bias = np.array([1.0 + 0.5 * 2, -1.0 - 0.25])
    noisy = DrawnLinear(layer, jnp.asarray(inputs), jnp.asarray(outputs))
    np.testing.assert_allclose(noisy(X), weight @ np.asarray(X) + bias, rtol=1e-5)


def test_factors_are_signed_roots_of_normal_numbers_and_each_layer_has_its_own():
    first, second = drawn(jax.random.key(2), with_noisy_layers(NETWORK, 0.5)).layers
    draws = np.asarray(jax.random.normal(jax.random.key(2), (80,)))
    roots = np.sign(draws) * np.sqrt(np.abs(draws))
    for found, expected in zip(
        (first.inputs, first.outputs, second.inputs, second.outputs), np.split(roots, [30, 50, 70]), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_network_without_noisy_layers_is_left_as_it_is():
    assert draw_noise(jax.random.key(0), NETWORK) is NETWORK
    assert noise_scale(NETWORK) is None


def test_every_linear_layer_of_a_network_is_made_noisy_and_no_other_leaf_is_changed():
    network = with_noisy_layers(BOTH, 0.4)
    means = jax.tree.map(
        lambda n: n.mean if isinstance(n, NoisyLinear) else n, network, is_leaf=lambda n: isinstance(n, NoisyLinear)
    )
    assert eqx.tree_equal(means, BOTH)
    assert noise_scale(network) == pytest.approx(0.4)
    heads = jax.jit(lambda net: net.heads(X[None]))
    clean, mean, noisy = heads(BOTH), heads(network), heads(drawn(jax.random.key(3), network))
    np.testing.assert_allclose(np.concatenate(mean), np.concatenate(clean), rtol=1e-6)
    assert [np.allclose(one, other) for one, other in zip(noisy, clean, strict=True)] == [False, False]


def test_on_pixels_the_heads_are_noisy_and_the_convolutions_are_not():
    network = drawn(jax.random.key(1), with_noisy_layers(FRAMES, 0.5))
    assert eqx.tree_equal(network.convolutions, FRAMES.convolutions)
    assert [type(layer) for layer in network.q.layers] == [DrawnLinear] * 2
    stacks = jax.ShapeDtypeStruct((7, 4, 6, 6), jnp.uint8)
    assert jax.eval_shape(lambda net, s: net.values(s), network, stacks).shape == (7, 3)


def test_parameter_noise_perturbs_means_and_no_standard_deviation():
    network = with_noisy_layers(NETWORK, 0.5)
    perturbed = jax.jit(perturb)(jax.random.key(1), network, 0.1)
    for old, new in zip(network.layers, perturbed.layers, strict=True):
        assert np.all(old.mean.weight != new.mean.weight)
        np.testing.assert_array_equal(old.weight_sigma, new.weight_sigma)
        np.testing.assert_array_equal(old.bias_sigma, new.bias_sigma)


def test_a_layer_without_bias_stays_without():
    layer = with_noisy_layers(WITHOUT_BIAS, 0.5)
    noisy = drawn(jax.random.key(1), layer)
    weight = np.asarray(layer.mean.weight) + np.asarray(layer.weight_sigma) * np.outer(noisy.outputs, noisy.inputs)
    np.testing.assert_allclose(noisy(X), weight @ np.asarray(X), rtol=1e-5)
