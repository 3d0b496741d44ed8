"""Acting in NumPy: who uses the twin of a policy to act, and the noise that it draws.

At every step a compiled call costs several times what a small network computes. What an exploration does with a policy
on the host is its own to say (`Exploration.act_on_host`); a test holds every twin to `act`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from paramnoise.explorations.base import Exploration, HostPolicy, acts_by_clean_policy, has_twin
from paramnoise.keys import ACT
from paramnoise.loops.fast.numpy_policies import twin_type
from paramnoise.networks.policies import Policy

BLOCK = 1_000
"""Vector steps whose noise is drawn together, unless a batch decides it."""
OF_PARAMETERS = ("features", "mean", "weights_std")
"""What a twin has that depends on its parameters; all else is of outputs."""


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
        self.policy: Any = None
        """The twin of what acts, a `HostPolicy`."""
        self._twin: Any = None
        self.explored: Any = None
        """The state of exploration, in NumPy."""

    @staticmethod
    def fits(exploration: Exploration, policy: Policy) -> bool:
        """Whether the exploration has a twin, and the policy is one that NumPy can compute."""
        return has_twin(exploration) and twin_type(policy) is not None

    def load(self, policy: Any, explored: Any) -> None:
        """Takes the policies that act from now on, and the state of exploration; their arrays are NumPy's."""
        self.explored = explored
        self.policy = self.twin(*self._exploration.acting_policy(explored, policy))

    def twin(self, acting: Any, has_axis: bool) -> HostPolicy:
        """The twin of what acts, whose arrays may have an axis of environments."""
        self._twin = twin = self._twin or twin_type(acting)  # the type of what acts never changes
        assert twin is not None
        if has_axis and self._num_envs == 1:  # one environment needs no axis of environments, and is faster without
            acting = jax.tree.map(lambda leaf: leaf[0], acting)
        if twin.is_stochastic and not has_axis and self._num_envs > 1:
            # A product of its own for each environment, as with noise: on-policy, noise of 0 then changes no bit.
            acting = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (self._num_envs, *leaf.shape)), acting)
        return twin(acting)

    def act(self, obs: np.ndarray, step: int, turn: int | None = None) -> np.ndarray:
        """The action to execute for each environment's observation, [num_envs, ...].

        Args:
            obs: what the environments show.
            step: environment steps so far.
            turn: vector steps so far; None: as many as the steps say, as where no environment ever skips one.
        """
        assert self.policy is not None
        self._noise.time = step // self._num_envs if turn is None else turn
        return self._exploration.act_on_host(self._noise, self.explored, self.policy, obs, step)


class HostActors:
    """The actors of seeds that learn side by side, from replay.

    Where each environment has a network of its own, all are evaluated in one pass: NumPy needs little more time for a
    few small networks than for one.
    """

    def __init__(self, exploration: Exploration, seeds: Sequence[int], num_envs: int, block: int = BLOCK):
        """Makes an actor of each seed; the arguments are those of `HostActor`."""
        self._actors = [HostActor(exploration, seed, num_envs, block) for seed in seeds]
        self._exploration, self._num_envs = exploration, num_envs
        self._parts = [slice(i * num_envs, (i + 1) * num_envs) for i in range(len(seeds))]
        self._pass: OnePass | None = None

    def load(self, policies: Any, explored: Sequence[Any]) -> None:
        """Takes the policies, with an axis of seeds if there are several, and each seed's state of exploration."""
        if len(self._actors) == 1:
            self._actors[0].load(policies, explored[0])
            return
        members = range(len(self._actors))
        if self._num_envs == 1 and acts_by_clean_policy(self._exploration):  # these may change with every step
            alone = [functools.partial(self._clean_twin, policies, member) for member in members]
            self._act_in_one_pass(policies, explored, alone)
            return
        taken = [self._exploration.acting_policy(explored[member], _at(policies, member)) for member in members]
        twins = [functools.partial(actor.twin, *own) for actor, own in zip(self._actors, taken, strict=True)]
        if all(has_axis for _, has_axis in taken):
            together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(acting for acting, _ in taken))
            self._act_in_one_pass(together, explored, twins)
            return
        self._pass = None
        for actor, own, twin in zip(self._actors, explored, twins, strict=True):
            actor.explored, actor.policy = own, twin()

    def _clean_twin(self, policies: Any, member: int) -> HostPolicy:
        return self._actors[member].twin(_at(policies, member), has_axis=False)

    def _act_in_one_pass(self, together: Any, explored: Sequence[Any], alone: Sequence[Callable[[], Any]]) -> None:
        """Takes policies with an axis of seeds times environments, and what makes the twin of each seed alone."""
        self._pass = OnePass(twin_type(together)(together))
        for member, actor in enumerate(self._actors):
            actor.explored, actor.policy = explored[member], PartOfPass(self._pass, member, alone[member])

    def act(self, obs: np.ndarray, step: int, turn: int) -> np.ndarray:
        """The action to execute for each environment's observation, [seeds * num_envs, ...]."""
        if len(self._actors) == 1:
            return self._actors[0].act(obs, step, turn)
        shown = [obs[part] for part in self._parts]
        if self._pass is not None:
            self._pass.show(obs, shown)
        actions = [actor.act(part, step, turn) for actor, part in zip(self._actors, shown, strict=True)]
        return np.concatenate(actions)


def _at(policies: Any, member: int) -> Any:
    """As `state.at_member`, which is compiled, of arrays that stay NumPy's."""
    return jax.tree.map(lambda leaf: leaf[member], policies)


class OnePass:
    """The outputs of all seeds' networks for what their environments show, evaluated once one of them is asked for."""

    def __init__(self, policy: Any):
        """Takes the twin of all seeds' policies, with an axis of seeds times environments."""
        self.policy = policy
        self.parts: Sequence[np.ndarray] = ()
        """What was shown, by seed."""

    def show(self, obs: np.ndarray, parts: Sequence[np.ndarray]) -> None:
        """Takes what the environments of all seeds show, and the part of each seed."""
        self._obs, self.parts = obs, parts
        self._values: np.ndarray | None = None

    def values(self, member: int) -> np.ndarray:
        """The outputs of one seed, which are the caller's to change."""
        if self._values is None:
            self._values = self.policy(self._obs)
        each = len(self.parts[member])
        return self._values[member * each : (member + 1) * each].copy()


class PartOfPass:
    """The policy of one seed, whose outputs are taken from the pass of all seeds."""

    def __init__(self, whole: OnePass, member: int, make: Callable[[], Any]):
        """Takes the pass, the seed's place in it, and what makes its twin alone, should it be needed."""
        self._whole, self._member, self._make = whole, member, make
        self._made: Any = None

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The policy's output for the observation of each environment, [num_envs, ...]."""
        is_shown = obs is self._whole.parts[self._member]
        return self._whole.values(self._member) if is_shown else self._alone(obs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._alone if name in OF_PARAMETERS else self._whole.policy, name)

    @property
    def _alone(self) -> Any:
        self._made = self._make() if self._made is None else self._made
        return self._made


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
