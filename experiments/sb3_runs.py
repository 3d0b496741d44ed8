"""A run of `sb3.py`: one seed of a task is trained, followed by noise-free evaluations, and measured."""

import time
from typing import Any, NamedTuple

import torch
from sb3_tasks import Task
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, sync_envs_normalization

EPISODES = 20
"""Noise-free ones of an evaluation, side by side."""
EVALUATE_EVERY = 10_000
OPTIMAL_IN_A_ROW = 100
"""Rollouts after which a chain is solved (sec. 4.2)."""


class Measured(NamedTuple):
    """What a run came to: a row of results.csv."""

    task: str
    env: str
    algorithm: str
    exploration: str
    seed: int
    steps: int
    """Taken; a chain that is solved takes no more."""
    final_return: float
    """The mean of noise-free episodes of the policy that the run ended with."""
    solved_at: int | None
    """The step of the first evaluation at the threshold; of a chain, of the first optimal rollout of 100 in a row."""
    seconds: float


def noise_free_return(model: Any, envs: VecEnv) -> float:
    """The mean return of noise-free episodes now, one in each environment."""
    if isinstance(envs, VecNormalize):
        envs.training = False
        sync_envs_normalization(model.get_env(), envs)
    return float(evaluate_policy(model, envs, n_eval_episodes=envs.num_envs)[0])


class Follow(BaseCallback):
    """Evaluates a policy, noise-free, every so many steps, and takes down when it first is at the threshold."""

    def __init__(self, envs: VecEnv, threshold: float):
        super().__init__()
        self.envs, self.threshold = envs, threshold
        self.solved_at: int | None = None

    def _on_step(self) -> bool:
        is_due = self.num_timesteps % EVALUATE_EVERY < self.training_env.num_envs
        if is_due and self.solved_at is None and noise_free_return(self.model, self.envs) >= self.threshold:
            self.solved_at = self.num_timesteps
        return True


class FollowChain(BaseCallback):
    """After each episode one noise-free rollout, as a chain is not random; ends learning once 100 in a row are best."""

    def __init__(self, envs: VecEnv, threshold: float):
        super().__init__()
        self.envs, self.threshold, self.in_a_row = envs, threshold, 0
        self.solved_at: int | None = None

    def _on_step(self) -> bool:
        if not self.locals["dones"][0]:
            return True
        self.in_a_row = self.in_a_row + 1 if self._is_optimal() else 0
        if self.in_a_row == 1:
            self.solved_at = self.num_timesteps
        if self.in_a_row == 0:
            self.solved_at = None
        return self.in_a_row < OPTIMAL_IN_A_ROW

    def _on_training_end(self) -> None:
        if self.in_a_row < OPTIMAL_IN_A_ROW:
            self.solved_at = None

    def _is_optimal(self) -> bool:
        return noise_free_return(self.model, self.envs) >= self.threshold - 1e-6


def measure(task: Task, exploration: str, seed: int, steps: int) -> Measured:
    """Trains one seed, and evaluates it."""
    torch.set_num_threads(1)
    model, noise = task.explorations[exploration](task.make_envs(task.num_envs), seed)
    evaluated = task.make_envs(1 if task.length else EPISODES)
    evaluated.seed(1_000 + seed)
    follow: Any = (FollowChain if task.length else Follow)(evaluated, task.threshold)
    began = time.perf_counter()
    model.learn(steps, callback=[follow] if noise is None else [noise, follow])
    seconds = round(time.perf_counter() - began, 1)
    return Measured(
        task.name,
        task.env,
        task.algorithm,
        exploration,
        seed,
        int(model.num_timesteps),
        noise_free_return(model, evaluated),
        follow.solved_at,
        seconds,
    )
