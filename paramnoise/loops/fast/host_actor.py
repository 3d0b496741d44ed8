"""Acting in NumPy: the twins of policies whose network is a small MLP, and who uses them to act.

At every step a compiled call costs several times what such a network computes. What an exploration does with a policy
on the host is its own to say (`Exploration.act_on_host`); a test holds every twin to `act`.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from paramnoise.explorations.base import Exploration, HostNoise, HostPolicy, has_twin
from paramnoise.keys import ACT
from paramnoise.loops.fast.numpy_networks import ACTIVATIONS, HostMLP, HostNormaliser
from paramnoise.networks.heads import Actor, NormalisedActor
from paramnoise.networks.mlp import MLP
from paramnoise.networks.policies import (
    LOG_STD_BOUNDS,
    NO_CHOICE,
    CategoricalPolicy,
    DeterministicPolicy,
    GaussianPolicy,
    MultiCategoricalPolicy,
    Policy,
    SquashedGaussianPolicy,
    choice_table,
)

BLOCK = 1_000
"""Vector steps whose noise is drawn together, unless a batch decides it."""


class HostActor:
    """What `exploration.act` does, at a fraction of a compiled call's cost."""

    def __init__(self, exploration: Exploration, seed: int, num_envs: int, block: int = BLOCK):
        """Remembers what decides the actions but for the policy, which `load` brings.

        Args:
            exploration: one that `fits`.
            seed: decides the noise on actions, together with the step.
            num_envs: environments stepped together.
            block: vector steps whose noise is drawn together.
        """
        self._exploration, self._num_envs = exploration, num_envs
        self._noise = BlockNoise((seed, ACT), block)
        self._policy: HostPolicy | None = None

    @staticmethod
    def fits(exploration: Exploration, policy: Policy) -> bool:
        """Whether the exploration has a twin, and the policy is one that NumPy can compute."""
        return has_twin(exploration) and _twin_type(policy) is not None

    def load(self, policy: Any, explored: Any) -> None:
        """Takes the policies that act from now on; their arrays are NumPy's."""
        acting, has_axis = self._exploration.acting_policy(explored, policy)
        twin = _twin_type(acting)
        assert twin is not None
        if has_axis and self._num_envs == 1:  # one environment needs no axis of environments, and is faster without
            acting = jax.tree.map(lambda leaf: leaf[0], acting)
        if twin.is_stochastic and not has_axis and self._num_envs > 1:
            # A product of its own for each environment, as with noise: on-policy, noise of 0 then changes no bit.
            acting = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (self._num_envs, *leaf.shape)), acting)
        self._policy = twin(acting)

    def act(self, obs: np.ndarray, step: int) -> np.ndarray:
        """The action to execute for each environment's observation, [num_envs, ...]."""
        assert self._policy is not None
        self._noise.time = step // self._num_envs
        return self._exploration.act_on_host(self._policy, obs, self._noise)


class BlockNoise:
    """Noise of vector steps, drawn in blocks: a function of the seed and the step, so nothing of it is saved."""

    def __init__(self, seed: tuple[int, ...], block: int):
        """Begins at vector step 0."""
        self._seed, self._block = seed, block
        self._held: tuple[int, np.ndarray] = (-1, np.zeros(0))
        self.time = 0

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal numbers, float32."""
        return self._at(lambda rng: rng.standard_normal((self._block, *shape), np.float32))

    def gumbel(self, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers of the standard Gumbel distribution, float32."""
        return self._at(lambda rng: rng.gumbel(size=(self._block, *shape)).astype(np.float32))

    def _at(self, draw: Any) -> np.ndarray:
        number, place = divmod(self.time, self._block)
        if self._held[0] != number:
            self._held = (number, draw(np.random.default_rng((*self._seed, number))))
        return self._held[1][place]


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
        return np.tanh(self._mlp(self._normaliser(obs)))

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
        mean, log_std = np.split(values, 2, axis=1)
        std = np.exp(np.minimum(np.maximum(log_std, LOG_STD_BOUNDS[0]), LOG_STD_BOUNDS[1]))
        return np.tanh(mean + std * noise.normal(mean.shape))


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
    CategoricalPolicy: HostCategorical,
    MultiCategoricalPolicy: HostMultiCategorical,
}


def _twin_type(policy: Any) -> Any:
    """The twin of a policy; None for a type, or a network in it, that NumPy does not know."""
    network = getattr(policy, "network", None)
    if type(policy) is DeterministicPolicy:
        is_ours = type(network) is NormalisedActor and type(network.actor) is Actor and _is_known(network.actor.mlp)
        return HostDeterministic if is_ours else None
    if type(policy) is SquashedGaussianPolicy:
        return HostSquashed if type(network) is NormalisedActor and _is_known(network.actor) else None
    return _STOCHASTIC.get(type(policy)) if _is_known(network) else None


def _is_known(network: Any) -> bool:
    norms = (eqx.nn.LayerNorm, eqx.nn.Identity)
    if type(network) is not MLP or network.activation not in ACTIVATIONS:
        return False
    return len(network.norms) == len(network.layers) - 1 and all(type(norm) in norms for norm in network.norms)
