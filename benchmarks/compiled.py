"""Environment steps per second inside one compiled program: what perturbed policies cost, and how a peer does.

    python benchmarks/compiled.py --num-envs 1024 4096 16384
    python benchmarks/compiled.py --env Breakout-MinAtar --num-envs 4096 --pool 256
    python benchmarks/compiled.py --num-envs 1024 4096 --contenders plain rejax

DQN on one of gymnax's environments, four train steps of 256 for every step of all environments: 64-64 on CartPole,
MinAtar's own network on its games. `plain` is `epsilon-greedy` without layer norm, as rejax's network is. The
contenders are asked in turn, one window of steps at a time; a ratio is that of two windows of the same round, and
medians are reported.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import jax

from paramnoise.agents.base import Spaces
from paramnoise.agents.dqn import DQNConfig, make
from paramnoise.envs.gymnax import gymnax_env
from paramnoise.explorations import EpsilonGreedy, ParameterNoise
from paramnoise.explorations.base import Exploration
from paramnoise.loops.inside import Inside

TRAIN_STEPS, BATCH, BUFFER, HIDDEN = 4, 256, 131_072, (64, 64)
PER_CALL = 500
"""Steps of every environment in a call of rejax's program; ours finds its own number."""
CONTENDERS = ("epsilon-greedy", "parameter", "plain", "rejax")
RATIOS = (("parameter", "epsilon-greedy"), ("plain", "rejax"))

Window = Callable[[int], float]
"""Trains for so many steps of every environment and returns the environment steps per second."""


def explorer(name: str, num_envs: int, pool: int | None) -> Exploration:
    """The exploration of that name; sigma is adapted once for every step of all environments."""
    if name == "parameter":
        return ParameterNoise(delta=0.1, adapt_every=num_envs, pool=pool)
    return EpsilonGreedy(anneal_steps=1_000_000)


def contender(env_name: str, name: str, num_envs: int, pool: int | None = None) -> Inside:
    """Training of ours on one of gymnax's environments, before its first step."""
    env = gymnax_env(env_name, {})
    assert hasattr(env.action_space, "n")
    spaces = Spaces(env.observation_space.shape, int(env.action_space.n), True)
    train_every = num_envs // TRAIN_STEPS
    config = DQNConfig(
        hidden_sizes=HIDDEN,
        network="minatar" if env_name.endswith("MinAtar") else None,
        layer_norm=name != "plain",
        batch_size=BATCH,
        buffer_size=BUFFER,
        learning_starts=num_envs,
        train_every=train_every,
        target_every=100 * train_every,
    )
    explores = explorer(name, num_envs, pool)
    return Inside(make(config, spaces), explores, env, seeds=(0,), num_envs=num_envs, terminal_time_limits=False)


def ours(env_name: str, name: str, num_envs: int, pool: int | None) -> Window:
    """A contender of ours."""
    training = contender(env_name, name, num_envs, pool)
    return lambda steps: window(training, num_envs, steps)


def window(training: Inside, num_envs: int, steps: int) -> float:
    """Environment steps per second over so many steps of every environment."""
    first, began = training.progress.step, time.perf_counter()
    until = first + steps * num_envs
    while training.progress.step < until:
        training.advance(lambda step: None, lambda: False, until)
    return (training.progress.step - first) / (time.perf_counter() - began)


def rejax(env_name: str, num_envs: int) -> Window:
    """DQN of rejax with the same network, batches and train steps; it is trained without its evaluations."""
    from rejax import get_algo  # not among our extras

    algorithm = get_algo("dqn").create(
        env=env_name,
        num_envs=num_envs,
        num_epochs=TRAIN_STEPS,
        batch_size=BATCH,
        buffer_size=BUFFER,
        fill_buffer=num_envs,
        target_update_freq=100 * num_envs // TRAIN_STEPS,
        polyak=0.0,
        ddqn=False,
        exploration_fraction=0.01,
        total_timesteps=100_000_000,
        agent_kwargs={"activation": "relu"},  # of 64-64, as ours
    )
    state = jax.jit(algorithm.init_state)(jax.random.PRNGKey(0))

    def several(state: object) -> object:
        return jax.lax.fori_loop(0, PER_CALL, lambda _, s: algorithm.train_iteration(s), state)

    call = jax.jit(several, donate_argnums=0)

    def rate(steps: int) -> float:
        nonlocal state
        began, calls = time.perf_counter(), -(-steps // PER_CALL)
        for _ in range(calls):
            state = jax.block_until_ready(call(state))
        return calls * PER_CALL * num_envs / (time.perf_counter() - began)

    return rate


def main() -> None:
    """Measures, and prints a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", help="one of gymnax's ids")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS[:2])
    parser.add_argument("--pool", type=int, help="perturbed policies that all environments share; unset: one for each")
    parser.add_argument("--steps", type=int, default=2_000, help="of every environment, in a window")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = options.contenders
    ratios = [pair for pair in RATIOS if set(pair) <= set(names)]
    device = f"{jax.devices()[0].device_kind}, jax {jax.__version__}"
    pool = "" if options.pool is None else f", a pool of {options.pool}"
    print(f"{options.env}{pool}, {options.rounds} windows of {options.steps} steps, {device}")
    heads = ["environments", *names, *(f"{one} / {other}: median (least to greatest)" for one, other in ratios)]
    print("|", " | ".join(heads), "|\n|---|" + "---:|" * (len(heads) - 1))
    for num_envs in options.num_envs:
        windows = {
            name: rejax(options.env, num_envs) if name == "rejax" else ours(options.env, name, num_envs, options.pool)
            for name in names
        }
        for each in windows.values():  # compiles, fills replay, and finds how long a call may be
            each(options.steps)
        rounds = [{name: each(options.steps) for name, each in windows.items()} for _ in range(options.rounds)]
        shown = [f"{statistics.median(row[name] for row in rounds):,.0f}" for name in names]
        for one, other in ratios:
            values = sorted(row[one] / row[other] for row in rounds)
            shown.append(f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})")
        print("|", " | ".join([f"{num_envs:,}", *shown]), "|", flush=True)


if __name__ == "__main__":
    main()
