"""The cells of `scale.py`: which agent explores how on which task, and for how long."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.agents import bootstrapped_dqn, dqn, ppo, pqn, td3
from paramnoise.agents.base import Learner, find_agent
from paramnoise.envs.brax import brax_env
from paramnoise.envs.chain import chain, horizon, optimal_return
from paramnoise.envs.gymnax import MINATAR_PRESET, gymnax_env
from paramnoise.explorations import (
    BootstrapHead,
    EpsilonGreedy,
    Exploration,
    Gaussian,
    NoisyNet,
    NoNoise,
    OnPolicyParameterNoise,
    ParameterNoise,
)
from paramnoise.loops.compiled import steps_between
from paramnoise.loops.environments import JaxEnv, JaxStep

SIZES = {"deepsea": (20, 40, 10, 30), "chain": (100, 400, 50, 200), "shuffled": (10, 20)}
"""By part, in the order in which they run; `shuffled` is DeepSea where each place has its own action to the right."""
GAMES = ("Breakout", "Asterix", "SpaceInvaders", "Freeway")
POLICIES = (1, 64, 4_096)
NUM_ENVS = 4_096
ONE_ENVIRONMENT = "one-environment"
LABELS = {
    "policies-4096": "parameter noise, 4,096 policies",
    "policies-64": "parameter noise, 64 policies",
    "policies-1": "parameter noise, 1 policy",
    ONE_ENVIRONMENT: "parameter noise, 1 environment",
    "bootstrap": "bootstrapped DQN",
    "epsilon-greedy": "epsilon-greedy",
    "noisy": "noisy layers",
}
"""The explorers of DeepSea and the chain: parameter noise with so many policies at a time, and its rivals. All but the
fourth have 4,096 environments."""
TRAIN_STEPS, BATCH, TARGET_PERIOD = 4, 1_024, 10
"""After every step of all environments; transitions in each; train steps between copies into the target network."""
DELTA = 0.05
"""The chain's in the paper."""
GENERATIONS = {"deepsea": 60, "chain": 25, "shuffled": 60}
"""Episodes of each environment at the most, where there are many environments."""
EVALUATIONS_EACH = {"deepsea": 1, "chain": 2, "shuffled": 1}
"""In each of them."""
ONE_STEPS, ONE_EVERY = 60_000, 1_000
"""Steps of one environment at the most, and between evaluations: about as long by the clock."""
MINATAR_STEPS, MINATAR_EVALUATIONS, MINATAR_EVAL_EPISODES, MINATAR_TRAIN_STEPS = 10_000_000, 10, 32, 8
BRAX_ENVS, BRAX_SECONDS, BRAX_EVERY = 2_048, 25.0, 500_000


class Cell(NamedTuple):
    """An agent with an explorer on a task; a program."""

    part: str
    task: str
    """An environment: of DeepSea and the chain with its size."""
    size: int | None
    algorithm: str
    explorer: str

    @property
    def name(self) -> str:
        """What the cell is called in files and on the screen."""
        return f"{self.task}-{self.algorithm}-{self.explorer}"


class Training(NamedTuple):
    """What a cell runs."""

    learner: Learner
    exploration: Exploration
    env: JaxEnv
    num_envs: int
    pieces: int
    """Between evaluations: one is a step of all environments, or a batch of an agent that learns from batches."""
    evaluations: int
    """At the most."""
    eval_episodes: int
    best: float | None = None
    """The return of an optimal policy; training ends when all seeds have learned one."""
    seconds: float | None = None
    """No evaluation's piece of training begins later."""


def cells(parts: Sequence[str]) -> Iterator[Cell]:
    """All cells of some parts, in the order in which they run."""
    for part in parts:
        if part in SIZES:
            for size in SIZES[part]:
                for explorer in LABELS:
                    algorithm = "bootstrapped-dqn" if explorer == "bootstrap" else "dqn"
                    yield Cell(part, f"{part}-{size}", size, algorithm, explorer)
        elif part == "minatar":
            for game in GAMES:
                for algorithm in ("pqn", "dqn"):
                    for explorer in ("epsilon-greedy", "parameter"):
                        yield Cell(part, game, None, algorithm, explorer)
        else:
            for algorithm, plain in (("td3", "gaussian"), ("ppo", "none")):
                for explorer in ("parameter", plain):
                    yield Cell(part, "halfcheetah", None, algorithm, explorer)


def training(cell: Cell, num_envs: int | None = None) -> Training:
    """What a cell runs; with fewer environments than a result has, to try it."""
    if cell.part in SIZES:
        return _deep(cell, num_envs or NUM_ENVS)
    if cell.part == "minatar":
        return _minatar(cell, num_envs)
    return _brax(cell, num_envs or BRAX_ENVS)


def compact(env: JaxEnv) -> JaxEnv:
    """The environment with observations of 0 and 1 as bytes: replay is then a quarter as large, and nothing is lost."""

    def reset(key: Array) -> tuple[Array, Any]:
        obs, state = env.reset(key)
        return obs.astype(jnp.uint8), state

    def step(key: Array, state: Any, action: Array) -> JaxStep:
        after = env.step(key, state, action)
        return after._replace(obs=after.obs.astype(jnp.uint8))

    return env._replace(reset=reset, step=step)


@functools.cache
def task_of(part: str, size: int) -> tuple[JaxEnv, int, float]:
    """DeepSea or the chain of a size, the length of its episodes, and the return of an optimal policy."""
    if part == "chain":
        return compact(chain(size)), horizon(size), optimal_return(size)
    env = gymnax_env("DeepSea-bsuite", {"size": size, "max_steps_in_episode": size})
    env = shuffled(env, size) if part == "shuffled" else env
    return compact(env), size, 0.99  # 1 for the treasure, 0.01 for all moves to the right


def shuffled(env: JaxEnv, size: int) -> JaxEnv:
    """DeepSea as bsuite has it: which action moves to the right was drawn once for each place.

    gymnax has the same action in all places, so that one that an agent always prefers is a solution.
    """
    to_the_right = jnp.asarray(np.random.default_rng(size).integers(0, 2, (size, size)), jnp.float32)

    def reset(key: Array) -> tuple[Array, Any]:
        obs, state = env.reset(key)
        return obs, state.replace(action_mapping=to_the_right)

    return env._replace(reset=reset)


def _deep(cell: Cell, num_envs: int) -> Training:
    """DQN on DeepSea or the chain."""
    assert cell.size is not None
    env, episode, best = task_of(cell.part, cell.size)
    settings: dict[str, Any] = {
        "hidden_sizes": (16, 16),
        "learning_rate": 1e-3,
        "gamma": 0.999 if cell.part == "chain" else 0.99,
    }
    if cell.explorer == ONE_ENVIRONMENT:  # the chain's settings in the paper
        settings |= {"batch_size": 32, "buffer_size": 100_000, "learning_starts": 5 * episode}
        settings |= {"train_every": 1, "target_every": 100}
        learner = _build("dqn", dqn.DQNConfig(**settings), env)
        exploration: Exploration = ParameterNoise(delta=DELTA, adapt_every=1)
        return Training(learner, exploration, env, 1, ONE_EVERY, ONE_STEPS // ONE_EVERY, 1, best)
    train_every = num_envs // TRAIN_STEPS
    settings |= {"batch_size": BATCH, "train_every": train_every, "target_every": TARGET_PERIOD * train_every}
    kept = 4 if cell.part == "chain" else 8  # episodes of each environment: tens of GB where they are long
    settings |= {"learning_starts": episode * num_envs, "buffer_size": kept * episode * num_envs}
    generations = GENERATIONS[cell.part]
    learner, exploration = _deep_agent(cell.explorer, settings, env, generations * episode * num_envs, train_every)
    each = EVALUATIONS_EACH[cell.part]
    return Training(learner, exploration, env, num_envs, episode // each, each * generations, 1, best)


def _deep_agent(
    explorer: str, settings: dict[str, Any], env: JaxEnv, steps: int, adapt_every: int
) -> tuple[Learner, Exploration]:
    if explorer == "bootstrap":
        config = bootstrapped_dqn.BootstrappedDQNConfig(**settings)
        return _build("bootstrapped-dqn", config, env), BootstrapHead()
    if explorer == "noisy":
        return _build("dqn", dqn.DQNConfig(**settings, **NoisyNet.agent_settings), env), NoisyNet()
    learner = _build("dqn", dqn.DQNConfig(**settings), env)
    if explorer == "epsilon-greedy":
        return learner, EpsilonGreedy(anneal_steps=steps // 2)
    # All episodes start together, so a pool has new policies in each generation, one in each of its groups.
    policies = int(explorer.removeprefix("policies-"))
    pool = None if policies == max(POLICIES) else 2 * policies
    return learner, ParameterNoise(delta=DELTA, adapt_every=adapt_every, pool=pool)


def _build(name: str, config: Any, env: JaxEnv) -> Learner:
    return find_agent(name).build(config, name, env.observation_space, env.action_space)


def _minatar(cell: Cell, num_envs: int | None) -> Training:
    """DQN or PQN on a game of MinAtar."""
    env = compact(gymnax_env(f"{cell.task}-MinAtar", {}))
    if cell.algorithm == "pqn":
        preset = MINATAR_PRESET.agents["pqn"]
        num_envs = num_envs or preset.run["num_envs"]
        learner = _build("pqn", pqn.PQNConfig(**preset.settings), env)
        kind = ParameterNoise if cell.explorer == "parameter" else EpsilonGreedy
        exploration: Exploration = kind(**preset.explorations[cell.explorer])
    else:
        num_envs = num_envs or NUM_ENVS
        learner, exploration = minatar_dqn(cell.explorer, env, num_envs, MINATAR_STEPS)
    pieces = MINATAR_STEPS // (MINATAR_EVALUATIONS * num_envs * steps_between(learner, num_envs))
    return Training(learner, exploration, env, num_envs, pieces, MINATAR_EVALUATIONS, MINATAR_EVAL_EPISODES)


def minatar_dqn(
    explorer: str, env: JaxEnv, num_envs: int, steps: int, pool: int | None = None
) -> tuple[Learner, Exploration]:
    """DQN on a game of MinAtar, and its exploration.

    Args:
        explorer: epsilon-greedy or parameter.
        env: the game.
        num_envs: of a seed.
        steps: of a seed, over all its environments; exploration is annealed in the first tenth.
        pool: the perturbed policies that all environments share; None: one for each.
    """
    train_every = num_envs // MINATAR_TRAIN_STEPS
    config = dqn.DQNConfig(
        network="minatar",
        learning_rate=2.5e-4,
        double_q=True,
        batch_size=256,
        buffer_size=32 * num_envs,
        learning_starts=2 * num_envs,
        train_every=train_every,
        target_every=100 * train_every,
    )
    learner = _build("dqn", config, env)
    if explorer == "epsilon-greedy":
        return learner, EpsilonGreedy(anneal_steps=steps // 10)
    return learner, ParameterNoise(adapt_every=num_envs, anneal_steps=steps // 10, pool=pool)


def _brax(cell: Cell, num_envs: int) -> Training:
    """TD3 or PPO on Brax's half cheetah."""
    env = brax_env(cell.task, {"backend": "spring"})
    exploration: Exploration
    if cell.algorithm == "td3":
        learner = _build(
            "td3",
            td3.TD3Config(
                batch_size=1_024,
                train_every=num_envs,
                train_steps=16,
                buffer_size=500 * num_envs,
                learning_starts=16 * num_envs,
                random_steps=16 * num_envs,
            ),
            env,
        )
        exploration = ParameterNoise(adapt_every=num_envs) if cell.explorer == "parameter" else Gaussian()
    else:
        config = ppo.PPOConfig(batch_size=16 * num_envs, minibatch_size=2 * num_envs, epochs=4, layer_norm=True)
        learner = _build("ppo", config, env)
        exploration = (
            OnPolicyParameterNoise(scaling="adaptive", adapt_every=num_envs)
            if cell.explorer == "parameter"
            else NoNoise()
        )
    pieces = max(BRAX_EVERY // (num_envs * steps_between(learner, num_envs)), 1)
    return Training(learner, exploration, env, num_envs, pieces, 100, 16, seconds=BRAX_SECONDS)
