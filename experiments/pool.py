"""What a pool of perturbed policies does to learning: DQN on a game of MinAtar, by the size of the pool.

    python experiments/pool.py --explorers epsilon-greedy each 256 32

`each` is a policy for each environment; DQN is that of `scale.py`. All seeds of an explorer train in one program, meant
for a GPU; the table has noise-free returns at the end, over 32 episodes of each seed.
"""

import argparse

import numpy as np
from scale_cells import MINATAR_EVAL_EPISODES, minatar_dqn

from paramnoise.envs.gymnax import gymnax_env
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.markdown import table_lines

EVALUATIONS = 5


def returns(env_name: str, name: str, num_envs: int, steps: int, seeds: int) -> np.ndarray:
    """The noise-free returns of each seed, [evaluations, seeds]; an explorer's name may be the size of its pool."""
    env = gymnax_env(env_name, {})
    explorer = name if name == "epsilon-greedy" else "parameter"
    pool = None if name in ("epsilon-greedy", "each") else int(name)
    learner, exploration = minatar_dqn(explorer, env, num_envs, steps, pool)
    loop = CompiledLoop(
        learner,
        exploration,
        env,
        seeds=range(seeds),
        eval_every=steps // EVALUATIONS,
        eval_episodes=MINATAR_EVAL_EPISODES,
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
