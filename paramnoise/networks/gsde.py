"""Noise that is linear in the features of a network (gSDE, Raffin et al. 2021): the same state, the same noise.

    noise(s) = features(s) @ weights        weights ~ N(0, std^2), kept for an episode or for some steps
    variance(s) = features(s)^2 @ std^2     over the weights: what a density in one state sees

Features are the outputs of the last hidden layer. The functions take any leading axes.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.networks.mlp import MLP
from paramnoise.networks.policies import GaussianPolicy

LEAST_VARIANCE = 1e-6
"""Added to the variance, whose log is finite then where no feature is active."""


def variance(features: Array, log_std: Array) -> Array:  # [..., dimensions]
    """The variance of the noise over all draws of its weights."""
    return jnp.square(features) @ jnp.exp(2.0 * log_std)


def noise_log_std(features: Array, log_std: Array) -> Array:  # [..., dimensions]
    """The log standard deviation of the noise, from that of its weights."""
    return 0.5 * jnp.log(variance(features, log_std) + LEAST_VARIANCE)


def first_log_std(features: int) -> float:
    """The log standard deviation of weights with which noise is as wide as the features' root mean square."""
    return -0.5 * math.log(features)


class StateNoiseActor(eqx.Module):
    """Means of Gaussians, and log standard deviations that come from the features by way of learned weights."""

    mlp: MLP
    """Its outputs are the means."""
    log_std: Array
    """Of the weights of the noise, [features, dimensions]."""

    def __init__(self, mlp: MLP):
        """Begins with noise as wide as the features' root mean square."""
        dimensions, features = mlp.layers[-1].weight.shape
        self.mlp, self.log_std = mlp, jnp.full((features, dimensions), first_log_std(features))

    def __call__(self, x: Array) -> Array:  # [2 * dimensions]
        features = self.mlp.features(x)
        return jnp.concatenate([self.mlp.layers[-1](features), noise_log_std(features, self.log_std)])

    def features(self, x: Array) -> Array:
        """The outputs of the last hidden layer."""
        return self.mlp.features(x)


class StateGaussianPolicy(GaussianPolicy):
    """Independent Gaussians whose standard deviations come from the features of the network of their means.

    `log_std` is that of the weights of the noise, [features, dimensions]. The features learn from the means alone: no
    gradient reaches them through the standard deviations, as in Stable-Baselines3's PPO.
    """

    network: MLP

    def __call__(self, obs: Array) -> Array:  # [2, dimensions]: mean and log std
        features = self.network.features(obs)
        log_std = noise_log_std(jax.lax.stop_gradient(features), self.log_std)
        return jnp.stack([self.network.layers[-1](features), log_std])
