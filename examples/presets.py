"""Presets: an environment by its name brings settings that fit it; compare two explorations with them.

    python examples/presets.py [STEPS]

`paramnoise envs` lists the environments with a preset; what you set yourself goes before it.
"""

import sys

import numpy as np

import paramnoise as pn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
SEEDS = range(3)


def learned(exploration: str, seed: int) -> pn.Agent:
    """An agent of one seed; CartPole is CartPole-v1, the newest version."""
    agent = pn.DQN("CartPole", exploration=exploration, learning_starts=50, seed=seed)
    return agent.learn(STEPS, eval_every=max(1, STEPS // 5), eval_episodes=5, progress=False)


def median(agents: list[pn.Agent], column: str) -> np.ndarray:
    """A column of progress, in the median over seeds."""
    return np.median([[row[column] for row in agent.history] for agent in agents], axis=0)


groups = {name: [learned(name, seed) for seed in SEEDS] for name in ("parameter", "epsilon-greedy")}
config = groups["parameter"][0].config
print(f"preset of {config.env}: buffer_size {config.agent.buffer_size}, double_q {config.agent.double_q}, ", end="")
print(f"epsilon_end {config.exploration.epsilon_end}; set here: learning_starts {config.agent.learning_starts}")
for name, agents in groups.items():
    print(f"{name:<16} {median(agents, 'eval_return_mean').round(1)} at steps {median(agents, 'step').astype(int)}")
