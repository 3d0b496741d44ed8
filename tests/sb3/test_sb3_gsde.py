"""gSDE is Stable-Baselines3's: standard deviations, densities and entropies, of SAC's policy and of PPO's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.networks import MLP, gsde
from paramnoise.networks.gsde import StateGaussianPolicy
from paramnoise.networks.policies import SquashedGaussianPolicy

pytestmark = pytest.mark.sb3


def peer_of(mean, log_std, features, **settings):
    """The distribution of Stable-Baselines3, for a batch of means and features."""
    import torch
    from stable_baselines3.common.distributions import StateDependentNoiseDistribution

    made = StateDependentNoiseDistribution(mean.shape[1], **settings)
    made.proba_distribution_net(features.shape[1], latent_sde_dim=features.shape[1])
    return made.proba_distribution(*(torch.tensor(np.array(x)) for x in (mean, log_std, features)))


def drawn(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def test_sac_s_standard_deviation_and_density_are_those_of_stable_baselines3():
    import torch

    features, log_std, mean, noise = drawn((5, 7), (7, 3), (5, 3), (5, 3))
    peer = peer_of(mean, log_std, features, learn_features=True, squash_output=True)
    std = np.sqrt(np.asarray(gsde.variance(features, log_std)) + gsde.LEAST_VARIANCE)
    np.testing.assert_allclose(std, peer.distribution.stddev.numpy(), rtol=1e-5)
    values, policy = jnp.stack([mean, np.log(std)], axis=1), SquashedGaussianPolicy(None)
    narrow = 0.2 * noise  # near a bound the peer's log-density is rounded
    actions = torch.tensor(np.asarray(policy.squash(values, narrow)))
    np.testing.assert_allclose(policy.log_density(values, narrow), peer.log_prob(actions).numpy(), rtol=1e-2, atol=1e-2)


def test_ppo_s_density_and_entropy_are_those_of_stable_baselines3():
    import torch

    obs, log_std, actions = drawn((5, 4), (7, 3), (5, 3))
    network = MLP((4, 8, 7, 3), key=jax.random.key(0), layer_norm=False, activation=jnp.tanh)
    policy = StateGaussianPolicy(network, jnp.asarray(log_std))
    peer = peer_of(jax.vmap(network)(obs), log_std, jax.vmap(network.features)(obs))
    values = jax.vmap(policy)(obs)
    np.testing.assert_allclose(np.exp(values[:, 1]), peer.distribution.stddev.numpy(), rtol=1e-4)
    theirs = peer.log_prob(torch.tensor(actions)).numpy()
    np.testing.assert_allclose(policy.log_probability(values, actions), theirs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(policy.entropy(values), peer.entropy().numpy(), rtol=1e-4)
