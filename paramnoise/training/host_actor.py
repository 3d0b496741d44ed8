"""Acting in NumPy, for deterministic policies whose network is a small MLP."""

from typing import Any

import jax
import numpy as np

from paramnoise.agents.ddpg import NormalisedActor
from paramnoise.exploration import Gaussian, ParameterNoise
from paramnoise.policies import DeterministicPolicy, Policy
from paramnoise.strategy import Exploration, NoNoise
from paramnoise.training.host_mlp import HostMLP, HostNormaliser

BLOCK = 1_000
"""Vector steps whose noise is drawn together."""


class HostActor:
    """What `exploration.act` does for some explorations of DDPG, at a fraction of a compiled call's cost."""

    def __init__(self, exploration: Exploration, seed: tuple[int, ...], num_envs: int):
        """Remembers what decides the actions but for the policy, which `load` brings.

        Args:
            exploration: one that `fits`.
            seed: decides the noise on actions, together with the step.
            num_envs: environments stepped together.
        """
        self._exploration, self._seed, self._num_envs = exploration, seed, num_envs
        self._block: tuple[int, np.ndarray] = (-1, np.zeros(0))

    @staticmethod
    def fits(exploration: Exploration, policy: Policy) -> bool:
        """Whether acting needs nothing but the policy and the step, and the policy is an actor of ours."""
        is_plain = isinstance(exploration, NoNoise | Gaussian) or (
            isinstance(exploration, ParameterNoise) and exploration.epsilon == 0 and exploration.max_age is None
        )
        return is_plain and isinstance(policy, DeterministicPolicy) and isinstance(policy.network, NormalisedActor)

    def load(self, policy: Policy, explored: Any) -> None:
        """Takes the policies that act from now on; their arrays are NumPy's."""
        acting: Any = policy
        if isinstance(self._exploration, ParameterNoise):
            acting = explored.policies
            acting = jax.tree.map(lambda leaf: leaf[0], acting) if self._num_envs == 1 else acting
        self._normaliser = HostNormaliser(acting.network.normaliser)
        self._mlp = HostMLP(acting.network.actor.mlp)

    def act(self, obs: np.ndarray, step: int) -> np.ndarray:
        """The action to execute for each environment's observation, [num_envs, ...]."""
        actions = np.tanh(self._mlp(self._normaliser(obs)))
        if not isinstance(self._exploration, Gaussian):
            return actions
        noise = self._noise(step // self._num_envs, actions.shape)
        return np.minimum(np.maximum(actions + self._exploration.sigma * noise, -1.0), 1.0)

    def _noise(self, time: int, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal noise for a vector step: a function of the seed and the step, so nothing of it is saved."""
        number, place = divmod(time, BLOCK)
        if self._block[0] != number:
            rng = np.random.default_rng((*self._seed, number))
            self._block = (number, rng.standard_normal((BLOCK, *shape), np.float32))
        return self._block[1][place]
