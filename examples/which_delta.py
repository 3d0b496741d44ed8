"""Choose delta on your own task: learn a little, see what noise of several sizes does, learn with a delta of yours.

    python examples/which_delta.py [STEPS]

docs/delta.md explains the numbers.
"""

import sys
from pathlib import Path

import paramnoise as pn
from paramnoise.runs.which_delta import which_delta

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
ENV, WANTED = "CartPole-v1", 0.1  # explore as much as epsilon-greedy with an epsilon of 0.1

first = pn.DQN(ENV, exploration="parameter", learning_starts=50, seed=0)
first.learn(STEPS, eval_episodes=5)
first.save("first")

report = which_delta(Path("first"), sigmas=(0.003, 0.01, 0.03, 0.1))
for row in report.rows:
    print(f"sigma {row.sigma:<6g} distance {row.distance:<9.3g} actions changed {100 * row.changed:.0f} %")

delta = float(pn.noise.delta_from_epsilon(WANTED, num_actions=2))
print(f"an epsilon of {WANTED} is a delta of {delta:.3f}")
agent = pn.DQN(ENV, exploration=pn.ParameterNoise(delta=delta), learning_starts=50, seed=0)
agent.learn(STEPS, eval_episodes=5)
print(agent.evaluate(episodes=5))
