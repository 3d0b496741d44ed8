"""Acting in NumPy: for a small policy a compiled call costs several times what it computes, at every step.

Learning and evaluation use the policy itself; a test holds the two to the same outputs.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.networks import MLP
from paramnoise.policies import CategoricalPolicy, GaussianPolicy, StochasticPolicy


class HostPolicy:
    """A stochastic policy with a tanh MLP, at parameters of its own in each environment."""

    def __init__(self, policy: StochasticPolicy):
        """Takes the structure of a policy; `load` gives it parameters."""
        assert isinstance(policy, GaussianPolicy | CategoricalPolicy)
        assert isinstance(policy.network, MLP)
        assert policy.network.activation is jnp.tanh
        leaves, self._structure = jax.tree.flatten(policy)
        self._shapes = [leaf.shape for leaf in leaves]

    def load(self, parameters: np.ndarray) -> None:
        """Takes the flat parameters of each environment, [num_envs, parameters]."""
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        parts = np.split(parameters, np.cumsum(sizes)[:-1], axis=1)
        leaves = [part.reshape(-1, *shape) for part, shape in zip(parts, self._shapes, strict=True)]
        policy = jax.tree.unflatten(self._structure, leaves)
        network = policy.network
        norms = [norm if isinstance(norm, eqx.nn.LayerNorm) else None for norm in network.norms]
        self._layers = [
            (layer.weight, layer.bias, norm) for layer, norm in zip(network.layers[:-1], norms, strict=True)
        ]
        self._output = network.layers[-1].weight, network.layers[-1].bias
        self._std = np.exp(policy.log_std) if isinstance(policy, GaussianPolicy) else None

    def draw_noise(self, seed: tuple[int, ...], steps: int) -> np.ndarray:
        """The randomness of so many steps of all environments, [steps, num_envs, ...]."""
        shape = (steps, *self._output[1].shape)
        rng = np.random.default_rng(seed)
        is_gaussian = self._std is not None
        return rng.standard_normal(shape, np.float32) if is_gaussian else rng.gumbel(size=shape).astype(np.float32)

    def act(self, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """The action of each environment for its observation, [num_envs, ...], given the randomness of one step."""
        outputs = self.network_outputs(obs)
        if self._std is not None:
            return outputs + self._std * noise
        return np.argmax(outputs + noise, axis=-1).astype(np.int32)  # a draw from the softmax, by Gumbel's trick

    def network_outputs(self, obs: np.ndarray) -> np.ndarray:
        """The means or logits of each environment."""
        x = obs.astype(np.float32, copy=False)
        for weight, bias, norm in self._layers:
            x = _linear(weight, bias, x)
            x = np.tanh(x if norm is None else _normalise(norm, x))
        return _linear(*self._output, x)


def _linear(weight: np.ndarray, bias: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.matmul(weight, x[..., None])[..., 0] + bias


def _normalise(norm: Any, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + norm.eps) * norm.weight + norm.bias
