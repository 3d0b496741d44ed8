"""Measures parameter noise in Stable-Baselines3 against its own exploration, over seeds.

    .venv-sb3/bin/python experiments/sb3.py run --out DIR
    .venv-sb3/bin/python experiments/sb3.py page

Both sides of a comparison have the same settings and the same policy, with layer norm. A finished run leaves
DIR/sb3/NAME/EXPLORATION/seed-S.json and is never run again; one that was stopped begins anew. `make test-sb3` sets up
the environment.
"""

import argparse
import csv
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize, sync_envs_normalization

from paramnoise import sb3
from paramnoise.claims.paper import CARTPOLE, MOUNTAIN_CAR, SOLVED
from paramnoise.envs.chain import horizon, optimal_return
from paramnoise.markdown import markdown_table, with_table
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError, lookup

NAME, RESULTS = "sb3", "results.csv"
REPOSITORY = Path(__file__).parent.parent
MEASURED = REPOSITORY / "results" / NAME / RESULTS
PAGE = REPOSITORY / "docs" / "sb3.md"
SEEDS = 5
EPISODES = 20
"""Noise-free ones of an evaluation, side by side."""
EVALUATE_EVERY = 10_000
SPARSE_STEPS = {MOUNTAIN_CAR: 300_000, CARTPOLE: 500_000}
"""By environment. With `pn.DDPG` parameter noise learned the first from 10,000 steps on, the second from 210,000 on."""
SPARSE_ENVS = 8
"""Side by side, each with a perturbation of its own. One policy call serves all: a run takes a third of the time."""
NOISE = 0.6
"""Of the sparse tasks in the paper: the standard deviation of action noise, and delta."""
ADAPT_EVERY = 48 // SPARSE_ENVS
"""Calls of env.step: about the paper's 50 steps."""
CHAIN_EPISODES = 2_000
OPTIMAL_IN_A_ROW = 100
"""Rollouts after which a chain is solved (sec. 4.2)."""

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


def run(tasks: Sequence[Task], out: Path, seeds: int, steps: int | None) -> int:
    """`run`: a seed of every exploration of every task before the next seed; returns the exit status."""
    for seed in range(seeds):
        for task in tasks:
            for exploration in task.explorations:
                path = out / NAME / task.name / exploration / f"seed-{seed}.json"
                if path.exists():
                    continue
                row = measure(task, exploration, seed, steps or task.steps)
                path.parent.mkdir(parents=True, exist_ok=True)
                text = json.dumps(row._asdict())
                write_atomically(path, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
                print(f"{path.relative_to(out)}: {row.final_return:.2f} after {row.steps:,} steps, {row.seconds:.0f} s")
                collect(out / NAME)
    return 0


def collect(folder: Path) -> None:
    """Writes results.csv from the finished runs."""
    rows = [Measured(**json.loads(path.read_text())) for path in sorted(folder.glob("*/*/seed-*.json"))]
    text = csv_text(Measured._fields, (row._asdict() for row in rows))
    write_atomically(folder / RESULTS, lambda file: file.write(text.encode()))


def read_results(path: Path) -> list[dict[str, str]]:
    """Reads results.csv; no file is no results yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows: Sequence[dict[str, str]]) -> str:
    """The page's table: a row per task and exploration, measured or not."""
    heads = ("task", "steps", "exploration", "noise-free returns at the end, by seed", "solved", "after (median)")
    lines = []
    for task in TASKS.values():
        for exploration in task.explorations:
            own = [row for row in rows if (row["task"], row["exploration"]) == (task.name, exploration)]
            own.sort(key=lambda row: int(row["seed"]))
            solved = [int(row["solved_at"]) for row in own if row["solved_at"]]
            cells = (
                f"`{task.name}`",
                f"{task.steps:,}",
                exploration,
                " ".join(f"{float(row['final_return']):.2f}" for row in own) or "not measured yet",
                f"{len(solved)} of {len(own)}" if own else "",
                f"{statistics.median(solved):,.0f}" if solved else "",
            )
            lines.append(cells)
    return markdown_table(heads, lines, right=("steps", "solved", "after (median)"))


def page(text: str, rows: Sequence[dict[str, str]]) -> str:
    """The page with the table of these results between its marks."""
    return with_table(text, "results", table(rows))


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="sb3.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("run", help="run what is not on disk, one run after the other")
    asked.add_argument("--out", type=Path, required=True, help="where the runs and their results.csv are kept")
    asked.add_argument("--tasks", nargs="+", default=list(TASKS), help="some tasks, by name; default: all")
    asked.add_argument("--seeds", type=int, default=SEEDS, help="how many, from 0 on")
    asked.add_argument("--steps", type=int, default=None, help="fewer steps than a result has, to try it")
    commands.add_parser("page", help=f"write the table of {PAGE.name} from {MEASURED.relative_to(REPOSITORY)}")
    args = parser.parse_args(words)
    try:
        if args.command == "run":
            return run([lookup("task", name, TASKS) for name in args.tasks], args.out, args.seeds, args.steps)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    text = page(PAGE.read_text(), read_results(MEASURED))
    write_atomically(PAGE, lambda file: file.write(text.encode()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
