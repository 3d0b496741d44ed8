"""Environments as pure functions, in the manner of gymnax, for the compiled loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
from jax import Array


class JaxStep(NamedTuple):
    """What one step of a JAX environment returns."""

    obs: Array
    state: Any
    reward: Array
    terminated: Array
    truncated: Array


class JaxEnv(NamedTuple):
    """An environment that XLA can compile."""

    name: str
    reset: Callable[[Array], tuple[Array, Any]]
    """key -> obs, state."""
    step: Callable[[Array, Any, Array], JaxStep]
    """key, state, action -> JaxStep."""
    observation_space: gym.spaces.Box
    action_space: gym.Space
    max_episode_steps: int
    """No episode is longer; evaluation rolls out this many steps."""


def step_and_reset(env: JaxEnv, key: Array, state: Any, action: Array) -> tuple[JaxStep, Array, Any]:
    """Steps one environment and starts the next episode where this one ended.

    Returns:
        The step as it was, with its final observation; then the observation and the state to go on from.
    """
    step_key, reset_key = jax.random.split(key)
    after = env.step(step_key, state, action)
    ended = after.terminated | after.truncated
    fresh_obs, fresh_state = env.reset(reset_key)
    obs, state = jax.tree.map(
        lambda new, old: jnp.where(ended, new, old), (fresh_obs, fresh_state), (after.obs, after.state)
    )
    return after, obs, state
