"""Environments stepped together: the one place where an episode's end and the next one's start are handled."""

from collections.abc import Callable
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

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

    Gymnasium's automatic resets are off: an ended environment is reset here, after its final observation was read. As
    an episode is a function of its seed and its actions, these two are a snapshot of any environment.
    """

    def __init__(self, make_env: Callable[[], gym.Env], num_envs: int, seed: int):
        """Makes `num_envs` environments; `restart` starts their first episodes."""
        self._envs = SyncVectorEnv([make_env] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
        self.num_envs = num_envs
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space
        self._seed = seed
        self._episode = np.zeros(num_envs, np.int64)
        self._actions: list[list[np.ndarray]] = [[] for _ in range(num_envs)]

    def restart(self, seed: int | None = None) -> np.ndarray:
        """Starts the first episode of every environment, of the same seed or a new one; returns the observations."""
        self._seed = self._seed if seed is None else seed
        self._episode[:] = 0
        return self._reset(np.ones(self.num_envs, bool))

    def step(self, actions: np.ndarray) -> VectorStep:
        """Steps every environment and starts the next episode where one ended."""
        next_obs, reward, terminated, truncated, _ = self._envs.step(actions)
        for taken, action in zip(self._actions, actions, strict=True):
            taken.append(action)
        if not (np.isfinite(reward).all() and np.isfinite(next_obs).all()):
            which = int(np.flatnonzero(~np.isfinite(reward) | ~np.isfinite(next_obs).all(axis=1))[0])
            time = len(self._actions[which])
            raise RunError(f"environment {which} gave a reward or observation that is not finite, at step {time}")
        ended = terminated | truncated
        obs = next_obs
        if ended.any():
            self._episode += ended
            obs = self._reset(ended)
        return VectorStep(next_obs, reward.astype(np.float32), terminated, truncated, obs, ended)

    def snapshot(self) -> dict[str, np.ndarray]:
        """The episode number and the actions so far of every environment."""
        taken = {f"actions-{i}": np.array(actions) for i, actions in enumerate(self._actions)}
        return {"episode": self._episode.copy(), **taken}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Brings every environment back to a snapshot by replaying its episode; returns the observations."""
        self._episode = snapshot["episode"].copy()
        obs = self._reset(np.ones(self.num_envs, bool))
        for i, env in enumerate(self._envs.envs):
            for action in snapshot[f"actions-{i}"]:
                obs[i] = env.step(action)[0]
                self._actions[i].append(action)
        return obs

    def close(self) -> None:
        """Closes every environment."""
        self._envs.close()

    def _reset(self, ended: np.ndarray) -> np.ndarray:
        seeds: list[int | None] = [episode_seed(self._seed, i, int(self._episode[i])) for i in range(self.num_envs)]
        for i in np.flatnonzero(ended):
            self._actions[i].clear()
        return self._envs.reset(seed=seeds, options={"reset_mask": ended})[0]


def episode_seed(seed: int, env_index: int, episode: int) -> int:
    """The seed of one episode of one environment."""
    return int(np.random.SeedSequence((seed, env_index, episode)).generate_state(1)[0])
