"""The tasks of `sb3.py`: an algorithm of Stable-Baselines3 on an environment, with parameter noise and without."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import stable_baselines3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from paramnoise import sb3
from paramnoise.claims.paper import CARTPOLE, MOUNTAIN_CAR, SOLVED
from paramnoise.envs.chain import horizon, optimal_return

SPARSE_STEPS = {MOUNTAIN_CAR: 300_000, CARTPOLE: 500_000}
"""By environment. With `pn.DDPG` parameter noise learned the first from 10,000 steps on, the second from 210,000 on."""
SPARSE_ENVS = 8
"""Side by side, each with a perturbation of its own. One policy call serves all: a run takes a third of the time."""
NOISE = 0.6
"""Of the sparse tasks in the paper: the standard deviation of action noise, and delta."""
ADAPT_EVERY = 48 // SPARSE_ENVS
"""Calls of env.step: about the paper's 50 steps."""
CHAIN_EPISODES = 2_000

Maker = Callable[[VecEnv, int], tuple[Any, BaseCallback | None]]
"""Environments and a seed -> a model, and the callback that it learns with."""


class Task(NamedTuple):
    """An algorithm on an environment, with two explorations."""

    env: str
    algorithm: str
    explorations: dict[str, Maker]
    """By name, parameter noise first."""
    steps: int
    threshold: float
    """The noise-free return that counts as solved."""
    length: int | None = None
    """Of a chain, which has its own measure of being solved."""
    num_envs: int = 1
    is_normalised: bool = False
    """Whether observations are, by running statistics, as in `pn.DDPG`."""

    @property
    def name(self) -> str:
        """What the task is called in commands and tables."""
        short = self.env.removeprefix("paramnoise/").partition("-")[0]
        return f"{self.algorithm}-{short}{self.length or ''}"

    def make_envs(self, count: int) -> VecEnv:
        """Environments of their own, for learning or for evaluation."""
        settings: dict[str, Any] = {} if self.length is None else {"length": self.length}
        envs = DummyVecEnv([lambda: Monitor(gym.make(self.env, **settings))] * count)
        return VecNormalize(envs, norm_reward=False) if self.is_normalised else envs


def continuous(algorithm: Any, is_noisy: bool) -> Maker:
    """DDPG or TD3, with parameter noise or with Gaussian action noise."""

    def make(envs: VecEnv, seed: int) -> tuple[Any, BaseCallback | None]:
        size = envs.action_space.shape[0]  # type: ignore[index]
        model = algorithm(
            sb3.LayerNormTD3Policy,
            envs,
            seed=seed,
            device="cpu",
            policy_kwargs={"net_arch": [64, 64]},
            learning_starts=1_000,
            train_freq=96 // SPARSE_ENVS,
            gradient_steps=24,
            batch_size=256,  # so that a sample is learned from 64 times, as in the paper, in half the updates
            buffer_size=max(SPARSE_STEPS.values()),
            action_noise=None if is_noisy else NormalActionNoise(np.zeros(size), NOISE * np.ones(size)),
        )
        return model, sb3.ParameterNoise(NOISE, adapt_every=ADAPT_EVERY) if is_noisy else None

    return make


def ppo(is_noisy: bool) -> Maker:
    """PPO, with parameter noise or without."""

    def make(envs: VecEnv, seed: int) -> tuple[Any, BaseCallback | None]:
        settings: dict[str, Any] = {"n_steps": 2_048 // SPARSE_ENVS, "seed": seed, "device": "cpu"}
        if is_noisy:
            return sb3.PPO(sb3.LayerNormActorCriticPolicy, envs, adapt_every=ADAPT_EVERY, **settings), None
        return stable_baselines3.PPO(sb3.LayerNormActorCriticPolicy, envs, **settings), None

    return make


def cartpole_dqn(is_noisy: bool) -> Maker:
    """DQN with RL-Zoo's settings for CartPole, with parameter noise or epsilon-greedy."""

    def make(envs: VecEnv, seed: int) -> tuple[Any, BaseCallback | None]:
        model = stable_baselines3.DQN(
            sb3.LayerNormDQNPolicy,
            envs,
            seed=seed,
            device="cpu",
            policy_kwargs={"net_arch": [256, 256]},
            learning_rate=2.3e-3,
            batch_size=64,
            buffer_size=100_000,
            learning_starts=1_000,
            target_update_interval=10,
            train_freq=256,
            gradient_steps=128,
            exploration_fraction=0.16,
            exploration_final_eps=0.04,
        )
        return model, sb3.ParameterNoise() if is_noisy else None

    return make


def chain_dqn(length: int, is_noisy: bool) -> Maker:
    """DQN on a chain with the paper's settings (app. A.3), with parameter noise or epsilon-greedy."""
    episode = horizon(length)
    settings = {
        "gamma": 0.999,
        "learning_rate": 1e-3,
        "batch_size": 32,
        "buffer_size": 100_000,
        "learning_starts": 5 * episode,
        "train_freq": 1,
        "target_update_interval": 100,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.1,
        "exploration_fraction": 100 / CHAIN_EPISODES,
    }

    def make(envs: VecEnv, seed: int) -> tuple[Any, BaseCallback | None]:
        network = {"policy_kwargs": {"net_arch": [16, 16]}}  # a new one each time: Stable-Baselines3 writes into it
        model = stable_baselines3.DQN(sb3.LayerNormDQNPolicy, envs, seed=seed, device="cpu", **settings, **network)
        return model, sb3.ParameterNoise(0.05, adapt_every=1) if is_noisy else None

    return make


def _sparse(env: str, algorithm: str, explorations: dict[str, Maker]) -> Task:
    return Task(env, algorithm, explorations, SPARSE_STEPS[env], SOLVED[env], num_envs=SPARSE_ENVS, is_normalised=True)


def _actor_critics(env: str) -> list[Task]:
    algorithms = {"ddpg": stable_baselines3.DDPG, "td3": stable_baselines3.TD3}
    return [
        _sparse(env, name, {"parameter": continuous(algorithm, True), "gaussian": continuous(algorithm, False)})
        for name, algorithm in algorithms.items()
    ]


def _chain(length: int) -> Task:
    explorations = {"parameter": chain_dqn(length, True), "epsilon-greedy": chain_dqn(length, False)}
    return Task(
        "paramnoise/Chain-v0",
        "dqn",
        explorations,
        CHAIN_EPISODES * horizon(length),
        optimal_return(length),
        length,
    )


TASKS = {
    task.name: task
    for task in (
        Task(
            "CartPole-v1",
            "dqn",
            {"parameter": cartpole_dqn(True), "epsilon-greedy": cartpole_dqn(False)},
            50_000,
            475.0,
        ),
        _chain(30),
        _chain(50),
        _sparse(MOUNTAIN_CAR, "ppo", {"parameter": ppo(True), "none": ppo(False)}),
        *_actor_critics(MOUNTAIN_CAR),
        *_actor_critics(CARTPOLE),
    )
}
"""By name, in the order in which they run; on sparse tasks solved is what it is in `paramnoise claims`."""
