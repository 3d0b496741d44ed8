import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from paramnoise import noise
from paramnoise.networks import MLP, BootstrappedQNetwork, PixelQNetwork, QNetwork

KEY = jax.random.key(0)
OBS = jnp.array([0.5, -1.0, 2.0])


def norm(x: np.ndarray, scale: Array, shift: Array) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * np.asarray(scale) + np.asarray(shift)


def linear(layer: eqx.nn.Linear, x: np.ndarray) -> np.ndarray:
    return np.asarray(layer.weight) @ x + np.asarray(layer.bias)


def randomised(network: eqx.Module) -> eqx.Module:
    """The network with random parameters everywhere: fresh layer norms are the identity and would hide a fault."""
    leaves, structure = jax.tree.flatten(network)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, noisy)


def test_layer_norm_comes_before_each_nonlinearity():
    mlp = randomised(MLP([3, 5, 4, 2], key=KEY))
    x = np.asarray(OBS)
    for layer, layer_norm in zip(mlp.layers[:2], mlp.norms, strict=True):
        x = np.maximum(norm(linear(layer, x), layer_norm.weight, layer_norm.bias), 0)
    np.testing.assert_allclose(mlp(OBS), linear(mlp.layers[2], x), rtol=1e-4, atol=1e-5)


def test_without_layer_norm_only_nonlinearities_stand_between_layers():
    mlp = MLP([3, 5, 2], key=KEY, layer_norm=False)
    hidden = np.maximum(linear(mlp.layers[0], np.asarray(OBS)), 0)
    np.testing.assert_allclose(mlp(OBS), linear(mlp.layers[1], hidden), rtol=1e-5)
    assert len(jax.tree.leaves(mlp)) == 4


def test_the_last_layer_is_normalised_and_activated_on_request():
    mlp = randomised(MLP([3, 5], key=KEY, activate_last=True, activation=jnp.tanh))
    expected = np.tanh(norm(linear(mlp.layers[0], np.asarray(OBS)), mlp.norms[0].weight, mlp.norms[0].bias))
    np.testing.assert_allclose(mlp(OBS), expected, rtol=1e-5)


@pytest.mark.parametrize("layer_norm", [True, False])
def test_every_leaf_is_an_array_so_that_jit_needs_no_filter(layer_norm: bool):
    networks = [
        MLP([3, 4, 2], key=KEY, layer_norm=layer_norm),
        QNetwork([3, 4, 2], key=KEY, policy_head=True, layer_norm=layer_norm).behaviour,
        BootstrappedQNetwork([3, 4, 2], num_heads=3, key=KEY, layer_norm=layer_norm),
    ]
    for network in networks:
        assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(network))
        np.testing.assert_allclose(jax.jit(lambda n, x: n(x))(network, OBS), network(OBS), rtol=1e-5, atol=1e-6)


def test_without_a_policy_head_the_q_values_are_the_behaviour():
    network = QNetwork([3, 4, 2], key=KEY)
    assert network.policy is None
    assert network.behaviour is network.q


def test_a_policy_head_is_the_behaviour_and_shares_nothing_with_q():
    network = QNetwork([3, 4, 2], key=KEY, policy_head=True)
    assert network.behaviour is network.policy
    assert network.policy(OBS).shape == (2,)
    for q_layer, policy_layer in zip(network.q.layers, network.policy.layers, strict=True):
        assert np.all(q_layer.weight != policy_layer.weight)


def test_a_policy_head_leaves_the_initial_q_values_as_they_are():
    one, two = QNetwork([3, 4, 2], key=KEY), QNetwork([3, 4, 2], key=KEY, policy_head=True)
    assert eqx.tree_equal(one.q, two.q)


def test_bootstrapped_values_are_those_of_each_linear_head_on_the_torso():
    network = randomised(BootstrappedQNetwork([3, 5, 4, 2], num_heads=6, key=KEY))
    features = np.asarray(network.torso(OBS))
    expected = np.asarray(network.heads.weight) @ features + np.asarray(network.heads.bias)
    assert features.shape == (4,)
    assert np.all(features >= 0)
    np.testing.assert_allclose(network(OBS), expected, rtol=1e-4, atol=1e-5)
    assert network(OBS).shape == (6, 2)


def test_bootstrap_heads_differ_at_the_start():
    network = BootstrappedQNetwork([3, 5, 2], num_heads=6, key=KEY)
    assert len(np.unique(np.asarray(network(OBS)), axis=0)) == 6


def test_the_torso_moves_every_head_and_a_head_moves_itself_alone():
    network = BootstrappedQNetwork([3, 5, 2], num_heads=3, key=KEY)
    shifted_head = eqx.tree_at(lambda n: n.heads.bias, network, network.heads.bias.at[1].add(1.0))
    moved = np.asarray(shifted_head(OBS) - network(OBS))
    np.testing.assert_allclose(moved, [[0, 0], [1, 1], [0, 0]], atol=1e-6)
    shifted_torso = eqx.tree_at(lambda n: n.torso.norms[0].bias, network, jnp.ones(5))
    assert np.all(shifted_torso(OBS) != network(OBS))


STACK_SHAPE, LAYERS = (4, 8, 9), ((3, 4, 2), (2, 2, 1))
STACK = jax.random.randint(jax.random.key(2), STACK_SHAPE, 0, 256).astype(jnp.uint8)


def pixel_network(policy_head: bool = True) -> PixelQNetwork:
    return PixelQNetwork(STACK_SHAPE, LAYERS, (5,), 3, key=KEY, policy_head=policy_head)


def test_both_heads_of_a_pixel_network_stand_on_the_same_convolutions():
    network = randomised(pixel_network())
    values, logits = (head[0] for head in network.heads(STACK[None]))
    features = network.convolutions(STACK)
    np.testing.assert_allclose(values, network.q(features), rtol=1e-5)
    np.testing.assert_allclose(logits, network.policy(features), rtol=1e-5)
    np.testing.assert_allclose(network.values(STACK[None])[0], values, rtol=1e-5)
    np.testing.assert_allclose(network.behaviour(STACK), logits, rtol=1e-5)
    assert not np.allclose(values, logits)


def test_without_a_policy_head_a_pixel_network_acts_on_its_q_values():
    network = pixel_network(policy_head=False)
    values, logits = network.heads(STACK[None])
    assert logits is None
    assert network.behaviour.head is network.q
    np.testing.assert_allclose(network.behaviour(STACK), values[0], rtol=1e-5)


def test_a_policy_head_leaves_the_initial_convolutions_and_q_head_as_they_are():
    one, two = pixel_network(policy_head=False), pixel_network()
    assert eqx.tree_equal((one.convolutions, one.q), (two.convolutions, two.q))


def test_the_policy_heads_gradient_reaches_neither_convolutions_nor_q():
    squares = lambda net, i: jnp.sum(net.heads(STACK[None])[i] ** 2)  # noqa: E731
    of_q, of_policy = (jax.grad(squares)(pixel_network(), i) for i in (0, 1))
    assert not any(leaf.any() for leaf in jax.tree.leaves((of_policy.convolutions, of_policy.q)))
    assert all(leaf.any() for leaf in jax.tree.leaves(of_policy.policy))
    assert not any(leaf.any() for leaf in jax.tree.leaves(of_q.policy))
    assert all(leaf.any() for leaf in jax.tree.leaves((of_q.convolutions, of_q.q)))


@pytest.mark.parametrize("policy_head", [True, False])
def test_noise_touches_the_linear_layers_of_the_acting_head_alone(policy_head: bool):
    clean = pixel_network(policy_head).behaviour
    perturbed = noise.perturb(jax.random.key(3), clean, 0.1)
    assert eqx.tree_equal(perturbed.convolutions, clean.convolutions)
    assert eqx.tree_equal(perturbed.head.norms, clean.head.norms)
    for noisy, layer in zip(perturbed.head.layers, clean.head.layers, strict=True):
        assert np.all(noisy.weight != layer.weight)
        assert np.all(noisy.bias != layer.bias)
    assert not np.allclose(perturbed(STACK), clean(STACK))


def test_noise_of_sigma_0_is_the_pixel_network_itself():
    clean = pixel_network().behaviour
    assert eqx.tree_equal(noise.perturb(jax.random.key(3), clean, 0.0), clean)
