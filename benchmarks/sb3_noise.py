"""What parameter noise costs a user of Stable-Baselines3: training with it against plain training, taking turns.

    .venv-sb3/bin/python benchmarks/sb3_noise.py                            # all algorithms, 1 and 8 environments
    .venv-sb3/bin/python benchmarks/sb3_noise.py --algorithms DQN TD3 --envs 1

Both have the default settings of their algorithm, and the same policy with layer norm, on tasks whose episodes have 200
steps whatever is done. Times are CPU seconds of this process with one thread; the ratio is taken round by round, as a
machine that is busy with other things slows both.
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


class Contest(NamedTuple):
    """One algorithm, plain and with noise."""

    plain: Any
    noisy: Any
    policy: Any
    env: str
    steps: int
    """Of a round, with one environment."""


OFF_POLICY = {
    "DQN": Contest(stable_baselines3.DQN, stable_baselines3.DQN, sb3.LayerNormDQNPolicy, "MountainCar-v0", 1_500),
    "QRDQN": Contest(sb3_contrib.QRDQN, sb3_contrib.QRDQN, sb3.LayerNormQRDQNPolicy, "MountainCar-v0", 1_000),
    "DDPG": Contest(stable_baselines3.DDPG, stable_baselines3.DDPG, sb3.LayerNormTD3Policy, "Pendulum-v1", 300),
    "TD3": Contest(stable_baselines3.TD3, stable_baselines3.TD3, sb3.LayerNormTD3Policy, "Pendulum-v1", 300),
    "SAC": Contest(stable_baselines3.SAC, stable_baselines3.SAC, sb3.LayerNormSACPolicy, "Pendulum-v1", 300),
    "TQC": Contest(sb3_contrib.TQC, sb3_contrib.TQC, sb3.LayerNormTQCPolicy, "Pendulum-v1", 200),
}
ON_POLICY = {
    "PPO": Contest(stable_baselines3.PPO, sb3.PPO, sb3.LayerNormActorCriticPolicy, "MountainCar-v0", 2_048),
    "A2C": Contest(stable_baselines3.A2C, sb3.A2C, sb3.LayerNormActorCriticPolicy, "MountainCar-v0", 1_000),
}


def ratios(name: str, num_envs: int, rounds: int) -> tuple[float, list[float]]:
    """The steps per CPU second of plain training, and the time with noise over the time without, by round."""
    contest = {**OFF_POLICY, **ON_POLICY}[name]
    models = [
        algorithm(contest.policy, make_vec_env(contest.env, num_envs, seed=0), seed=0, device="cpu")
        for algorithm in (contest.plain, contest.noisy)
    ]
    steps = contest.steps * num_envs
    taken: list[list[float]] = []
    for _ in range(rounds + 1):
        taken.append([])
        for is_noisy, model in enumerate(models):
            callback = sb3.ParameterNoise() if is_noisy and name in OFF_POLICY else None
            began = time.process_time()
            model.learn(steps, callback=callback, reset_num_timesteps=False)
            taken[-1].append(time.process_time() - began)
    measured = taken[1:]  # the first round warms up
    return steps / statistics.median(plain for plain, _ in measured), [noisy / plain for plain, noisy in measured]


def main() -> None:
    """Prints a row for each algorithm and number of environments."""
    known = [*OFF_POLICY, *ON_POLICY]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithms", nargs="+", choices=known, default=known, metavar="NAME")
    parser.add_argument("--envs", nargs="+", type=int, default=[1, 8], metavar="N")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| algorithm | environments | plain, steps per CPU second | time with noise / without (least to most) |")
    print("| --- | ---: | ---: | ---: |")
    for name in args.algorithms:
        for num_envs in args.envs:
            rate, found = ratios(name, num_envs, args.rounds)
            spread = f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
            print(f"| {name} | {num_envs} | {rate:,.0f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
