"""The interface of exploration strategies, and the simplest one: no noise."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.noise import displace
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
        return state, jax.vmap(lambda o: policy.greedy(policy(o)))(obs)

    def adapt(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> Any:
        """Adapts the strategy on a batch of replayed observations."""
        return state

    def report(self, state: Any, step: Array) -> dict[str, Array]:
        """What a log should show."""
        return {}


class NoNoise(Exploration):
    """The policy alone: its noise-free action, or a draw from it if it is stochastic."""

    policies: ClassVar[tuple[type, ...]] = (*Exploration.policies, StochasticPolicy)

    def init(self, policy: Policy, obs: Array) -> Any:
        return unperturbed(policy, obs.shape[0]) if isinstance(policy, StochasticPolicy) else ()

    def act(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        if isinstance(policy, StochasticPolicy):
            return state, state.sample(key, policy, obs)
        return super().act(key, state, policy, obs, step)

    def adapt(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> Any:
        return state.follow(policy) if isinstance(policy, StochasticPolicy) else state

    def offsets(self, state: "Behaviour") -> Array:
        """What each environment's behaviour adds to the flat parameters, as an on-policy learner needs to know."""
        return state.offsets


class Behaviour(NamedTuple):
    """How the environments of an on-policy learner act: each at the clean parameters plus an offset of its own."""

    offsets: Array
    """Flat, [num_envs, parameters]."""
    policies: Any
    """The policies at these parameters: a leading axis on every array."""

    def follow(self, policy: StochasticPolicy) -> "Behaviour":
        """The same offsets around another clean policy."""
        return Behaviour(self.offsets, jax.vmap(lambda offset: displace(policy, offset))(self.offsets))

    def sample(self, key: Array, policy: StochasticPolicy, obs: Array) -> Array:
        """Draws an action for each environment's observation, [num_envs, ...]."""
        return policy.random(key, jax.vmap(lambda perturbed, o: perturbed(o))(self.policies, obs))


def unperturbed(policy: StochasticPolicy, num_envs: int) -> Behaviour:
    """The policy itself, in each environment."""
    size = sum(leaf.size for leaf in jax.tree.leaves(policy))
    return Behaviour(jnp.zeros((num_envs, size)), None).follow(policy)
