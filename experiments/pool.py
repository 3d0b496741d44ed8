"""What a pool of perturbed policies does to learning: DQN on a game of MinAtar, by the size of the pool.

    python experiments/pool.py --explorers epsilon-greedy each 256 32

`each` is a policy for each environment. All seeds of an explorer train in one program, meant for a GPU; the table has
noise-free returns at the end, over 32 episodes of each seed.
"""

import argparse

import numpy as np

from paramnoise.agents.base import find_agent
from paramnoise.agents.dqn import DQNConfig
from paramnoise.envs.gymnax import gymnax_env
from paramnoise.explorations import EpsilonGreedy, ParameterNoise
from paramnoise.explorations.base import Exploration
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.markdown import table_lines

TRAIN_STEPS, EVALUATIONS = 8, 5


def explorer(name: str, num_envs: int, steps: int) -> Exploration:
    """Epsilon-greedy, or noise with one policy for each environment or a pool of so many."""
    if name == "epsilon-greedy":
        return EpsilonGreedy(anneal_steps=steps // 10)
    return ParameterNoise(adapt_every=num_envs, anneal_steps=steps // 10, pool=None if name == "each" else int(name))


def returns(env_name: str, name: str, num_envs: int, steps: int, seeds: int) -> np.ndarray:
    """The noise-free returns of each seed, [evaluations, seeds]."""
    env = gymnax_env(env_name, {})
    train_every = num_envs // TRAIN_STEPS
    config = DQNConfig(
        network="minatar",
        learning_rate=2.5e-4,
        double_q=True,
        batch_size=256,
        buffer_size=131_072,
        learning_starts=2 * num_envs,
        train_every=train_every,
        target_every=100 * train_every,
    )
    learner = find_agent("dqn").build(config, env_name, env.observation_space, env.action_space)
    every = steps // EVALUATIONS
    loop = CompiledLoop(
        learner,
        explorer(name, num_envs, steps),
        env,
        seeds=range(seeds),
        eval_every=every,
        eval_episodes=32,
        num_envs=num_envs,
    )
    return loop.run(EVALUATIONS)["eval_return_mean"]


def main() -> None:
    """Trains, and prints a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Breakout-MinAtar", help="one of gymnax's ids")
    parser.add_argument("--explorers", nargs="+", default=["epsilon-greedy", "each", "256", "32"])
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()

    def row(name: str) -> tuple[str, str, str]:
        found = returns(options.env, name, options.num_envs, options.steps, options.seeds)
        means, last = (" ".join(f"{value:.1f}" for value in values) for values in (found.mean(axis=1), found[-1]))
        return name, means, last

    heads = ("explorer", "mean of seeds, by evaluation", "last, by seed")
    for line in table_lines(heads, map(row, options.explorers)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
