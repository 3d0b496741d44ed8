"""Noise-free evaluation, on environments of its own."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax
import numpy as np
from jax import Array

from paramnoise.envs.vector import VectorEnv
from paramnoise.policies import Policy, noise_free_actions

EVALUATION_STREAM = 1_000_003
"""Keeps the seeds of evaluation episodes apart from those of training."""


class Evaluator:
    """Environments that are made when they are first needed, one for each episode."""

    def __init__(self, make_env: Callable[[], gym.Env], max_steps: int):
        """Remembers how to make an environment, and the steps after which an episode is cut."""
        self._make_env, self._max_steps = make_env, max_steps
        self._envs: VectorEnv | None = None

    def returns(self, policy: Policy, episodes: int, seed: int) -> np.ndarray:
        """The returns of so many noise-free episodes; the seed decides them."""
        if self._envs is None or self._envs.num_envs != episodes:
            self.close()
            self._envs = VectorEnv(self._make_env, episodes, EVALUATION_STREAM)
        return evaluate(policy, self._envs, EVALUATION_STREAM + seed, self._max_steps)

    def close(self) -> None:
        """Closes the environments."""
        if self._envs is not None:
            self._envs.close()


def seed_of(run_seed: int, step: int) -> int:
    """The seed of a run's evaluation: by the step, so that none depends on those before it or disturbs training."""
    return EVALUATION_STREAM * run_seed + step


def evaluate(policy: Policy, envs: VectorEnv, seed: int, max_steps: int) -> np.ndarray:
    """The return of one noise-free episode, or of its first `max_steps` steps, in each environment."""
    leaves, structure = jax.tree.flatten(policy)
    obs = envs.restart(seed)
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(max_steps):
        after = envs.step(np.asarray(_noise_free(structure, leaves, obs)), where=running)
        returns += after.reward
        running &= ~after.starts
        if not running.any():
            break
        obs = after.obs
    return returns


@functools.partial(jax.jit, static_argnums=0)
def _noise_free(structure: Any, leaves: list[Array], obs: Array) -> Array:
    return noise_free_actions(jax.tree.unflatten(structure, leaves), obs)
