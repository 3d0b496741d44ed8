"""What parameter noise costs a user of Stable-Baselines3: training with it against plain training, taking turns.

    .venv-sb3/bin/python benchmarks/sb3_noise.py                            # all algorithms, 1 and 8 environments
    .venv-sb3/bin/python benchmarks/sb3_noise.py --algorithms DQN TD3 --envs 1

Both have the default settings of their algorithm, DQN's random actions included, and the same policy with layer norm,
on tasks whose episodes have 200 steps whatever is done. They take turns in short rounds, each first in every other one,
with one thread. A ratio is that of the medians over rounds: of CPU seconds of this process, which others disturb
less, and of seconds by the clock.
"""

import argparse
import statistics
import time
import warnings
from typing import Any, NamedTuple

import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env

from paramnoise import sb3
from paramnoise.markdown import table_lines


class Contest(NamedTuple):
    """One algorithm, plain and with noise."""

    plain: Any
    noisy: Any
    policy: Any
    env: str
    steps: int
    """Of a round, with one environment."""


OFF_POLICY = {
    "DQN": Contest(stable_baselines3.DQN, stable_baselines3.DQN, sb3.LayerNormDQNPolicy, "MountainCar-v0", 400),
    "QRDQN": Contest(sb3_contrib.QRDQN, sb3_contrib.QRDQN, sb3.LayerNormQRDQNPolicy, "MountainCar-v0", 400),
    "DDPG": Contest(stable_baselines3.DDPG, stable_baselines3.DDPG, sb3.LayerNormTD3Policy, "Pendulum-v1", 100),
    "TD3": Contest(stable_baselines3.TD3, stable_baselines3.TD3, sb3.LayerNormTD3Policy, "Pendulum-v1", 100),
    "SAC": Contest(stable_baselines3.SAC, stable_baselines3.SAC, sb3.LayerNormSACPolicy, "Pendulum-v1", 100),
    "TQC": Contest(sb3_contrib.TQC, sb3_contrib.TQC, sb3.LayerNormTQCPolicy, "Pendulum-v1", 100),
}
ON_POLICY = {
    "PPO": Contest(stable_baselines3.PPO, sb3.PPO, sb3.LayerNormActorCriticPolicy, "MountainCar-v0", 2_048),
    "A2C": Contest(stable_baselines3.A2C, sb3.A2C, sb3.LayerNormActorCriticPolicy, "MountainCar-v0", 400),
}
HEADS = (
    "algorithm",
    "environments",
    "plain, steps per CPU second",
    "CPU time, noisy / plain",
    "by round",
    "by the clock",
)


class Cost(NamedTuple):
    """What a round took."""

    cpu: float
    clock: float
    """Seconds of this process, and by the clock."""


def measure(name: str, num_envs: int, rounds: int) -> tuple[list[Cost], list[Cost]]:
    """Trains plain and noisy models, taking turns; the first round of each warms up."""
    contest = {**OFF_POLICY, **ON_POLICY}[name]
    models = [
        algorithm(contest.policy, make_vec_env(contest.env, num_envs, seed=0), seed=0, device="cpu")
        for algorithm in (contest.plain, contest.noisy)
    ]
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for number in range(rounds + 1):
        for side in (0, 1) if number % 2 else (1, 0):
            callback = sb3.ParameterNoise(epsilon=None) if side and name in OFF_POLICY else None
            cpu, clock = time.process_time(), time.perf_counter()
            models[side].learn(contest.steps * num_envs, callback=callback, reset_num_timesteps=False)
            if number:
                costs[side].append(Cost(time.process_time() - cpu, time.perf_counter() - clock))
    return costs


def row(name: str, num_envs: int, rounds: int) -> tuple[str, ...]:
    """A row of the table: steps per CPU second without noise, and the ratios."""
    (cpu, clock), (noisy_cpu, noisy_clock) = (zip(*costs, strict=True) for costs in measure(name, num_envs, rounds))
    by_round = sorted(after / before for before, after in zip(cpu, noisy_cpu, strict=True))
    cpu_ratio, clock_ratio = (
        statistics.median(after) / statistics.median(before)
        for before, after in ((cpu, noisy_cpu), (clock, noisy_clock))
    )
    steps = {**OFF_POLICY, **ON_POLICY}[name].steps * num_envs
    speed, spread = f"{steps / statistics.median(cpu):,.0f}", f"{by_round[0]:.2f} to {by_round[-1]:.2f}"
    return name, str(num_envs), speed, f"{cpu_ratio:.2f}", spread, f"{clock_ratio:.2f}"


def main() -> None:
    """Prints a row for each algorithm and number of environments."""
    known = [*OFF_POLICY, *ON_POLICY]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithms", nargs="+", choices=known, default=known, metavar="NAME")
    parser.add_argument("--envs", nargs="+", type=int, default=[1, 8], metavar="N")
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = (row(name, num_envs, args.rounds) for name in args.algorithms for num_envs in args.envs)
    for line in table_lines(HEADS, rows, right=HEADS[1:]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
