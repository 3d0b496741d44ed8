"""Gymnasium environments stepped together: the one place that handles an episode's end and the next one's start."""

import functools
import math
from collections.abc import Callable, Sequence

import gymnasium as gym
import jax
import numpy as np

from paramnoise.loops.environments import ALL, Environments, EnvSource, EnvStep
from paramnoise.validation import RunError, UsageError, require, warn_in_one_line

MOST_REPLAYED = 100_000
"""The steps of the longest episode that a snapshot brings back: of a longer one the actions are no longer kept."""


class VectorEnv(Environments):
    """Several environments that show vectors, each episode of each with its own seed.

    They are stepped one after the other, an ended one is reset after its final observation was read. As an episode is
    a function of its seed and its actions, these two are a snapshot of any environment. Gymnasium's own vector of
    environments costs four times as much a step and resets by rules of its own.
    """

    def __init__(self, make_env: Callable[[], gym.Env], num_envs: int, seeds: Sequence[int]):
        """Makes `num_envs` environments of each seed; `restart` starts their first episodes."""
        require(bool(seeds) and min(seeds) >= 0, "seeds", seeds, "at least 0, one or several")
        self._envs = [make_env() for _ in range(num_envs * len(seeds))]
        self.num_envs = len(self._envs)
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space
        self._shape = (self.num_envs, *(self.observation_space.shape or ()))
        self._dtype = jax.dtypes.canonicalize_dtype(self.observation_space.dtype)  # what a compiled program takes
        self._places = [(seed, i) for seed in seeds for i in range(num_envs)]
        self._episode = np.zeros(self.num_envs, np.int64)
        self._taken: list[list[np.ndarray]] = [[] for _ in self._envs]
        self._shown = np.empty(self._shape, self._dtype)
        self._has_warned = False
        self._actions = np.zeros(0)
        self._where: np.ndarray | None = None

    def restart(self, seeds: Sequence[int] | None = None) -> np.ndarray:
        """Starts the first episode of every environment, with other seeds if any are given."""
        if seeds is not None:
            num_envs = self.num_envs // len(seeds)
            self._places = [(seed, i) for seed in seeds for i in range(num_envs)]
        self._episode[:] = 0
        obs = np.empty(self._shape, self._dtype)
        for i in range(self.num_envs):
            obs[i] = self._reset(i)
        self._shown = obs
        return obs

    def send(self, actions: np.ndarray, where: np.ndarray | None = None) -> None:
        """Keeps the actions for `recv`: these environments run nowhere else."""
        self._actions, self._where = actions, where

    def recv(self) -> EnvStep:
        """Steps the environments and starts the next episode where one ended."""
        actions, where = self._actions, self._where
        next_obs = np.zeros(self._shape, self._dtype)
        reward = np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for i, env in enumerate(self._envs):
            if where is None or where[i]:
                if len(self._taken[i]) <= MOST_REPLAYED:  # one more than can be replayed tells a longer episode
                    self._taken[i].append(actions[i])
                next_obs[i], reward[i], terminated[i], truncated[i], _ = env.step(actions[i].copy())
        # Squared norms are the cheapest look at every element; as they may overflow, a second look decides.
        if not (math.isfinite(np.vdot(reward, reward)) and math.isfinite(np.vdot(next_obs, next_obs))):
            self._check_elements(next_obs, reward)
        ended = terminated | truncated
        obs = next_obs
        if np.count_nonzero(ended):  # a tenth of the time of `any`
            obs = next_obs.copy()
            for i in map(int, np.flatnonzero(ended)):
                self._episode[i] += 1
                obs[i] = self._reset(i)
        self._shown = obs
        return EnvStep(obs, reward, terminated, truncated, ended, ended, next_obs)

    def snapshot(self, part: slice = ALL) -> dict[str, np.ndarray]:
        """The episode number, the actions so far and what is shown now, of every environment or of those of one seed.

        Of an episode that is too long to be replayed there are no actions; a line says so once.
        """
        too_long = [i for i, actions in enumerate(self._taken) if len(actions) > MOST_REPLAYED]
        if too_long and not self._has_warned:
            self._has_warned = True
            warn_in_one_line(
                f"the episode of environment {too_long[0]} ({self._name}) is longer than {MOST_REPLAYED:,} steps: "
                "a run resumed from this checkpoint starts another in its place, and does not go on exactly"
            )
        taken = {
            f"actions-{i}": np.array(actions)
            for i, actions in enumerate(self._taken[part])
            if len(actions) <= MOST_REPLAYED
        }
        return {"episode": self._episode[part].copy(), "obs": self._shown[part].copy(), **taken}

    def joined(self, parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """One snapshot of those of every seed."""
        if len(parts) == 1:
            return parts[0]
        whole = {name: np.concatenate([part[name] for part in parts]) for name in ("episode", "obs")}
        first = np.cumsum([0, *(len(part["episode"]) for part in parts)]).tolist()
        for start, part in zip(first, parts, strict=False):
            for i in range(len(part["episode"])):
                if f"actions-{i}" in part:
                    whole[f"actions-{start + i}"] = part[f"actions-{i}"]
        return whole

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Brings every environment back to a snapshot by replaying its episode; returns the observations.

        Where an episode cannot be brought back, because it is too long or shows something else than it did, a line
        says so, `replays` is False, and every environment starts its next episode.
        """
        if "episode" not in snapshot:
            raise UsageError("the agent was saved with a vector environment of its own: pass one like it (env=)")
        self._episode = snapshot["episode"].copy()
        if self._episode.shape != (self.num_envs,):
            raise UsageError(f"the checkpoint is of {self._episode.size} environments, and here are {self.num_envs}")
        self._shown, problem = np.empty(self._shape, self._dtype), ""
        if any(f"actions-{i}" not in snapshot for i in range(self.num_envs)):
            problem = f"its episode is longer than {MOST_REPLAYED:,} steps"
        elif not self._replay(snapshot):
            problem = "its replayed episode shows something else than it did: it does not repeat from its seed"
        self.replays = not problem
        if problem:
            warn_in_one_line(f"{self._name}: {problem}; the run goes on with new episodes, and so not exactly")
            self._episode += 1
            for i in range(self.num_envs):
                self._shown[i] = self._reset(i)
        return self._shown

    def _replay(self, snapshot: dict[str, np.ndarray]) -> bool:
        """Replays the episodes of a snapshot; whether they show what they did."""
        is_over = False
        for i, env in enumerate(self._envs):
            self._shown[i] = self._reset(i)
            for action in snapshot[f"actions-{i}"]:
                self._shown[i], _, terminated, truncated, _ = env.step(action.copy())
                self._taken[i].append(action)
                if terminated or truncated:  # the episode that was saved went on
                    is_over = True
                    break
        return not is_over and ("obs" not in snapshot or np.array_equal(self._shown, snapshot["obs"]))

    def close(self) -> None:
        """Closes every environment."""
        for env in self._envs:
            env.close()

    def _reset(self, i: int) -> np.ndarray:
        self._taken[i].clear()
        return self._envs[i].reset(seed=episode_seed(*self._places[i], int(self._episode[i])))[0]

    def _check_elements(self, next_obs: np.ndarray, reward: np.ndarray) -> None:
        rows = next_obs.reshape(self.num_envs, -1)
        wrong = np.flatnonzero(~np.isfinite(reward) | ~np.isfinite(rows).all(axis=1))
        if not len(wrong):
            return
        which = int(wrong[0])
        time = len(self._taken[which])
        when = f"at step {time}" if time <= MOST_REPLAYED else f"after step {MOST_REPLAYED}"
        seed, own = self._places[which]
        name = f"environment {own}" + f" of seed {seed}" * (len({seed for seed, _ in self._places}) > 1)
        raise RunError(f"{name} gave a reward or observation that is not finite, {when}")

    @property
    def _name(self) -> str:
        spec = self._envs[0].spec
        return type(self._envs[0].unwrapped).__name__ if spec is None else spec.id


def vector_source(make_env: Callable[[], gym.Env]) -> EnvSource:
    """Environments that show vectors, from a function that makes one."""
    probe = make_env()
    source = EnvSource(make_env, functools.partial(make_vector, make_env), probe.observation_space, probe.action_space)
    probe.close()
    return source


def make_vector(make_env: Callable[[], gym.Env], seeds: Sequence[int], num_envs: int, *, trains: bool) -> VectorEnv:
    """So many environments of each seed; as `MakeEnvs`, given how one is made."""
    return VectorEnv(make_env, num_envs, seeds)


def episode_seed(seed: int, env_index: int, episode: int) -> int:
    """The seed of one episode of one environment."""
    return int(np.random.SeedSequence((seed, env_index, episode)).generate_state(1)[0])
