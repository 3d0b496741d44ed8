"""Epsilon-greedy: a random action with a probability that is annealed."""

import dataclasses
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise.explorations.base import Exploration, register_exploration
from paramnoise.networks.policies import CONTINUOUS, GreedyPolicy, Policy, VotingPolicy
from paramnoise.validation import require


@register_exploration("epsilon-greedy")
@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(Exploration):
    """A random action with probability epsilon, which is annealed linearly."""

    policies: ClassVar[tuple[type, ...]] = (GreedyPolicy, VotingPolicy)

    epsilon_start: float = 1.0
    """The probability of a random action at the first step."""
    epsilon_end: float = 0.1
    """The probability after annealing."""
    anneal_steps: int = 10_000
    """Environment steps over which epsilon is annealed."""

    def __post_init__(self) -> None:
        check_annealing(self)

    def act(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        values = jax.vmap(policy)(obs)
        return state, mix_in_random(key, policy, values, jax.vmap(policy.greedy)(values), annealed_epsilon(self, step))

    def report(self, state: Any, step: Array) -> dict[str, Array]:
        return {"epsilon": annealed_epsilon(self, step)}


class Annealed(Protocol):
    """A config with an epsilon that is annealed linearly."""

    @property
    def epsilon_start(self) -> float:
        """At the first step."""

    @property
    def epsilon_end(self) -> float:
        """After annealing."""

    @property
    def anneal_steps(self) -> int:
        """Environment steps over which it is annealed."""


def annealed_epsilon(config: Annealed, step: Array) -> Array:
    """Epsilon at an environment step."""
    schedule = optax.linear_schedule(config.epsilon_start, config.epsilon_end, config.anneal_steps)
    return jnp.asarray(schedule(step), jnp.float32)


def check_annealing(config: Annealed) -> None:
    """Raises UsageError if epsilon cannot be annealed like that."""
    require(0 <= config.epsilon_start <= 1, "epsilon_start", config.epsilon_start, "between 0 and 1")
    require(0 <= config.epsilon_end <= 1, "epsilon_end", config.epsilon_end, "between 0 and 1")
    require(config.anneal_steps >= 1, "anneal_steps", config.anneal_steps, "at least 1")


def mix_in_random(key: Array, policy: Policy, values: Array, actions: Array, epsilon: Array | float) -> Array:
    """The actions, each replaced by a uniformly random one with probability epsilon."""
    choice_key, action_key = jax.random.split(key)
    explore = jax.random.bernoulli(choice_key, epsilon, actions.shape[:1])
    explore = explore.reshape((-1,) + (1,) * (actions.ndim - 1))
    if isinstance(policy, CONTINUOUS):
        random = jax.random.uniform(action_key, actions.shape, actions.dtype, -1.0, 1.0)
    else:
        random = policy.random(action_key, values).astype(actions.dtype)
    return jnp.where(explore, random, actions)
