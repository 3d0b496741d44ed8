"""Environment steps per second inside one compiled program: what a perturbed policy per environment costs.

    python benchmarks/compiled.py --num-envs 1024 4096 16384

DQN of 64-64 on gymnax's CartPole, four train steps of 256 for every step of all environments. The contenders are asked
in turn, one window of steps at a time; a ratio is that of two windows of the same round, and medians are reported.
"""

import argparse
import statistics
import time

import jax

from paramnoise.agents.base import Spaces
from paramnoise.agents.dqn import DQNConfig, make
from paramnoise.envs.gymnax import gymnax_env
from paramnoise.explorations import EpsilonGreedy, ParameterNoise
from paramnoise.explorations.base import Exploration
from paramnoise.loops.inside import Inside

TRAIN_STEPS, BATCH = 4, 256
EXPLORATIONS = ("epsilon-greedy", "parameter")


def explorer(name: str, num_envs: int) -> Exploration:
    """The exploration of that name; sigma is adapted once for every step of all environments."""
    if name == "parameter":
        return ParameterNoise(delta=0.1, adapt_every=num_envs)
    return EpsilonGreedy(anneal_steps=1_000_000)


def contender(name: str, exploration: str, num_envs: int) -> Inside:
    """Training on one of gymnax's environments, before its first step."""
    env = gymnax_env(name, {})
    assert hasattr(env.action_space, "n")
    spaces = Spaces(env.observation_space.shape, int(env.action_space.n), True)
    train_every = num_envs // TRAIN_STEPS
    config = DQNConfig(
        hidden_sizes=(64, 64),
        batch_size=BATCH,
        buffer_size=max(100_000, 4 * num_envs),
        learning_starts=num_envs,
        train_every=train_every,
        target_every=100 * train_every,
    )
    explores = explorer(exploration, num_envs)
    return Inside(make(config, spaces), explores, env, seeds=(0,), num_envs=num_envs, terminal_time_limits=False)


def window(training: Inside, steps: int) -> float:
    """Environment steps per second over so many steps of every environment."""
    first, began = training.progress.step, time.perf_counter()
    until = first + steps * training.num_envs
    while training.progress.step < until:
        training.advance(lambda step: None, lambda: False, until)
    return (training.progress.step - first) / (time.perf_counter() - began)


def main() -> None:
    """Measures, and prints a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", help="one of gymnax's ids")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--steps", type=int, default=2_000, help="of every environment, in a window")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    device = f"{jax.devices()[0].device_kind}, jax {jax.__version__}"
    print(f"{options.env}, {options.rounds} windows of {options.steps} steps, {device}")
    print("| environments | epsilon-greedy | parameter noise | ratio: median (least to greatest) |")
    print("|---|---:|---:|---:|")
    for num_envs in options.num_envs:
        trained = {name: contender(options.env, name, num_envs) for name in EXPLORATIONS}
        for training in trained.values():  # compiles, fills replay, and finds how long a call may be
            window(training, options.steps)
        rounds = [{name: window(each, options.steps) for name, each in trained.items()} for _ in range(options.rounds)]
        medians = [statistics.median(row[name] for row in rounds) for name in EXPLORATIONS]
        ratios = sorted(row["parameter"] / row["epsilon-greedy"] for row in rounds)
        shown = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {num_envs:,} | {medians[0]:,.0f} | {medians[1]:,.0f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
