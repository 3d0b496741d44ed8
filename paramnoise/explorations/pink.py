"""Coloured noise on continuous actions: a spectrum of 1 / f^beta, one sequence per episode (Eberhard et al. 2023).

Beta 0 is white noise, 1 pink, 2 red as a random walk is. White noise never leads far from the policy and red noise
never comes back to it; pink noise does some of both.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.explorations.base import Exploration, HostNoise, HostPolicy, register_exploration
from paramnoise.networks.policies import DeterministicPolicy, Policy, SquashedGaussianPolicy
from paramnoise.validation import require


class Sequences(NamedTuple):
    """The noise of each environment's episode."""

    noise: Array
    """From the episode's first step to its horizon, [num_envs, horizon, dimensions]."""
    began_at: Array
    """The environment step at which the episode began, [num_envs]."""


def coloured_noise(key: Array, beta: float, steps: int, shape: tuple[int, ...] = ()) -> Array:
    """Gaussian sequences whose power falls with the frequency as f^-beta, each of variance 1; [*shape, steps].

    A Gaussian amplitude for each frequency, as wide as its share of the spectrum, and back by FFT (Timmer and König
    1995). Frequency 0 has the share of the lowest above it, so that a sequence has a mean of its own. It is periodic:
    the step after the last is the first.
    """
    frequencies = np.fft.rfftfreq(steps)
    frequencies[0] = frequencies[1]
    width = frequencies ** (-beta / 2)
    counted = width[1:].copy()
    counted[-1] *= (1 + steps % 2) / 2  # of an even number of steps, the last frequency has no imaginary part
    std = 2 * np.sqrt(np.sum(counted**2)) / steps
    real, imaginary = jnp.asarray(width, jnp.float32) * jax.random.normal(key, (2, *shape, width.size))
    single = np.zeros(width.size, bool)
    single[0], single[-1] = True, steps % 2 == 0
    real = jnp.where(single, np.sqrt(2.0) * real, real)
    spectrum = jax.lax.complex(real, jnp.where(single, 0.0, imaginary))
    return jnp.fft.irfft(spectrum, steps) / std


def no_sequences(num_envs: int, horizon: int, dimensions: int) -> Sequences:
    """Before the first episode."""
    return Sequences(jnp.zeros((num_envs, horizon, dimensions)), jnp.zeros(num_envs, jnp.int32))


def begin(key: Array, state: Sequences, beta: float, starts: Array, step: Array) -> Sequences:
    """New sequences where an episode starts, bool[num_envs]."""
    num_envs, horizon, dimensions = state.noise.shape
    fresh = jnp.swapaxes(coloured_noise(key, beta, horizon, (num_envs, dimensions)), 1, 2)
    return Sequences(jnp.where(starts[:, None, None], fresh, state.noise), jnp.where(starts, step, state.began_at))


def noise_at(state: Sequences, step: Any) -> Any:
    """The noise of each environment at a step, [num_envs, dimensions]; beyond the horizon it comes again.

    In JAX, or in NumPy where the arrays are NumPy's.
    """
    num_envs, horizon, _ = state.noise.shape
    place = (step - state.began_at) // num_envs % horizon  # steps are counted over all environments
    return state.noise[np.arange(num_envs), place]


def check(beta: float, horizon: int) -> None:
    """Raises UsageError if there is no such noise."""
    require(beta >= 0, "beta", beta, "at least 0")
    require(horizon >= 2, "horizon", horizon, "at least 2")


@register_exploration("pink")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ColouredNoise(Exploration):
    """Coloured noise on continuous actions, pink by default: correlated over all times up to the episode's length."""

    policies: ClassVar[tuple[type, ...]] = (DeterministicPolicy,)

    sigma: float = 0.2
    """The standard deviation, in units of half the action range."""
    beta: float = 1.0
    """The exponent: power falls with the frequency as f^-beta. 0 is white, 1 pink, 2 red."""
    horizon: int = 1_000
    """Steps of a sequence: those of an episode. In a longer one the sequence comes again."""

    def __post_init__(self) -> None:
        require(self.sigma >= 0, "sigma", self.sigma, "at least 0")
        check(self.beta, self.horizon)

    def init(self, policy: Policy, obs: Array) -> Sequences:
        return no_sequences(obs.shape[0], self.horizon, jax.eval_shape(jax.vmap(policy), obs).shape[1])

    def begin_episode(self, key: Array, state: Sequences, policy: Policy, starts: Array, step: Array) -> Sequences:
        return begin(key, state, self.beta, starts, step)

    def act(self, key: Array, state: Sequences, policy: Policy, obs: Array, step: Array) -> tuple[Sequences, Array]:
        actions = jax.vmap(policy)(obs)
        return state, jnp.clip(actions + self.sigma * noise_at(state, step), -1.0, 1.0)

    def act_on_host(self, noise: HostNoise, state: Any, policy: HostPolicy, obs: np.ndarray, step: int) -> np.ndarray:
        return np.minimum(np.maximum(policy(obs) + self.sigma * noise_at(state, step), -1.0), 1.0)


@register_exploration("pink")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ColouredDraws(Exploration):
    """Draws from a squashed Gaussian policy by coloured noise, pink by default, in place of white noise.

    In each state alone the action has the policy's distribution; from step to step actions are correlated.
    """

    policies: ClassVar[tuple[type, ...]] = (SquashedGaussianPolicy,)

    beta: float = 1.0
    """The exponent: power falls with the frequency as f^-beta. 0 is white, 1 pink, 2 red."""
    horizon: int = 1_000
    """Steps of a sequence: those of an episode. In a longer one the sequence comes again."""

    def __post_init__(self) -> None:
        check(self.beta, self.horizon)

    def init(self, policy: Policy, obs: Array) -> Sequences:
        return no_sequences(obs.shape[0], self.horizon, jax.eval_shape(jax.vmap(policy), obs).shape[2])

    def begin_episode(self, key: Array, state: Sequences, policy: Policy, starts: Array, step: Array) -> Sequences:
        return begin(key, state, self.beta, starts, step)

    def act(self, key: Array, state: Sequences, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        assert isinstance(policy, SquashedGaussianPolicy)
        return state, policy.squash(jax.vmap(policy)(obs), noise_at(state, step))

    def act_on_host(self, noise: HostNoise, state: Any, policy: HostPolicy, obs: np.ndarray, step: int) -> np.ndarray:
        squashed: Any = policy
        return squashed.squash(squashed(obs), noise_at(state, step))
