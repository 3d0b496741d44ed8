"""Environments written in JAX, seen from outside: for evaluation, and for agents that no compiled program trains."""

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.loops.environments import ALL, Environments, EnvSource, EnvStep, JaxEnv, step_and_reset
from paramnoise.loops.vector import episode_seed
from paramnoise.validation import UsageError


class JaxVector(Environments):
    """Several copies of a JAX environment, stepped together by one compiled call.

    The episodes of a copy are a function of its key and of the actions; the key, that of its seed and its place.
    """

    def __init__(self, env: JaxEnv, num_envs: int, seeds: Sequence[int]):
        """Makes `num_envs` environments of each seed; no episode has started."""
        self.num_envs = num_envs * len(seeds)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._reset, self._step = _programs(env.reset, env.step)
        self._seeds = tuple(seeds)
        self._actions = np.zeros(0)

    def restart(self, seeds: Sequence[int] | None = None) -> np.ndarray:
        """Starts the first episode of every environment, with other seeds if any are given."""
        self._seeds = self._seeds if seeds is None else tuple(seeds)
        each = self.num_envs // len(self._seeds)
        starts = [episode_seed(seed, i, 0) for seed in self._seeds for i in range(each)]
        self._keys = jnp.stack([jax.random.PRNGKey(seed) for seed in starts])
        self._time = np.int32(0)
        obs, self._state = self._reset(self._keys)
        self._obs = np.asarray(obs)
        return self._obs

    def send(self, actions: np.ndarray, where: np.ndarray | None = None) -> None:
        """Keeps the actions for `recv`; all environments are stepped, whatever the mask: one call does it."""
        self._actions = actions

    def recv(self) -> EnvStep:
        """Steps the environments, and starts the next episode where one ended."""
        self._time += np.int32(1)
        after, obs, self._state = self._step(self._keys, self._time, self._state, self._actions)
        after, shown = jax.device_get((after._replace(state=()), obs))
        ended, self._obs = after.terminated | after.truncated, shown
        return EnvStep(shown, after.reward, after.terminated, after.truncated, ended, ended, after.obs)

    def snapshot(self, part: slice = ALL) -> dict[str, np.ndarray]:
        """The states themselves: a JAX environment is its state."""
        leaves = jax.tree.leaves(self._state)
        own = {f"state-{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        return {"keys": np.asarray(self._keys), "time": np.asarray(self._time), "obs": self._obs, **own}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Goes back to a snapshot; returns the observations."""
        if "obs" not in snapshot:
            raise UsageError(
                "the agent was saved with an environment that is not written in JAX: pass one like it (env=)"
            )
        before, structure = jax.tree.flatten(self._state)
        leaves = [jnp.asarray(snapshot[f"state-{i}"]) for i in range(len(before))]
        self._keys, self._state = jnp.asarray(snapshot["keys"]), jax.tree.unflatten(structure, leaves)
        self._time, self._obs = np.int32(snapshot["time"]), snapshot["obs"]
        return self._obs

    def close(self) -> None:
        """Nothing is open."""


class JaxGym(gym.Env[np.ndarray, Any]):
    """One JAX environment as Gymnasium has them: a seed decides all that is random in it."""

    metadata = {"render_modes": []}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(self, env: JaxEnv):
        """Makes it; no episode has started."""
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._env = JaxVector(env, 1, (0,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode."""
        super().reset(seed=seed)
        return self._env.restart([int(self.np_random.integers(2**31))])[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Steps it; at an episode's end the observation is the final one."""
        after = self._env.step(np.asarray(action)[None])
        assert after.next_obs is not None
        return after.next_obs[0], float(after.reward[0]), bool(after.terminated[0]), bool(after.truncated[0]), {}


def jax_source(env: JaxEnv) -> EnvSource:
    """How a loop makes an environment that is written in JAX."""
    return EnvSource(
        functools.partial(JaxGym, env),
        functools.partial(_make_vector, env),
        env.observation_space,
        env.action_space,
        functions=env,
    )


def _make_vector(env: JaxEnv, seeds: Sequence[int], num_envs: int, *, trains: bool) -> JaxVector:
    return JaxVector(env, num_envs, seeds)


@functools.lru_cache(maxsize=64)
def _programs(reset: Any, step: Any) -> tuple[Any, Any]:
    """The compiled reset and step of all copies; equal environments share them."""
    env = JaxEnv("", reset, step, None, None, 0)  # type: ignore[arg-type]

    def step_all(keys: Array, time: Array, state: Any, actions: Array) -> Any:
        own = jax.vmap(jax.random.fold_in, (0, None))(keys, time)
        return jax.vmap(functools.partial(step_and_reset, env))(own, state, actions)

    return jax.jit(jax.vmap(reset)), jax.jit(step_all)
