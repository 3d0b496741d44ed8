"""Acting in NumPy: who uses the twin of a policy to act, and the noise that it draws.

At every step a compiled call costs several times what a small network computes. What an exploration does with a policy
on the host is its own to say (`Exploration.act_on_host`); a test holds every twin to `act`.
"""

from typing import Any

import jax
import numpy as np

from paramnoise.explorations.base import Exploration, HostPolicy, has_twin
from paramnoise.keys import ACT
from paramnoise.loops.fast.numpy_policies import twin_type
from paramnoise.networks.policies import Policy

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
        self._twin: Any = None
        self._explored: Any = None

    @staticmethod
    def fits(exploration: Exploration, policy: Policy) -> bool:
        """Whether the exploration has a twin, and the policy is one that NumPy can compute."""
        return has_twin(exploration) and twin_type(policy) is not None

    def load(self, policy: Any, explored: Any) -> None:
        """Takes the policies that act from now on, and the state of exploration; their arrays are NumPy's."""
        self._explored = explored
        acting, has_axis = self._exploration.acting_policy(explored, policy)
        self._twin = twin = self._twin or twin_type(acting)  # the type of what acts never changes
        assert twin is not None
        if has_axis and self._num_envs == 1:  # one environment needs no axis of environments, and is faster without
            acting = jax.tree.map(lambda leaf: leaf[0], acting)
        if twin.is_stochastic and not has_axis and self._num_envs > 1:
            # A product of its own for each environment, as with noise: on-policy, noise of 0 then changes no bit.
            acting = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (self._num_envs, *leaf.shape)), acting)
        self._policy = twin(acting)

    def act(self, obs: np.ndarray, step: int, turn: int | None = None) -> np.ndarray:
        """The action to execute for each environment's observation, [num_envs, ...].

        Args:
            obs: what the environments show.
            step: environment steps so far.
            turn: vector steps so far; None: as many as the steps say, as where no environment ever skips one.
        """
        assert self._policy is not None
        self._noise.time = step // self._num_envs if turn is None else turn
        return self._exploration.act_on_host(self._noise, self._explored, self._policy, obs, step)


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
