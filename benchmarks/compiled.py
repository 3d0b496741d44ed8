"""Environment steps per second inside one compiled program: what perturbed policies cost, and how a peer does.

    python benchmarks/compiled.py --num-envs 1024 4096 16384
    python benchmarks/compiled.py --env Breakout-MinAtar --num-envs 4096 --pool 256
    python benchmarks/compiled.py --agent pqn --num-envs 1024 4096 --contenders plain rejax
    python benchmarks/compiled.py --agent pqn --env Breakout-MinAtar --num-envs 4096 --contenders plain environment

An agent on one of gymnax's environments, with networks of 64-64, or MinAtar's own on its games:

- DQN, SAC and TD3 make four train steps of 256 for every step of all environments.
- PQN and PPO gather 32 steps of every environment and go through them in 8 minibatches, 2 times (PQN) or 4 (PPO).

`plain` is the agent with noise on its actions and without layer norm, but for PQN, whose networks have it; it is what
rejax's algorithm of that name is. `epsilon-greedy`, `parameter` and `half` have layer norm; `half` is parameter noise
whose policies are kept in half precision. `environment` is no agent: all
environments are stepped by random actions, in a program of the same kind. Equal in `plain` and `rejax` are networks,
their nonlinearity, Adam and its step sizes, gamma and lambda, batches, minibatches, epochs, replay's size, and train
steps of critics and actors for each environment step. Not equal: rejax draws from replay without replacement; its
targets of SAC and TD3 follow once for every one and two steps of all environments, ours after every train step of the
actor; its PPO clips values too; its environments make no difference between the ends of an episode, so its batches
hold no final observations.

The contenders are asked in turn, one window of steps at a time; a ratio is that of two windows of the same round, and
medians are reported.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from paramnoise.agents import dqn, ppo, pqn, sac, td3
from paramnoise.agents.base import find_agent
from paramnoise.envs.gymnax import gymnax_env
from paramnoise.explorations import EpsilonGreedy, Gaussian, NoNoise, ParameterNoise
from paramnoise.explorations.base import Exploration
from paramnoise.loops import compiled
from paramnoise.loops.devices import compiler_options
from paramnoise.loops.environments import JaxEnv, step_and_reset
from paramnoise.loops.inside import Inside
from paramnoise.markdown import table_lines

TRAIN_STEPS, BATCH, BUFFER, HIDDEN = 4, 256, 131_072, (64, 64)
ROLLOUT_STEPS, MINIBATCHES, EPOCHS = 32, 8, {"pqn": 2, "ppo": 4}
LEARNING_RATE, LAMBDA, TAU, POLICY_DELAY, EXPLORATION_NOISE = 3e-4, 0.9, 0.005, 2, 0.3
PER_CALL = 512
"""Steps of every environment in a call of rejax's program, and of the environments alone; ours finds its own number."""
ENVS = {"dqn": "CartPole-v1", "pqn": "CartPole-v1", "ppo": "CartPole-v1", "sac": "Pendulum-v1", "td3": "Pendulum-v1"}
"""The agents, and where they train unless told otherwise."""
EXPLORERS = {
    "dqn": ("epsilon-greedy", "parameter", "half", "plain"),
    "pqn": ("epsilon-greedy", "parameter", "half", "plain"),
    "ppo": ("plain",),
    "sac": ("parameter", "half", "plain"),
    "td3": ("parameter", "half", "plain"),
}
"""The contenders of ours."""
OURS, OTHERS = ("epsilon-greedy", "parameter", "half", "plain"), ("rejax", "environment")
RATIOS = (
    ("parameter", "epsilon-greedy"),
    ("half", "epsilon-greedy"),
    ("parameter", "plain"),
    ("half", "plain"),
    ("plain", "rejax"),
    ("plain", "environment"),
)

Window = Callable[[int], float]
"""Trains for so many steps of every environment and returns the environment steps per second."""


def explorer(agent: str, name: str, num_envs: int, pool: int | None) -> Exploration:
    """The exploration of that contender; sigma is adapted once for every step of all environments."""
    if name in ("parameter", "half"):
        return ParameterNoise(delta=0.1, adapt_every=num_envs, pool=pool, half_precision=name == "half")
    if agent == "td3":
        return Gaussian(sigma=EXPLORATION_NOISE)
    return EpsilonGreedy(anneal_steps=1_000_000) if agent in ("dqn", "pqn") else NoNoise()


def settings(agent: str, network: str | None, layer_norm: bool, num_envs: int) -> Any:
    """The agent's config with the settings that all contenders share."""
    layers: dict[str, Any] = {"hidden_sizes": HIDDEN, "layer_norm": layer_norm}
    train_every = num_envs // TRAIN_STEPS
    replay: dict[str, Any] = {
        "batch_size": BATCH,
        "buffer_size": BUFFER,
        "learning_starts": num_envs,
        "train_every": train_every,
    }
    if agent == "dqn":
        return dqn.DQNConfig(network=network, target_every=100 * train_every, **layers, **replay)
    if agent == "pqn":
        return pqn.PQNConfig(
            network=network,
            hidden_sizes=HIDDEN,
            optimizer=optax.adam(LEARNING_RATE),
            max_grad_norm=None,
            q_lambda=LAMBDA,
            rollout_steps=ROLLOUT_STEPS,
            minibatches=MINIBATCHES,
            epochs=EPOCHS[agent],
        )
    if agent == "ppo":
        rows = ROLLOUT_STEPS * num_envs
        return ppo.PPOConfig(
            learning_rate=LEARNING_RATE,
            max_grad_norm=None,
            gae_lambda=LAMBDA,
            batch_size=rows,
            minibatch_size=rows // MINIBATCHES,
            epochs=EPOCHS[agent],
            entropy_coefficient=0.01,
            **layers,
        )
    both: dict[str, Any] = {
        "actor_learning_rate": LEARNING_RATE,
        "critic_learning_rate": LEARNING_RATE,
        "tau": TAU,
        "normalise_observations": False,
        **layers,
        **replay,
    }
    if agent == "sac":
        return sac.SACConfig(temperature_learning_rate=LEARNING_RATE, random_steps=0, **both)
    return td3.TD3Config(policy_delay=POLICY_DELAY, random_steps=num_envs, **both)


def contender(agent: str, env_name: str, name: str, num_envs: int, pool: int | None = None) -> Inside:
    """Training of ours on one of gymnax's environments, before its first step."""
    env = gymnax_env(env_name, {})
    network = "minatar" if env_name.endswith("MinAtar") else None
    config = settings(agent, network, name != "plain", num_envs)
    learner = find_agent(agent).build(config, env_name, env.observation_space, env.action_space)
    explores = explorer(agent, name, num_envs, pool)
    return Inside(learner, explores, env, seeds=(0,), num_envs=num_envs, terminal_time_limits=False)


def ours(agent: str, env_name: str, name: str, num_envs: int, pool: int | None) -> Window:
    """A contender of ours."""
    training = contender(agent, env_name, name, num_envs, pool)
    return lambda steps: window(training, num_envs, steps)


def window(training: Inside, num_envs: int, steps: int) -> float:
    """Environment steps per second over so many steps of every environment."""
    first, began = training.progress.step, time.perf_counter()
    until = first + steps * num_envs
    while training.progress.step < until:
        training.advance(lambda step: None, lambda: False, until)
    return (training.progress.step - first) / (time.perf_counter() - began)


def repeated(call: Callable[[Any], Any], state: Any, num_envs: int) -> Window:
    """Windows of a compiled call that takes a state and returns the one after `PER_CALL` steps of every environment."""

    def rate(steps: int) -> float:
        nonlocal state
        began, calls = time.perf_counter(), -(-steps // PER_CALL)
        for _ in range(calls):
            state = jax.block_until_ready(call(state))
        return calls * PER_CALL * num_envs / (time.perf_counter() - began)

    return rate


def environment(env_name: str, num_envs: int) -> Window:
    """All environments under random actions, each of their observations and rewards made; nothing is learned."""
    env = gymnax_env(env_name, {})
    state = jax.jit(lambda: _first_episodes(env, num_envs))()
    several = lambda state: jax.lax.fori_loop(0, PER_CALL, lambda _, s: _random_step(env, s), state)  # noqa: E731
    call = jax.jit(several, donate_argnums=0, compiler_options=compiler_options())
    return repeated(call, state, num_envs)


def _first_episodes(env: JaxEnv, num_envs: int) -> tuple[Any, ...]:
    """The key, the number of the step, all environments' observations and states, and the sum of rewards."""
    key = jax.random.PRNGKey(0)
    obs, state = jax.vmap(env.reset)(jax.random.split(key, num_envs))
    state = jax.tree.map(compiled.strongly_typed, state)
    return key, jnp.int32(0), obs, state, jnp.zeros(num_envs)


def _random_step(env: JaxEnv, carry: tuple[Any, ...]) -> tuple[Any, ...]:
    """One step of every environment by a random action."""
    key, number, _, state, total = carry
    num_envs = total.shape[0]
    act_key, env_key = jax.random.split(jax.random.fold_in(key, number))
    if hasattr(env.action_space, "n"):
        actions = jax.random.randint(act_key, (num_envs,), 0, int(env.action_space.n))
    else:
        actions = jax.random.uniform(act_key, (num_envs, *(env.action_space.shape or ())), minval=-1.0, maxval=1.0)
    keys = jax.random.split(env_key, num_envs)
    after, obs, state = jax.vmap(lambda k, s, a: step_and_reset(env, k, s, a))(keys, state, actions)
    return key, number + 1, obs, state, total + after.reward


def rejax_settings(agent: str, num_envs: int) -> dict[str, Any]:
    """What makes rejax's algorithm the same as ours."""
    relu = {"activation": "relu"}  # of 64-64, as ours
    replay = {
        "num_epochs": TRAIN_STEPS,
        "batch_size": BATCH,
        "buffer_size": BUFFER,
        "fill_buffer": num_envs,
        "learning_rate": LEARNING_RATE,
        "polyak": 1 - TAU,
    }
    rollouts = {"num_steps": ROLLOUT_STEPS, "num_minibatches": MINIBATCHES, "learning_rate": LEARNING_RATE}
    decay = {"exploration_fraction": 0.01, "total_timesteps": 100_000_000}
    if agent == "dqn":
        target_every = 100 * num_envs // TRAIN_STEPS
        return {
            **replay,
            **decay,
            "target_update_freq": target_every,
            "polyak": 0.0,
            "ddqn": False,
            "agent_kwargs": relu,
        }
    if agent == "pqn":
        return {**rollouts, **decay, "num_epochs": EPOCHS[agent], "td_lambda": LAMBDA}
    if agent == "ppo":
        return {**rollouts, "num_epochs": EPOCHS[agent], "gae_lambda": LAMBDA, "agent_kwargs": {"activation": "tanh"}}
    if agent == "sac":
        return {**replay, "agent_kwargs": relu}
    noise = {"policy_delay": POLICY_DELAY, "exploration_noise": EXPLORATION_NOISE}
    return {**replay, **noise, "actor_kwargs": dict(relu), "critic_kwargs": dict(relu)}


def rejax(agent: str, env_name: str, num_envs: int) -> Window:
    """The algorithm of rejax with the same networks, batches and train steps, trained without its evaluations."""
    from rejax import get_algo  # not among our extras

    algorithm = get_algo(agent).create(env=env_name, num_envs=num_envs, **rejax_settings(agent, num_envs))
    state = jax.jit(algorithm.init_state)(jax.random.PRNGKey(0))
    each = {"pqn": ROLLOUT_STEPS, "ppo": ROLLOUT_STEPS, "td3": POLICY_DELAY}.get(agent, 1)  # steps of an iteration

    def several(state: object) -> object:
        return jax.lax.fori_loop(0, PER_CALL // each, lambda _, s: algorithm.train_iteration(s), state)

    return repeated(jax.jit(several, donate_argnums=0), state, num_envs)


def main() -> None:
    """Measures, and prints a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", choices=tuple(ENVS), default="dqn")
    parser.add_argument("--env", help="one of gymnax's ids; unset: CartPole-v1, or Pendulum-v1 for SAC and TD3")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--contenders", nargs="+", choices=(*OURS, *OTHERS), default=OURS[:2])
    parser.add_argument("--pool", type=int, help="perturbed policies that all environments share; unset: one for each")
    parser.add_argument("--steps", type=int, default=2_000, help="of every environment, in a window")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    agent, names, env_name = options.agent, options.contenders, options.env or ENVS[options.agent]
    possible = (*EXPLORERS[agent], *OTHERS)
    if not set(names) <= set(possible):
        parser.error(f"the contenders of {agent} are {', '.join(possible)}")
    if options.pool is not None and "half" in names:
        parser.error("half is for policies of one's own, not for a pool")
    ratios = [pair for pair in RATIOS if set(pair) <= set(names)]
    device = f"{jax.devices()[0].device_kind}, jax {jax.__version__}"
    pool = "" if options.pool is None else f", a pool of {options.pool}"
    print(f"{agent} on {env_name}{pool}, {options.rounds} windows of {options.steps} steps, {device}")
    heads = ["environments", *names, *(f"{one} / {other}: median (least to greatest)" for one, other in ratios)]

    def row(num_envs: int) -> list[str]:
        windows: dict[str, Window] = {}
        for name in names:
            if name == "rejax":
                windows[name] = rejax(agent, env_name, num_envs)
            elif name == "environment":
                windows[name] = environment(env_name, num_envs)
            else:
                windows[name] = ours(agent, env_name, name, num_envs, options.pool)
        for each in windows.values():  # compiles, fills replay, and finds how long a call may be
            each(options.steps)
        rounds = [{name: each(options.steps) for name, each in windows.items()} for _ in range(options.rounds)]
        shown = [f"{statistics.median(row[name] for row in rounds):,.0f}" for name in names]
        for one, other in ratios:
            values = sorted(row[one] / row[other] for row in rounds)
            shown.append(f"{statistics.median(values):.2f} ({values[0]:.2f} to {values[-1]:.2f})")
        return [f"{num_envs:,}", *shown]

    for line in table_lines(heads, map(row, options.num_envs), right=heads[1:]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
