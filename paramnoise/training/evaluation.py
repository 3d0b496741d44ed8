"""Noise-free evaluation, on environments of its own."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import jax
import numpy as np
from jax import Array

from paramnoise.envs.vector import VectorEnv
from paramnoise.policies import Policy, noise_free_actions
from paramnoise.validation import RunError

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

    def row(
        self, policy: Policy, eval_episodes: int, seed: int, step: int, episodes: int, ended: Sequence[float]
    ) -> dict[str, float]:
        """The columns that every row of progress begins with, evaluation included.

        Args:
            policy: the clean policy.
            eval_episodes: episodes of the evaluation.
            seed: the run's.
            step: environment steps so far; it decides the evaluation's seed, so that none depends on those before it or
                disturbs training.
            episodes: episodes so far.
            ended: the returns of the training episodes that ended since the last row.
        """
        returns = self.returns(policy, eval_episodes, EVALUATION_STREAM * seed + step)
        return first_columns(step, episodes, returns, ended)

    def close(self) -> None:
        """Closes the environments."""
        if self._envs is not None:
            self._envs.close()


def first_columns(step: int, episodes: int, returns: np.ndarray, ended: Sequence[float]) -> dict[str, float]:
    """The columns that every row of progress begins with: an evaluation's returns, and those of training episodes."""
    return {
        "step": step,
        "episodes": episodes,
        "eval_return_mean": float(np.mean(returns)),
        "eval_return_median": float(np.median(returns)),
        "train_return_mean": float(np.mean(ended)) if ended else float("nan"),
    }


def require_finite(values: Mapping[str, Any], step: int, remedy: str = "a lower rate may help") -> None:
    """Raises RunError if one of the numbers that learning reports is not finite."""
    for name, value in values.items():
        if not np.isfinite(value):
            raise RunError(f"{name} is {value} by step {step}: learning has diverged ({remedy})")


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
