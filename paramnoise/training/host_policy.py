"""Acting in NumPy, for stochastic policies whose network is a small MLP."""

import jax
import numpy as np

from paramnoise.networks import MLP
from paramnoise.policies import CategoricalPolicy, GaussianPolicy, StochasticPolicy
from paramnoise.training.host_mlp import HostMLP


class HostPolicy:
    """A stochastic policy, at parameters of its own in each environment."""

    def __init__(self, policy: StochasticPolicy):
        """Takes the structure of a policy; `load` gives it parameters."""
        assert isinstance(policy, GaussianPolicy | CategoricalPolicy)
        assert isinstance(policy.network, MLP)
        leaves, self._structure = jax.tree.flatten(policy)
        self._shapes = [leaf.shape for leaf in leaves]

    def load(self, parameters: np.ndarray) -> None:
        """Takes the flat parameters of each environment, [num_envs, parameters]."""
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        parts = np.split(parameters, np.cumsum(sizes)[:-1], axis=1)
        leaves = [part.reshape(-1, *shape) for part, shape in zip(parts, self._shapes, strict=True)]
        if len(parameters) == 1:  # one environment needs no axis of environments, and is faster without
            leaves = [leaf[0] for leaf in leaves]
        policy = jax.tree.unflatten(self._structure, leaves)
        self._num_envs = len(parameters)
        self._outputs = policy.network.layers[-1].bias.shape[-1]
        self.network_outputs = HostMLP(policy.network)  # the means or logits of each environment
        self._std = np.exp(policy.log_std) if isinstance(policy, GaussianPolicy) else None

    def draw_noise(self, seed: tuple[int, ...], steps: int) -> np.ndarray:
        """The randomness of so many steps of all environments, [steps, num_envs, ...]."""
        shape = (steps, self._num_envs, self._outputs)
        rng = np.random.default_rng(seed)
        is_gaussian = self._std is not None
        return rng.standard_normal(shape, np.float32) if is_gaussian else rng.gumbel(size=shape).astype(np.float32)

    def act(self, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """The action of each environment for its observation, [num_envs, ...], given the randomness of one step."""
        outputs = self.network_outputs(obs.astype(np.float32, copy=False))
        if self._std is not None:
            return outputs + self._std * noise
        return np.argmax(outputs + noise, axis=-1).astype(np.int32)  # a draw from the softmax, by Gumbel's trick
