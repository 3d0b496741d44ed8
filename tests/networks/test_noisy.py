"""Noisy layers against arrays written out by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.networks import MLP, PixelQNetwork, QNetwork
from paramnoise.networks.noisy import DrawnLinear, NoisyLinear, draw_noise, noise_scale, with_noisy_layers
from paramnoise.noise import perturb

LINEAR = eqx.nn.Linear(4, 2, key=jax.random.key(0))
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
    network = with_noisy_layers(MLP((300, 200, 100), key=jax.random.key(1)), 0.5)
    first, second = drawn(jax.random.key(2), network).layers
    draws = jax.random.normal(jax.random.key(2), (800,))
    roots = np.sign(draws) * np.sqrt(np.abs(draws))
    for found, expected in zip(
        (first.inputs, first.outputs, second.inputs, second.outputs), np.split(roots, [300, 500, 700]), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.mean(roots**2) == pytest.approx(np.sqrt(2 / np.pi), abs=0.1)  # E|N(0, 1)|


def test_a_network_without_noisy_layers_is_left_as_it_is():
    network = QNetwork((4, 8, 2), key=jax.random.key(0))
    assert draw_noise(jax.random.key(0), network) is network
    assert noise_scale(network) is None


def test_every_linear_layer_of_a_network_is_made_noisy_and_no_other_leaf_is_changed():
    plain = QNetwork((4, 8, 2), key=jax.random.key(0), policy_head=True, dueling=True)
    network = with_noisy_layers(plain, 0.4)
    means = jax.tree.map(
        lambda n: n.mean if isinstance(n, NoisyLinear) else n, network, is_leaf=lambda n: isinstance(n, NoisyLinear)
    )
    assert eqx.tree_equal(means, plain)
    assert noise_scale(network) == pytest.approx(0.4)
    np.testing.assert_allclose(network.values(X[None]), plain.values(X[None]))
    values, logits = draw_noise(jax.random.key(3), network).heads(X[None])
    assert not np.allclose(values, plain.values(X[None]))
    assert not np.allclose(logits, plain.heads(X[None])[1])


def test_on_pixels_the_heads_are_noisy_and_the_convolutions_are_not():
    plain = PixelQNetwork((4, 6, 6), ((2, 2, 2),), (5,), 3, key=jax.random.key(0))
    network = drawn(jax.random.key(1), with_noisy_layers(plain, 0.5))
    assert eqx.tree_equal(network.convolutions, plain.convolutions)
    assert [type(layer) for layer in network.q.layers] == [DrawnLinear] * 2
    assert network.values(jnp.ones((7, 4, 6, 6), jnp.uint8)).shape == (7, 3)


def test_parameter_noise_perturbs_means_and_no_standard_deviation():
    network = with_noisy_layers(MLP((4, 8, 2), key=jax.random.key(0)), 0.5)
    perturbed = perturb(jax.random.key(1), network, 0.1)
    for old, new in zip(network.layers, perturbed.layers, strict=True):
        assert np.all(old.mean.weight != new.mean.weight)
        np.testing.assert_array_equal(old.weight_sigma, new.weight_sigma)
        np.testing.assert_array_equal(old.bias_sigma, new.bias_sigma)


def test_a_layer_without_bias_stays_without():
    layer = with_noisy_layers(eqx.nn.Linear(4, 2, use_bias=False, key=jax.random.key(0)), 0.5)
    noisy = draw_noise(jax.random.key(1), layer)
    weight = layer.mean.weight + layer.weight_sigma * jnp.outer(noisy.outputs, noisy.inputs)
    np.testing.assert_allclose(noisy(X), weight @ X, rtol=1e-5)
