"""Compile once: the second of two equal agents finds its programs ready, and so does one that is loaded.

    python examples/compile_once.py [STEPS]

Run it twice: the second process finds them in the user's cache (docs/api.md, "What it does to JAX").
"""

import sys
import time

import paramnoise as pn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000


def learned(agent: pn.Agent) -> pn.Agent:
    """The agent after some steps."""
    return agent.learn(STEPS, eval_episodes=5, progress=False)


def made(seed: int) -> pn.Agent:
    """Agents with equal settings share their programs; the seed is not a part of a program."""
    return pn.DQN("CartPole-v1", exploration="parameter", learning_starts=50, seed=seed)


start = time.perf_counter()
first = learned(made(seed=0))
first_at = time.perf_counter()
learned(made(seed=1))
second_at = time.perf_counter()
first.save("compiled")
learned(pn.load("compiled"))
print(f"the first agent took {first_at - start:.2f} s, compilation included, for {STEPS:,} steps")
print(f"the second           {second_at - first_at:.2f} s")
print(f"a loaded one         {time.perf_counter() - second_at:.2f} s, for as many more steps")
