"""The twins, in NumPy, of policies whose network is a small MLP: what `HostActor` acts by.

Each does what its policy does, for the observations of several environments at once; a test holds the two together.
"""

from typing import Any

import equinox as eqx
import numpy as np

from paramnoise.explorations.base import HostNoise
from paramnoise.loops.fast.numpy_networks import ACTIVATIONS, HostMLP, HostNormaliser
from paramnoise.networks.gsde import LEAST_VARIANCE, StateGaussianPolicy, StateNoiseActor
from paramnoise.networks.heads import Actor, NormalisedActor
from paramnoise.networks.mlp import MLP
from paramnoise.networks.policies import (
    LOG_STD_BOUNDS,
    NO_CHOICE,
    CategoricalPolicy,
    DeterministicPolicy,
    GaussianPolicy,
    MultiCategoricalPolicy,
    SquashedGaussianPolicy,
    choice_table,
)


class HostDeterministic:
    """`DeterministicPolicy` of a `NormalisedActor`."""

    is_stochastic = False

    def __init__(self, policy: DeterministicPolicy):
        """Takes the arrays as they are."""
        network: Any = policy.network
        self._normaliser = HostNormaliser(network.normaliser)
        self._mlp = HostMLP(network.actor.mlp)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The actions."""
        return self.mean(self.features(obs))

    def features(self, obs: np.ndarray) -> np.ndarray:
        """The outputs of the last hidden layer."""
        return self._mlp.features(self._normaliser(obs))

    def mean(self, features: np.ndarray) -> np.ndarray:
        """The actions, from the features."""
        return np.tanh(self._mlp.last(features))

    def bounded(self, action: np.ndarray) -> np.ndarray:
        """An action with noise, within bounds."""
        return np.minimum(np.maximum(action, -1.0), 1.0)

    def greedy(self, values: np.ndarray) -> np.ndarray:
        """The action itself."""
        return values

    def random(self, values: np.ndarray, noise: HostNoise) -> np.ndarray:
        """There is nothing random in it."""
        return values


class HostSquashed:
    """`SquashedGaussianPolicy` of an MLP on normalised observations; its values are means and log stds before tanh."""

    is_stochastic = True

    def __init__(self, policy: SquashedGaussianPolicy):
        """Takes the arrays as they are."""
        network: Any = policy.network
        self._normaliser = HostNormaliser(network.normaliser)
        self._mlp = HostMLP(network.actor)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The means, and after them the log standard deviations, [num_envs, 2 * dimensions]."""
        return self._mlp(self._normaliser(obs))

    def greedy(self, values: np.ndarray) -> np.ndarray:
        """Tanh of the means."""
        return np.tanh(values[:, : values.shape[1] // 2])

    def random(self, values: np.ndarray, noise: HostNoise) -> np.ndarray:
        """A draw."""
        return self.squash(values, noise.normal((len(values), values.shape[1] // 2)))

    def squash(self, values: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """The action that standard normal noise, [num_envs, dimensions], leads to."""
        mean, log_std = np.split(values, 2, axis=1)
        std = np.exp(np.minimum(np.maximum(log_std, LOG_STD_BOUNDS[0]), LOG_STD_BOUNDS[1]))
        return np.tanh(mean + std * noise)


class HostStateSquashed(HostSquashed):
    """`SquashedGaussianPolicy` of a `StateNoiseActor` on normalised observations."""

    def __init__(self, policy: SquashedGaussianPolicy):
        """Takes the arrays as they are."""
        network: Any = policy.network
        self._normaliser = HostNormaliser(network.normaliser)
        self._mlp = HostMLP(network.actor.mlp)
        self.weights_std = np.exp(network.actor.log_std)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The means, and after them the log standard deviations, [num_envs, 2 * dimensions]."""
        features = self.features(obs)
        return np.concatenate([self.mean(features), _log_std(features, self.weights_std)], axis=1)

    def features(self, obs: np.ndarray) -> np.ndarray:
        """The outputs of the last hidden layer."""
        return self._mlp.features(self._normaliser(obs))

    def mean(self, features: np.ndarray) -> np.ndarray:
        """The means before tanh, from the features."""
        return self._mlp.last(features)

    def bounded(self, action: np.ndarray) -> np.ndarray:
        """An action with noise, within bounds."""
        return np.tanh(action)


class HostGaussian:
    """`GaussianPolicy` of an MLP; its values are the means."""

    is_stochastic = True

    def __init__(self, policy: GaussianPolicy):
        """Takes the arrays as they are."""
        self._mlp, self._std = HostMLP(policy.network), np.exp(policy.log_std)  # type: ignore[arg-type]

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The means."""
        return self._mlp(obs.astype(np.float32, copy=False))

    def greedy(self, values: np.ndarray) -> np.ndarray:
        """The mean, within bounds."""
        return np.clip(values, -1.0, 1.0)

    def random(self, values: np.ndarray, noise: HostNoise) -> np.ndarray:
        """A draw."""
        return values + self._std * noise.normal(values.shape)


class HostStateGaussian:
    """`StateGaussianPolicy` of an MLP; its values are the means, and after them the log standard deviations."""

    is_stochastic = True

    def __init__(self, policy: StateGaussianPolicy):
        """Takes the arrays as they are."""
        self._mlp, self.weights_std = HostMLP(policy.network), np.exp(policy.log_std)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The means, and after them the log standard deviations, [num_envs, 2 * dimensions]."""
        features = self.features(obs)
        return np.concatenate([self.mean(features), _log_std(features, self.weights_std)], axis=1)

    def features(self, obs: np.ndarray) -> np.ndarray:
        """The outputs of the last hidden layer."""
        return self._mlp.features(obs.astype(np.float32, copy=False))

    def mean(self, features: np.ndarray) -> np.ndarray:
        """The means, from the features."""
        return self._mlp.last(features)

    def bounded(self, action: np.ndarray) -> np.ndarray:
        """An action with noise as it is: on-policy, actions are kept as sampled."""
        return action

    def greedy(self, values: np.ndarray) -> np.ndarray:
        """The mean, within bounds."""
        return np.clip(values[:, : values.shape[1] // 2], -1.0, 1.0)

    def random(self, values: np.ndarray, noise: HostNoise) -> np.ndarray:
        """A draw."""
        mean, log_std = np.split(values, 2, axis=1)
        return mean + np.exp(log_std) * noise.normal(mean.shape)


def _log_std(features: np.ndarray, weights_std: np.ndarray) -> np.ndarray:
    """The log standard deviations that features and the weights of the noise lead to, [num_envs, dimensions]."""
    variance = ((features * features)[:, None, :] @ (weights_std * weights_std))[:, 0]
    return 0.5 * np.log(variance + LEAST_VARIANCE)


class HostCategorical:
    """`CategoricalPolicy` of an MLP; its values are the logits."""

    is_stochastic = True

    def __init__(self, policy: CategoricalPolicy):
        """Takes the arrays as they are."""
        self._mlp = HostMLP(policy.network)  # type: ignore[arg-type]

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The logits."""
        return self._mlp(obs.astype(np.float32, copy=False))

    def greedy(self, values: np.ndarray) -> np.ndarray:
        """The most likely action."""
        return np.argmax(values, axis=-1).astype(np.int32)

    def random(self, values: np.ndarray, noise: HostNoise) -> np.ndarray:
        """A draw from the softmax, by Gumbel's trick."""
        return np.argmax(values + noise.gumbel(values.shape), axis=-1).astype(np.int32)


class HostMultiCategorical(HostCategorical):
    """`MultiCategoricalPolicy` of an MLP; its values are tables of logits."""

    def __init__(self, policy: MultiCategoricalPolicy):
        """Takes the arrays as they are."""
        super().__init__(policy)
        self._place, self._exists = choice_table(policy.sizes)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The logits, [num_envs, parts, most choices]."""
        return np.where(self._exists, super().__call__(obs)[:, self._place], NO_CHOICE)


_STOCHASTIC: dict[type, Any] = {
    GaussianPolicy: HostGaussian,
    StateGaussianPolicy: HostStateGaussian,
    CategoricalPolicy: HostCategorical,
    MultiCategoricalPolicy: HostMultiCategorical,
}


def twin_type(policy: Any) -> Any:
    """The twin of a policy; None for a type, or a network in it, that NumPy does not know."""
    network = getattr(policy, "network", None)
    if type(policy) is DeterministicPolicy:
        is_ours = type(network) is NormalisedActor and type(network.actor) is Actor and _is_known(network.actor.mlp)
        return HostDeterministic if is_ours else None
    if type(policy) is SquashedGaussianPolicy:
        if type(network) is not NormalisedActor:
            return None
        if type(network.actor) is StateNoiseActor:
            return HostStateSquashed if _is_known(network.actor.mlp) else None
        return HostSquashed if _is_known(network.actor) else None
    return _STOCHASTIC.get(type(policy)) if _is_known(network) else None


def _is_known(network: Any) -> bool:
    norms = (eqx.nn.LayerNorm, eqx.nn.Identity)
    if type(network) is not MLP or network.activation not in ACTIVATIONS:
        return False
    return len(network.norms) == len(network.layers) - 1 and all(type(norm) in norms for norm in network.norms)
