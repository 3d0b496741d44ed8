"""Generalised state-dependent exploration (Raffin et al. 2021): noise that is linear in the policy's features.

The weights of the noise are drawn once per episode, or every few steps. Between two draws the noise is a function of
the state, as that of parameter noise is, which perturbs all layers and not the last alone.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.explorations.base import Exploration, HostNoise, HostPolicy, register_exploration
from paramnoise.networks.gsde import StateGaussianPolicy, StateNoiseActor
from paramnoise.networks.policies import DeterministicPolicy, Policy, SquashedGaussianPolicy, StochasticPolicy
from paramnoise.validation import UsageError, require


class StateNoiseState(NamedTuple):
    """All that changes in noise that is a function of the state."""

    draws: Array
    """Standard normal numbers of each environment, [num_envs, features, dimensions]: times the standard deviation of
    now they are the weights of the noise, which so follow what is learned."""
    drawn_at: Array
    """The environment step at which they were drawn, [num_envs]."""


def no_draws(num_envs: int, features: int, dimensions: int) -> StateNoiseState:
    """Before the first episode."""
    return StateNoiseState(jnp.zeros((num_envs, features, dimensions)), jnp.zeros(num_envs, jnp.int32))


def redrawn(key: Array, state: StateNoiseState, where: Array, step: Array) -> StateNoiseState:
    """New draws in some environments, bool[num_envs]."""
    fresh = jax.random.normal(key, state.draws.shape)
    return StateNoiseState(jnp.where(where[:, None, None], fresh, state.draws), jnp.where(where, step, state.drawn_at))


def redrawn_if_old(key: Array, state: StateNoiseState, most: int | None, step: Array) -> StateNoiseState:
    """New draws in the environments whose draws are as many steps old; None: in none."""
    if most is None:
        return state
    old = step - state.drawn_at >= most * state.drawn_at.shape[0]  # steps are counted over all environments
    return jax.lax.cond(jnp.any(old), lambda s: redrawn(key, s, old, step), lambda s: s, state)


def noise_at(state: StateNoiseState, features: Any, std: Any) -> Any:
    """The noise of each environment, [num_envs, dimensions], for its features.

    `std` is that of the weights: a number, or one for each of them. In JAX, or in NumPy where the arrays are NumPy's.
    """
    return (features[:, None, :] @ (std * state.draws))[:, 0]


def check_age(resample_every: int | None) -> None:
    """Raises UsageError if draws cannot last so long."""
    require(resample_every is None or resample_every >= 1, "resample_every", resample_every, "at least 1")


@register_exploration("gsde")
@dataclasses.dataclass(frozen=True, kw_only=True)
class StateNoise(Exploration):
    """gSDE on deterministic actions: noise linear in the actor's last features, its weights kept for an episode."""

    policies: ClassVar[tuple[type, ...]] = (DeterministicPolicy,)

    sigma: float = 0.2
    """The standard deviation of the noise, in units of half the action range, where the features' root mean square is
    1: that of the weights is sigma / sqrt(features)."""
    resample_every: int | None = None
    """Steps of an environment after which weights are drawn anew within an episode; None: never."""

    def __post_init__(self) -> None:
        require(self.sigma > 0, "sigma", self.sigma, "above 0")
        check_age(self.resample_every)

    def init(self, policy: Policy, obs: Array) -> StateNoiseState:
        network: Any = policy.network  # type: ignore[union-attr]
        if not hasattr(getattr(network, "actor", None), "features"):
            raise UsageError("gsde needs the last hidden layer of our own actor: leave network= out")
        features = jax.eval_shape(jax.vmap(network.features), obs)
        actions = jax.eval_shape(jax.vmap(policy), obs)
        return no_draws(obs.shape[0], features.shape[-1], actions.shape[-1])

    def begin_episode(
        self, key: Array, state: StateNoiseState, policy: Policy, starts: Array, step: Array
    ) -> StateNoiseState:
        return redrawn(key, state, starts, step)

    def act(
        self, key: Array, state: StateNoiseState, policy: Policy, obs: Array, step: Array
    ) -> tuple[StateNoiseState, Array]:
        state = redrawn_if_old(key, state, self.resample_every, step)
        network: Any = policy.network  # type: ignore[union-attr]
        noise = noise_at(state, jax.vmap(network.features)(obs), self._std(state))
        return state, jnp.clip(jax.vmap(policy)(obs) + noise, -1.0, 1.0)

    @property
    def can_act_on_host(self) -> bool:
        return self.resample_every is None

    def act_on_host(self, noise: HostNoise, state: Any, policy: HostPolicy, obs: np.ndarray, step: int) -> np.ndarray:
        featured: Any = policy
        features = featured.features(obs)
        return featured.bounded(featured.mean(features) + noise_at(state, features, self._std(state)))

    def _std(self, state: StateNoiseState) -> float:
        """Of the weights."""
        return self.sigma / math.sqrt(state.draws.shape[1])


@register_exploration("gsde")
@dataclasses.dataclass(frozen=True, kw_only=True)
class StateDraws(Exploration):
    """gSDE as SAC and PPO have it: draws from a policy whose variance comes from its features, by weights that last.

    In each state alone the action has the policy's distribution, over the draws of the weights.
    """

    policies: ClassVar[tuple[type, ...]] = (SquashedGaussianPolicy, StochasticPolicy)
    agent_settings: ClassVar[Mapping[str, Any]] = {"std_from_features": True}

    resample_every: int | None = None
    """Steps of an environment after which weights are drawn anew within an episode; None: never."""

    def __post_init__(self) -> None:
        check_age(self.resample_every)

    def init(self, policy: Policy, obs: Array) -> StateNoiseState:
        return no_draws(obs.shape[0], *_log_std(policy).shape)

    def begin_episode(
        self, key: Array, state: StateNoiseState, policy: Policy, starts: Array, step: Array
    ) -> StateNoiseState:
        return redrawn(key, state, starts, step)

    def act(
        self, key: Array, state: StateNoiseState, policy: Policy, obs: Array, step: Array
    ) -> tuple[StateNoiseState, Array]:
        state = redrawn_if_old(key, state, self.resample_every, step)
        network: Any = policy.network  # type: ignore[union-attr]
        noise = noise_at(state, jax.vmap(network.features)(obs), jnp.exp(_log_std(policy)))
        before = jax.vmap(policy)(obs)[:, 0] + noise
        return state, jnp.tanh(before) if isinstance(policy, SquashedGaussianPolicy) else before

    @property
    def can_act_on_host(self) -> bool:
        return self.resample_every is None

    def act_on_host(self, noise: HostNoise, state: Any, policy: HostPolicy, obs: np.ndarray, step: int) -> np.ndarray:
        featured: Any = policy
        features = featured.features(obs)
        return featured.bounded(featured.mean(features) + noise_at(state, features, featured.weights_std))


def _log_std(policy: Policy) -> Array:
    """That of the weights of the noise, [features, dimensions], or UsageError if the policy has none."""
    if isinstance(policy, StateGaussianPolicy):
        return policy.log_std
    actor = getattr(policy.network, "actor", None)  # type: ignore[union-attr]
    if not isinstance(actor, StateNoiseActor):
        raise UsageError("gsde needs a policy whose variance comes from its features: set std_from_features=True")
    return actor.log_std
