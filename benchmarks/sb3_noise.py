"""What parameter noise costs a user of Stable-Baselines3: training with it against plain training, taking turns.

    .venv-sb3/bin/python benchmarks/sb3_noise.py                            # all algorithms, 1 and 8 environments
    .venv-sb3/bin/python benchmarks/sb3_noise.py --algorithms DQN TD3 --envs 1

Both have the default settings of their algorithm, DQN's random actions included, and the same policy with layer norm,
on tasks whose episodes have 200 steps whatever is done. Times are CPU seconds of this process with one thread. Where a
machine is busy with other things they vary, and the ratio of the least times of many short rounds varies least.
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


class Costs(NamedTuple):
    """What the rounds of one contest took."""

    steps: int
    """Of a round."""
    plain: list[float]
    noisy: list[float]
    """Seconds, by round."""

    def row(self) -> str:
        """The cells of the table."""
        ratios = sorted(noisy / plain for plain, noisy in zip(self.plain, self.noisy, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        return f"{self.steps / min(self.plain):,.0f} | {min(self.noisy) / min(self.plain):.2f} | {spread}"


def measure(name: str, num_envs: int, rounds: int) -> Costs:
    """Trains both, taking turns; the first round of each warms up."""
    contest = {**OFF_POLICY, **ON_POLICY}[name]
    models = [
        algorithm(contest.policy, make_vec_env(contest.env, num_envs, seed=0), seed=0, device="cpu")
        for algorithm in (contest.plain, contest.noisy)
    ]
    costs = Costs(contest.steps * num_envs, [], [])
    for number in range(rounds + 1):
        for model, seconds in zip(models, (costs.plain, costs.noisy), strict=True):
            callback = sb3.ParameterNoise(epsilon=None) if seconds is costs.noisy and name in OFF_POLICY else None
            began = time.process_time()
            model.learn(costs.steps, callback=callback, reset_num_timesteps=False)
            if number:
                seconds.append(time.process_time() - began)
    return costs


def main() -> None:
    """Prints a row for each algorithm and number of environments."""
    known = [*OFF_POLICY, *ON_POLICY]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithms", nargs="+", choices=known, default=known, metavar="NAME")
    parser.add_argument("--envs", nargs="+", type=int, default=[1, 8], metavar="N")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| algorithm | environments | plain, steps/s | noisy / plain | by round: median (least to most) |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in args.algorithms:
        for num_envs in args.envs:
            print(f"| {name} | {num_envs} | {measure(name, num_envs, args.rounds).row()} |", flush=True)


if __name__ == "__main__":
    main()
