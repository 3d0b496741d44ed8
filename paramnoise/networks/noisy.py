"""Noisy layers (NoisyNet, Fortunato et al. 2018), with factorised Gaussian noise whose scale is learned.

    w = mu_w + sigma_w * f(e_out) f(e_in)^T,  b = mu_b + sigma_b * f(e_out),  f(x) = sgn(x) sqrt(|x|),  e ~ N(0, I)

A network of such layers computes with their means. Who wants noise draws it (`draw_noise`): a learner for each train
step, an exploration for each action. For a network without such layers that is the network itself.
"""

import math
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Network = TypeVar("Network")


class NoisyLinear(eqx.Module):
    """A linear layer with a standard deviation for each weight and bias; parameter noise perturbs its means alone."""

    mean: eqx.nn.Linear
    weight_sigma: Array
    bias_sigma: Array | None

    def __init__(self, mean: eqx.nn.Linear, sigma: float):
        """Takes the means from a layer; every standard deviation starts at sigma / sqrt(inputs)."""
        first = sigma / math.sqrt(mean.weight.shape[1])
        self.mean = mean
        self.weight_sigma = jnp.full_like(mean.weight, first)
        self.bias_sigma = None if mean.bias is None else jnp.full_like(mean.bias, first)

    def __call__(self, x: Array) -> Array:
        """The output of the means."""
        return self.mean(x)


class DrawnLinear(eqx.Module):
    """A noisy layer with its noise drawn, as the two factors: the weights themselves are never written out."""

    layer: NoisyLinear
    inputs: Array
    """f(e_in)."""
    outputs: Array
    """f(e_out)."""

    def __call__(self, x: Array) -> Array:
        noise = self.layer.weight_sigma @ (self.inputs * x)
        noise = noise if self.layer.bias_sigma is None else noise + self.layer.bias_sigma
        return self.layer.mean(x) + self.outputs * noise


def with_noisy_layers(network: Network, sigma: float) -> Network:
    """The network with a noisy layer in place of each `eqx.nn.Linear`; sigma is the paper's sigma_0."""
    is_linear = lambda node: isinstance(node, eqx.nn.Linear)  # noqa: E731
    return jax.tree.map(lambda node: NoisyLinear(node, sigma) if is_linear(node) else node, network, is_leaf=is_linear)


def draw_noise(key: Array, network: Network) -> Network:
    """The network with noise drawn for each of its noisy layers; without any, the network as it is."""
    nodes, structure = jax.tree.flatten(network, is_leaf=_is_noisy)
    sizes = [size for node in nodes if _is_noisy(node) for size in reversed(node.weight_sigma.shape)]
    if not sizes:
        return network
    draws = jax.random.normal(key, (sum(sizes),))  # one draw for all: many small ones are a larger program
    factors = iter(jnp.split(jnp.sign(draws) * jnp.sqrt(jnp.abs(draws)), np.cumsum(sizes)[:-1]))
    drawn = [DrawnLinear(node, next(factors), next(factors)) if _is_noisy(node) else node for node in nodes]
    return jax.tree.unflatten(structure, drawn)


def noise_scale(network: Any) -> Array | None:
    """The mean over layers of |sigma_w| sqrt(inputs), which starts at sigma_0; None without noisy layers."""
    layers = [node for node in jax.tree.leaves(network, is_leaf=_is_noisy) if _is_noisy(node)]
    if not layers:
        return None
    scales = [jnp.mean(jnp.abs(layer.weight_sigma)) * math.sqrt(layer.weight_sigma.shape[1]) for layer in layers]
    return jnp.mean(jnp.stack(scales))


def _is_noisy(node: Any) -> bool:
    return isinstance(node, NoisyLinear)
