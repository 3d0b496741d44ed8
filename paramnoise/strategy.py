"""The interface of exploration strategies, and the simplest one: no noise."""

import dataclasses
from typing import Any, ClassVar

import jax
from jax import Array

from paramnoise.policies import DeterministicPolicy, GreedyPolicy, Policy, StochasticPolicy, VotingPolicy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exploration:
    """The interface, and its simplest case: act on the clean policy, without state."""

    kind: ClassVar[str] = "none"
    """The name on the command line and in results."""
    policies: ClassVar[tuple[type, ...]] = (GreedyPolicy, VotingPolicy, DeterministicPolicy)
    """The types of policy that the strategy can act on."""
    adapt_every: ClassVar[int] = 0
    """Environment steps between two calls of `adapt`; 0: never."""

    def init(self, policy: Policy, obs: Array) -> Any:
        """The state before the first `begin_episode`; only the shape of `obs`, [num_envs, ...], matters."""
        return ()

    def begin_episode(self, key: Array, state: Any, policy: Policy, starts: Array, step: Array) -> Any:
        """Prepares the environments in which an episode starts (bool[num_envs]) and leaves the others alone."""
        return state

    def act(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        """Chooses the action to execute for each environment's observation, [num_envs, ...]."""
        values = jax.vmap(policy)(obs)
        is_stochastic = isinstance(policy, StochasticPolicy)
        return state, policy.random(key, values) if is_stochastic else jax.vmap(policy.greedy)(values)

    def adapt(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> Any:
        """Adapts the strategy on a batch of replayed observations."""
        return state

    def adopt(self, state: Any, adapted: Any) -> Any:
        """The state of acting, with what `adapt` changes taken from another one; all else stays as it is."""
        return state

    def offsets(self, state: Any) -> Array | None:
        """On-policy: what each environment's behaviour adds to the flat parameters, [num_envs, parameters], if any."""
        return None

    def report(self, state: Any, step: Array) -> dict[str, Array]:
        """What a log should show."""
        return {}


class NoNoise(Exploration):
    """The policy alone: its noise-free action, or a draw from it if it is stochastic."""

    policies: ClassVar[tuple[type, ...]] = (*Exploration.policies, StochasticPolicy)
