"""Seeds that train side by side in one program: microseconds of a step of all of them, and what of it is simulation.

    python benchmarks/side_by_side.py --agents ddpg td3 sac --explorations none parameter --seeds 5 10

Networks of 64-64 and batches of 128 on HalfCheetah-v4, one environment for each seed: DDPG makes 50 train steps after
every 100 steps, TD3 and SAC one after every step. It is what `paramnoise reproduce FIGURE --side-by-side` does, on a
GPU if there is one. All are asked in turn, one window of steps at a time, and medians are reported.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence

import contenders
import gymnasium as gym
import jax
from harness import Window, describe_machine

from paramnoise.markdown import markdown_table
from paramnoise.runs.config import make_config
from paramnoise.runs.loop import make_loop

ENV = "HalfCheetah-v4"
AGENTS = ("ddpg", "td3", "sac")
SMALL = {"hidden_sizes": (64, 64), "batch_size": 128, "learning_starts": 1_000}
ALONE = "environments alone"


def training(agent: str, exploration: str, seeds: int) -> Window:
    """Steps of so many seeds of an agent, with all that they learn."""
    configs = [make_config(agent, ENV, exploration=exploration, agent=SMALL, seed=seed) for seed in range(seeds)]
    return contenders.training(make_loop(configs, ENV))


def environments(seeds: int) -> Window:
    """Steps of as many environments under random actions."""
    windows = [contenders.environment_alone(ENV) for _ in range(seeds)]
    return lambda steps: max([window(steps) for window in windows])


def measure(windows: Sequence[Window], steps: int, warm_up: int, repeats: int) -> list[list[float]]:
    """Microseconds of a step in each window, of each in turn, after as many steps as make them warm."""
    for window in windows:
        window(warm_up)
    taken: list[list[float]] = [[] for _ in windows]
    for _, (own, window) in itertools.product(range(repeats), list(zip(taken, windows, strict=True))):
        started = time.perf_counter()
        made = window(steps)
        own.append((time.perf_counter() - started) / made * 1e6)
    return taken


def main(words: Sequence[str] | None = None) -> None:
    """Measures all that is asked for, and prints a table."""
    parser = argparse.ArgumentParser(prog="side_by_side.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=AGENTS, help="default: all")
    parser.add_argument("--explorations", nargs="+", default=("none", "parameter"), help="default: none parameter")
    parser.add_argument("--seeds", nargs="+", type=int, default=(5,), help="how many side by side; default: 5")
    parser.add_argument("--steps", type=int, default=2_000, help="steps of a window; default: 2000")
    parser.add_argument("--warm-up", type=int, default=2_000, help="steps before the first, learning starts after 1000")
    parser.add_argument("--repeats", type=int, default=3, help="windows of each; default: 3")
    args = parser.parse_args(words)
    gym.logger.min_level = gym.logger.ERROR  # no advice on old ids
    asked = [(ALONE, "", seeds) for seeds in args.seeds]
    asked += itertools.product(args.agents, args.explorations, args.seeds)
    windows = [environments(seeds) if agent == ALONE else training(agent, own, seeds) for agent, own, seeds in asked]
    rows = []
    taken = measure(windows, args.steps, args.warm_up, args.repeats)
    for (agent, exploration, seeds), values in zip(asked, taken, strict=True):
        middle = statistics.median(values)
        spread = f"{middle:,.0f} ({min(values):,.0f} to {max(values):,.0f})"
        rows.append((agent, exploration, str(seeds), spread, f"{seeds / middle * 1e6:,.0f}"))
    columns = ("agent", "exploration", "seeds", "microseconds of a step of all", "environment steps per second")
    print(markdown_table(columns, rows, right=columns[2:]))
    print(f"\n{args.repeats} windows of {args.steps:,} steps, in turn, on {jax.devices()[0].device_kind}")
    print(describe_machine())


if __name__ == "__main__":
    main()
