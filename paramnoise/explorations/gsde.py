"""Generalised state-dependent exploration (Raffin et al. 2021): noise that is linear in the policy's features.

The weights of the noise are drawn once per episode, or every few steps. Between two draws the noise is a function of
the state, as that of parameter noise is, which perturbs all layers and not the last alone.
"""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.explorations.base import Exploration, register_exploration
from paramnoise.networks import gsde
from paramnoise.networks.gsde import StateNoiseActor
from paramnoise.networks.policies import DeterministicPolicy, Policy, SquashedGaussianPolicy
from paramnoise.validation import UsageError, require


class StateNoiseState(NamedTuple):
    """All that changes in noise that is a function of the state."""

    weights: Array
    """Those of each environment, [num_envs, features, dimensions]."""
    sampled_at: Array
    """The environment step at which they were drawn, [num_envs]."""


def no_weights(num_envs: int, log_std: Array) -> StateNoiseState:
    """Before the first episode."""
    return StateNoiseState(jnp.zeros((num_envs, *log_std.shape)), jnp.zeros(num_envs, jnp.int32))


def redrawn(key: Array, state: StateNoiseState, log_std: Array, where: Array, step: Array) -> StateNoiseState:
    """New weights in some environments, bool[num_envs]."""
    keys = jax.random.split(key, where.shape[0])
    fresh = jax.vmap(lambda k: gsde.draw_weights(k, log_std))(keys)
    return StateNoiseState(
        jnp.where(where[:, None, None], fresh, state.weights), jnp.where(where, step, state.sampled_at)
    )


def redrawn_if_old(
    key: Array, state: StateNoiseState, log_std: Array, most: int | None, step: Array
) -> StateNoiseState:
    """New weights in the environments whose weights are as many steps old; None: in none."""
    if most is None:
        return state
    old = step - state.sampled_at >= most * state.sampled_at.shape[0]  # steps are counted over all environments
    renew = lambda s: redrawn(key, s, log_std, old, step)  # noqa: E731
    return jax.lax.cond(jnp.any(old), renew, lambda s: s, state)


def noise_at(state: StateNoiseState, features: Array) -> Array:
    """The noise of each environment, [num_envs, dimensions], for its features."""
    return jnp.einsum("nf,nfd->nd", features, state.weights)


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
        require(
            self.resample_every is None or self.resample_every >= 1, "resample_every", self.resample_every, "at least 1"
        )

    def init(self, policy: Policy, obs: Array) -> StateNoiseState:
        network: Any = policy.network  # type: ignore[union-attr]
        if not hasattr(getattr(network, "actor", None), "features"):
            raise UsageError("gsde needs the last hidden layer of our own actor: leave network= out")
        features = jax.eval_shape(jax.vmap(network.features), obs)
        actions = jax.eval_shape(jax.vmap(policy), obs)
        return no_weights(obs.shape[0], self._log_std(features.shape[-1], actions.shape[-1]))

    def begin_episode(
        self, key: Array, state: StateNoiseState, policy: Policy, starts: Array, step: Array
    ) -> StateNoiseState:
        return redrawn(key, state, self._log_std(*state.weights.shape[1:]), starts, step)

    def act(
        self, key: Array, state: StateNoiseState, policy: Policy, obs: Array, step: Array
    ) -> tuple[StateNoiseState, Array]:
        state = redrawn_if_old(key, state, self._log_std(*state.weights.shape[1:]), self.resample_every, step)
        network: Any = policy.network  # type: ignore[union-attr]
        noise = noise_at(state, jax.vmap(network.features)(obs))
        return state, jnp.clip(jax.vmap(policy)(obs) + noise, -1.0, 1.0)

    def _log_std(self, features: int, dimensions: int) -> Array:
        return jnp.full((features, dimensions), gsde.first_log_std(features) + math.log(self.sigma))


@register_exploration("gsde")
@dataclasses.dataclass(frozen=True, kw_only=True)
class StateDraws(Exploration):
    """gSDE as SAC has it: draws from a policy whose variance comes from its features, by weights kept for an episode.

    In each state alone the action has the policy's distribution, over the draws of the weights.
    """

    policies: ClassVar[tuple[type, ...]] = (SquashedGaussianPolicy,)

    resample_every: int | None = None
    """Steps of an environment after which weights are drawn anew within an episode; None: never."""

    def __post_init__(self) -> None:
        require(
            self.resample_every is None or self.resample_every >= 1, "resample_every", self.resample_every, "at least 1"
        )

    def init(self, policy: Policy, obs: Array) -> StateNoiseState:
        return no_weights(obs.shape[0], self._actor(policy).log_std)

    def begin_episode(
        self, key: Array, state: StateNoiseState, policy: Policy, starts: Array, step: Array
    ) -> StateNoiseState:
        return redrawn(key, state, self._actor(policy).log_std, starts, step)

    def act(
        self, key: Array, state: StateNoiseState, policy: Policy, obs: Array, step: Array
    ) -> tuple[StateNoiseState, Array]:
        state = redrawn_if_old(key, state, self._actor(policy).log_std, self.resample_every, step)
        network: Any = policy.network  # type: ignore[union-attr]
        means = jax.vmap(policy)(obs)[:, 0]
        return state, jnp.tanh(means + noise_at(state, jax.vmap(network.features)(obs)))

    def _actor(self, policy: Policy) -> StateNoiseActor:
        actor = getattr(policy.network, "actor", None)  # type: ignore[union-attr]
        if not isinstance(actor, StateNoiseActor):
            raise UsageError("gsde needs a policy whose variance comes from its features: set std_from_features=True")
        return actor
