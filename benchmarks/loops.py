"""Environment steps per second while training, measured in turn in one run, and their ratios.

The chain is written in JAX, CartPole is stepped on the host.

Run it with `make bench`. Timings on shared machines are noisy: compare the ratios, not the numbers of two runs.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from paramnoise.agents import find_agent
from paramnoise.envs import env_factory
from paramnoise.envs.chain import chain
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.runs.config import make_config
from paramnoise.runs.directory import provenance
from paramnoise.runs.loop import make_loop

REPEATS = 5
CHAIN_LENGTH = 20
EPISODE = CHAIN_LENGTH + 9
STEPS = 5_000
"""Of one call, at least: on an environment in JAX a run comes back after whole pieces of half a second or so."""
NEVER = 10**9


def compiled(exploration: str, seeds: int, agent: str = "dqn") -> Callable[[], int]:
    """A call that trains on the chain in the compiled loop and returns the steps taken, over all seeds."""
    config = make_config(agent, "paramnoise/Chain-v0", {"length": CHAIN_LENGTH}, exploration=exploration)
    env = chain(CHAIN_LENGTH)
    learner = find_agent(agent).build(config.agent, env.name, env.observation_space, env.action_space)
    loop = CompiledLoop(learner, config.exploration, env, seeds=range(seeds), eval_every=10 * EPISODE)

    def call() -> int:
        loop.run(10)
        return 100 * EPISODE * seeds

    return call


def run(env: str, exploration: str, agent: str = "dqn", **env_kwargs: int) -> Callable[[], int]:
    """A call that trains as `paramnoise train` does, without evaluations, and returns the steps taken."""
    loop = make_loop([make_config(agent, env, env_kwargs, exploration=exploration)], env)

    def call() -> int:
        first = loop.step
        for _ in loop.run(NEVER, eval_every=NEVER, eval_episodes=1, should_stop=lambda: loop.step >= first + STEPS):
            pass
        return loop.step - first

    return call


def environment_alone(env: str) -> Callable[[], int]:
    """A call that steps the environment with a constant action: the limit of the host loop."""
    made = env_factory(env)()
    made.reset(seed=0)

    def call() -> int:
        for _ in range(STEPS):
            *_, terminated, truncated, _ = made.step(np.int64(0))
            if terminated or truncated:
                made.reset()
        return STEPS

    return call


def main() -> None:
    """Measures everything in turn and prints the medians."""
    contenders = {
        "chain, compiled, epsilon-greedy, 3 seeds": compiled("epsilon-greedy", 3),
        "chain, compiled, parameter noise, 3 seeds": compiled("parameter", 3),
        "chain, compiled, bootstrapped DQN, 3 seeds": compiled("bootstrap", 3, "bootstrapped-dqn"),
        "chain, compiled, epsilon-greedy, 1 seed": compiled("epsilon-greedy", 1),
        "chain, a run, epsilon-greedy": run("paramnoise/Chain-v0", "epsilon-greedy", length=CHAIN_LENGTH),
        "chain, a run, parameter noise": run("paramnoise/Chain-v0", "parameter", length=CHAIN_LENGTH),
        "chain, a run, bootstrapped DQN": run(
            "paramnoise/Chain-v0", "bootstrap", "bootstrapped-dqn", length=CHAIN_LENGTH
        ),
        "CartPole-v1, host, epsilon-greedy": run("CartPole-v1", "epsilon-greedy"),
        "CartPole-v1, host, parameter noise": run("CartPole-v1", "parameter"),
        "CartPole-v1, environment alone": environment_alone("CartPole-v1"),
    }
    for call in contenders.values():  # compile, and pass the steps before learning starts
        call()
        call()
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(REPEATS):
        for name, call in contenders.items():
            started = time.perf_counter()
            steps = call()
            rates[name].append(steps / (time.perf_counter() - started))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    table = Table("what", "steps/s", title=f"Training, median of {REPEATS} repeats in turn")
    table.columns[1].justify = "right"
    for name, rate in medians.items():
        table.add_row(name, f"{rate:,.0f}")
    Console().print(table)
    for one, other in (
        ("chain, compiled, epsilon-greedy, 1 seed", "chain, a run, epsilon-greedy"),
        ("chain, compiled, parameter noise, 3 seeds", "chain, compiled, epsilon-greedy, 3 seeds"),
        ("chain, compiled, bootstrapped DQN, 3 seeds", "chain, compiled, parameter noise, 3 seeds"),
        ("chain, a run, bootstrapped DQN", "chain, a run, parameter noise"),
        ("CartPole-v1, host, parameter noise", "CartPole-v1, host, epsilon-greedy"),
    ):
        print(f"{one} / {other}: {medians[one] / medians[other]:.2f}")
    print(provenance()["versions"])


if __name__ == "__main__":
    main()
