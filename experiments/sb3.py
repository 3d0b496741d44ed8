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

from paramnoise import sb3
from paramnoise.claims.paper import CARTPOLE, MOUNTAIN_CAR, SOLVED
from paramnoise.claims.report import with_table
from paramnoise.envs.chain import horizon, optimal_return
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError, lookup

NAME, RESULTS = "sb3", "results.csv"
REPOSITORY = Path(__file__).parent.parent
MEASURED = REPOSITORY / "results" / NAME / RESULTS
PAGE = REPOSITORY / "docs" / "sb3.md"
SEEDS = 5
EPISODES = 20
"""Noise-free ones of an evaluation."""
SPARSE_STEPS = 300_000
NOISE = 0.6
"""Of the sparse tasks in the paper: the standard deviation of action noise, and delta."""
CHAIN_EPISODES = 2_000
OPTIMAL_IN_A_ROW = 100
"""Rollouts after which a chain is solved (sec. 4.2)."""

Maker = Callable[[gym.Env, int], tuple[Any, BaseCallback | None]]
"""An environment and a seed -> a model, and the callback that it learns with."""


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

    @property
    def name(self) -> str:
        """What the task is called in commands and tables."""
        short = self.env.removeprefix("paramnoise/").partition("-")[0]
        return f"{self.algorithm}-{short}{self.length or ''}"

    def make_env(self) -> gym.Env:
        """An environment of its own, for learning or for evaluation."""
        settings: dict[str, Any] = {} if self.length is None else {"length": self.length}
        return Monitor(gym.make(self.env, **settings))


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


class Follow(BaseCallback):
    """Evaluates a policy, noise-free, every so many steps, and takes down when it first is at the threshold."""

    def __init__(self, env: gym.Env, threshold: float, every: int):
        super().__init__()
        self.env, self.threshold, self.every = env, threshold, every
        self.solved_at: int | None = None

    def _on_step(self) -> bool:
        if self.n_calls % self.every == 0 and self.solved_at is None and self.value() >= self.threshold:
            self.solved_at = self.num_timesteps
        return True

    def value(self) -> float:
        """The mean return of noise-free episodes now."""
        return float(evaluate_policy(self.model, self.env, n_eval_episodes=EPISODES)[0])


class FollowChain(BaseCallback):
    """After each episode one noise-free rollout; ends learning once so many in a row were optimal."""

    def __init__(self, env: gym.Env, optimal: float):
        super().__init__()
        self.env, self.optimal, self.in_a_row = env, optimal, 0
        self.solved_at: int | None = None

    def _on_step(self) -> bool:
        if not self.locals["dones"][0]:
            return True
        self.in_a_row = self.in_a_row + 1 if self.value() >= self.optimal - 1e-6 else 0
        if self.in_a_row == 1:
            self.solved_at = self.num_timesteps
        if self.in_a_row == 0:
            self.solved_at = None
        return self.in_a_row < OPTIMAL_IN_A_ROW

    def _on_training_end(self) -> None:
        if self.in_a_row < OPTIMAL_IN_A_ROW:
            self.solved_at = None

    def value(self) -> float:
        """The return of one noise-free episode; the chain has no randomness."""
        return float(evaluate_policy(self.model, self.env, n_eval_episodes=1)[0])


def continuous(algorithm: Any, is_noisy: bool) -> Maker:
    """DDPG or TD3, with parameter noise or with Gaussian action noise."""

    def make(env: gym.Env, seed: int) -> tuple[Any, BaseCallback | None]:
        size = env.action_space.shape[0]  # type: ignore[index]
        model = algorithm(
            sb3.LayerNormTD3Policy,
            env,
            seed=seed,
            device="cpu",
            policy_kwargs={"net_arch": [64, 64]},
            batch_size=128,
            learning_starts=1_000,
            train_freq=50,
            gradient_steps=10,
            buffer_size=SPARSE_STEPS,
            action_noise=None if is_noisy else NormalActionNoise(np.zeros(size), NOISE * np.ones(size)),
        )
        return model, sb3.ParameterNoise(NOISE) if is_noisy else None

    return make


def ppo(is_noisy: bool) -> Maker:
    """PPO, with parameter noise or without."""

    def make(env: gym.Env, seed: int) -> tuple[Any, BaseCallback | None]:
        algorithm: Any = sb3.PPO if is_noisy else stable_baselines3.PPO
        return algorithm(sb3.LayerNormActorCriticPolicy, env, seed=seed, device="cpu"), None

    return make


def dqn(is_noisy: bool, **settings: Any) -> Maker:
    """DQN, with parameter noise or epsilon-greedy."""

    def make(env: gym.Env, seed: int) -> tuple[Any, BaseCallback | None]:
        own = {
            "policy_kwargs": {"net_arch": [64, 64]},
            "learning_rate": 1e-3,
            "target_update_interval": 500,
            **settings,
        }
        model = stable_baselines3.DQN(sb3.LayerNormDQNPolicy, env, seed=seed, device="cpu", **own)
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

    def make(env: gym.Env, seed: int) -> tuple[Any, BaseCallback | None]:
        network = {"policy_kwargs": {"net_arch": [16, 16]}}  # a new one each time: Stable-Baselines3 writes into it
        model = stable_baselines3.DQN(sb3.LayerNormDQNPolicy, env, seed=seed, device="cpu", **settings, **network)
        return model, sb3.ParameterNoise(0.05, adapt_every=1) if is_noisy else None

    return make


def _sparse(env: str) -> list[Task]:
    algorithms = {"ddpg": stable_baselines3.DDPG, "td3": stable_baselines3.TD3}
    return [
        Task(
            env,
            name,
            {"parameter": continuous(algorithm, True), "gaussian": continuous(algorithm, False)},
            SPARSE_STEPS,
            SOLVED[env],
        )
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
        _chain(30),
        _chain(50),
        Task("CartPole-v1", "dqn", {"parameter": dqn(True), "epsilon-greedy": dqn(False)}, 50_000, 475.0),
        *_sparse(MOUNTAIN_CAR),
        Task(MOUNTAIN_CAR, "ppo", {"parameter": ppo(True), "none": ppo(False)}, SPARSE_STEPS, SOLVED[MOUNTAIN_CAR]),
        *_sparse(CARTPOLE),
    )
}
"""By name, in the order in which they run; on sparse tasks solved is what it is in `paramnoise claims`."""


def measure(task: Task, exploration: str, seed: int, steps: int) -> Measured:
    """Trains one seed, and evaluates it."""
    torch.set_num_threads(1)
    model, noise = task.explorations[exploration](task.make_env(), seed)
    env = task.make_env()
    follow: Any = FollowChain(env, task.threshold) if task.length else Follow(env, task.threshold, every=10_000)
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
        follow.value(),
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
    lines = ["| task | steps | exploration | noise-free returns at the end, by seed | solved | after (median) |"]
    lines.append("| --- | ---: | --- | --- | ---: | ---: |")
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
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


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
