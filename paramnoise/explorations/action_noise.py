"""Noise on continuous actions: independent from step to step, or correlated."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.explorations.base import Exploration, HostNoise, HostPolicy, register_exploration
from paramnoise.networks.policies import DeterministicPolicy, Policy
from paramnoise.validation import require


@register_exploration("gaussian")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Gaussian(Exploration):
    """Independent Gaussian noise on each continuous action."""

    policies: ClassVar[tuple[type, ...]] = (DeterministicPolicy,)

    sigma: float = 0.2
    """The standard deviation, in units of half the action range."""

    def __post_init__(self) -> None:
        require(self.sigma >= 0, "sigma", self.sigma, "at least 0")

    def act(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        actions = jax.vmap(policy)(obs)
        return state, jnp.clip(actions + self.sigma * jax.random.normal(key, actions.shape), -1.0, 1.0)

    def act_on_host(self, noise: HostNoise, state: Any, policy: HostPolicy, obs: np.ndarray, step: int) -> np.ndarray:
        actions = policy(obs)
        return np.minimum(np.maximum(actions + self.sigma * noise.normal(actions.shape), -1.0), 1.0)


@register_exploration("ou")
@dataclasses.dataclass(frozen=True, kw_only=True)
class OrnsteinUhlenbeck(Exploration):
    """Correlated noise on continuous actions: dx = -theta x dt + sigma sqrt(dt) N(0, I), from 0 in each episode.

    With dt = 0.01 a sigma of 0.2 moves the noise by 0.02 a step; code bases with dt = 1 explore far more for the same
    sigma.
    """

    policies: ClassVar[tuple[type, ...]] = (DeterministicPolicy,)

    sigma: float = 0.2
    """The scale of the noise, in units of half the action range."""
    theta: float = 0.15
    """How strongly the noise returns to 0."""
    dt: float = 0.01
    """The time of one step."""

    def __post_init__(self) -> None:
        require(self.sigma >= 0, "sigma", self.sigma, "at least 0")
        require(self.theta >= 0, "theta", self.theta, "at least 0")
        require(self.dt > 0, "dt", self.dt, "above 0")

    def init(self, policy: Policy, obs: Array) -> Array:
        return jnp.zeros(jax.eval_shape(jax.vmap(policy), obs).shape)

    def begin_episode(self, key: Array, state: Array, policy: Policy, starts: Array, step: Array) -> Array:
        return jnp.where(starts[:, None], 0.0, state)

    def act(self, key: Array, state: Array, policy: Policy, obs: Array, step: Array) -> tuple[Array, Array]:
        shock = self.sigma * self.dt**0.5 * jax.random.normal(key, state.shape)
        state = state - self.theta * self.dt * state + shock
        return state, jnp.clip(jax.vmap(policy)(obs) + state, -1.0, 1.0)
