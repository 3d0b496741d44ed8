import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from paramnoise.networks import MLP
from paramnoise.noise import displace
from paramnoise.networks.policies import CategoricalPolicy, GaussianPolicy
from paramnoise.loops.fast.host_policy import HostPolicy


def gaussian(layer_norm=False):
    network = MLP((3, 8, 6, 2), key=jax.random.key(0), layer_norm=layer_norm, activation=jnp.tanh)
    return GaussianPolicy(network, jnp.array([-1.0, 0.5]))


def categorical():
    return CategoricalPolicy(MLP((3, 8, 4), key=jax.random.key(0), layer_norm=False, activation=jnp.tanh))


def loaded(policy, offsets):
    host = HostPolicy(policy)
    host.load(np.asarray(ravel_pytree(policy)[0]) + np.asarray(offsets))
    return host


@pytest.mark.parametrize("policy", [gaussian(), gaussian(layer_norm=True), categorical()])
@pytest.mark.parametrize("num_envs", [1, 5])
def test_each_environment_acts_by_the_policy_at_its_own_parameters(policy, num_envs):
    offsets = 0.5 * jax.random.normal(jax.random.key(1), (num_envs, ravel_pytree(policy)[0].size))
    obs = np.random.default_rng(0).normal(size=(num_envs, 3)).astype(np.float32)
    values = jax.vmap(lambda offset, o: displace(policy, offset)(o))(offsets, obs)
    host = loaded(policy, offsets)
    if isinstance(policy, CategoricalPolicy):
        np.testing.assert_allclose(host.network_outputs(obs), values, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(host.act(obs, np.zeros((num_envs, 4), np.float32)), policy.greedy(values))
    else:
        np.testing.assert_allclose(host.network_outputs(obs), values[:, 0], rtol=1e-4, atol=1e-5)
        noise = np.ones((num_envs, 2), np.float32)
        np.testing.assert_allclose(host.act(obs, noise), values[:, 0] + np.exp(values[:, 1]), rtol=1e-4, atol=1e-5)


def test_actions_are_draws_from_the_softmax():
    policy, obs = categorical(), np.ones((1, 3), np.float32)
    host = loaded(policy, np.zeros((1, ravel_pytree(policy)[0].size), np.float32))
    actions = [host.act(obs, noise)[0] for noise in host.draw_noise((0,), 5_000)]
    expected = 5_000 * np.asarray(jax.nn.softmax(policy(obs[0])), np.float64)
    assert stats.chisquare(np.bincount(actions, minlength=4), expected * 5_000 / expected.sum()).pvalue > 0.001


def test_the_randomness_of_a_gaussian_policy_is_standard_and_decided_by_its_seed():
    policy = gaussian()
    host = loaded(policy, np.zeros((3, ravel_pytree(policy)[0].size), np.float32))
    noise = host.draw_noise((0, 1), 4_000)
    assert noise.shape == (4_000, 3, 2)
    np.testing.assert_array_equal(noise, host.draw_noise((0, 1), 4_000))
    assert (noise != host.draw_noise((0, 2), 4_000)).mean() > 0.99
    np.testing.assert_allclose((noise.mean(), noise.std()), (0, 1), atol=0.03)
