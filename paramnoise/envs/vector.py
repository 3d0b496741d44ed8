"""Environments stepped together: the one place where an episode's end and the next one's start are handled."""

from collections.abc import Callable
from typing import NamedTuple

import gymnasium as gym
import jax
import numpy as np

from paramnoise.validation import RunError


class VectorStep(NamedTuple):
    """What one step of all environments returns."""

    next_obs: np.ndarray
    """What each action led to; at an episode's end the final observation."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    obs: np.ndarray
    """What to act on next: `next_obs`, or the first observation of a new episode."""
    starts: np.ndarray
    """Where a new episode starts with `obs`."""


class VectorEnv:
    """Several environments, each episode of each with its own seed.

    They are stepped one after the other, an ended one is reset after its final observation was read. As an episode is
    a function of its seed and its actions, these two are a snapshot of any environment. Gymnasium's own vector of
    environments costs four times as much a step and resets by rules of its own.
    """

    def __init__(self, make_env: Callable[[], gym.Env], num_envs: int, seed: int):
        """Makes `num_envs` environments; `restart` starts their first episodes."""
        self._envs = [make_env() for _ in range(num_envs)]
        self.num_envs = num_envs
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space
        self._shape = (num_envs, *(self.observation_space.shape or ()))
        self._dtype = jax.dtypes.canonicalize_dtype(self.observation_space.dtype)  # what a compiled program takes
        self._seed = seed
        self._episode = np.zeros(num_envs, np.int64)
        self._actions: list[list[np.ndarray]] = [[] for _ in range(num_envs)]

    def restart(self, seed: int | None = None) -> np.ndarray:
        """Starts the first episode of every environment, of the same seed or a new one; returns the observations."""
        self._seed = self._seed if seed is None else seed
        self._episode[:] = 0
        obs = np.empty(self._shape, self._dtype)
        for i in range(self.num_envs):
            obs[i] = self._reset(i)
        return obs

    def step(self, actions: np.ndarray, where: np.ndarray | None = None) -> VectorStep:
        """Steps every environment, or those chosen by a mask, and starts the next episode where one ended.

        What is returned of environments that were not stepped means nothing.
        """
        next_obs = np.zeros(self._shape, self._dtype)
        reward = np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for i, env in enumerate(self._envs):
            if where is None or where[i]:
                self._actions[i].append(actions[i])
                next_obs[i], reward[i], terminated[i], truncated[i], _ = env.step(actions[i])
        if not (np.isfinite(reward).all() and np.isfinite(next_obs).all()):
            self._refuse(next_obs, reward)
        ended = terminated | truncated
        obs = next_obs
        if ended.any():
            obs = next_obs.copy()
            for i in map(int, np.flatnonzero(ended)):
                self._episode[i] += 1
                obs[i] = self._reset(i)
        return VectorStep(next_obs, reward, terminated, truncated, obs, ended)

    def snapshot(self) -> dict[str, np.ndarray]:
        """The episode number and the actions so far of every environment."""
        taken = {f"actions-{i}": np.array(actions) for i, actions in enumerate(self._actions)}
        return {"episode": self._episode.copy(), **taken}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Brings every environment back to a snapshot by replaying its episode; returns the observations."""
        self._episode = snapshot["episode"].copy()
        obs = np.empty(self._shape, self._dtype)
        for i, env in enumerate(self._envs):
            obs[i] = self._reset(i)
            for action in snapshot[f"actions-{i}"]:
                obs[i] = env.step(action)[0]
                self._actions[i].append(action)
        return obs

    def close(self) -> None:
        """Closes every environment."""
        for env in self._envs:
            env.close()

    def _reset(self, i: int) -> np.ndarray:
        self._actions[i].clear()
        return self._envs[i].reset(seed=episode_seed(self._seed, i, int(self._episode[i])))[0]

    def _refuse(self, next_obs: np.ndarray, reward: np.ndarray) -> None:
        rows = next_obs.reshape(self.num_envs, -1)
        which = int(np.flatnonzero(~np.isfinite(reward) | ~np.isfinite(rows).all(axis=1))[0])
        time = len(self._actions[which])
        raise RunError(f"environment {which} gave a reward or observation that is not finite, at step {time}")


def episode_seed(seed: int, env_index: int, episode: int) -> int:
    """The seed of one episode of one environment."""
    return int(np.random.SeedSequence((seed, env_index, episode)).generate_state(1)[0])
