"""A plug-in, outside the package: an exploration, an agent, an environment with a preset, and a figure of its own."""

import dataclasses
import functools
from typing import Any, ClassVar

import gymnasium as gym
import jax
import numpy as np
from jax import Array

import paramnoise as pn
from paramnoise.agents.dqn import DQNConfig, update
from paramnoise.agents.q_learning import init_state
from paramnoise.figures import CurveFigure, CurveScale, Method
from paramnoise.networks import QNetwork
from paramnoise.networks.policies import GreedyPolicy


@pn.register_exploration("coin")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Coin(pn.Exploration):
    """Tosses a coin in every state: heads, the policy's action; tails, a random one."""

    policies: ClassVar[tuple[type, ...]] = (GreedyPolicy,)

    heads: float = 0.5
    """The probability of the policy's action."""

    def act(self, key: Array, state: Any, policy: Any, obs: Array, step: Array) -> tuple[Any, Array]:
        coin_key, action_key = jax.random.split(key)
        values = jax.vmap(policy)(obs)
        is_heads = jax.random.bernoulli(coin_key, self.heads, obs.shape[:1])
        return state, jax.numpy.where(is_heads, jax.vmap(policy.greedy)(values), policy.random(action_key, values))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyDQNConfig(DQNConfig):
    """Settings of tiny DQN: those of DQN, with small defaults."""

    hidden_sizes: tuple[int, ...] = (8,)
    batch_size: int = 4
    buffer_size: int = 64
    learning_starts: int = 8


@pn.register_agent(
    "tiny-dqn",
    title="a tiny DQN",
    config=TinyDQNConfig,
    experience="replay",
    policy=GreedyPolicy,
    actions=("discrete",),
    default_exploration="coin",
)
def make(config: TinyDQNConfig, spaces: pn.Spaces) -> pn.Learner:
    def init(key: Array) -> Any:
        return init_state(config, QNetwork((*spaces.observation, *config.hidden_sizes, spaces.actions), key=key))

    policy = lambda state: GreedyPolicy(state.network.behaviour)  # noqa: E731
    return pn.Learner(config, spaces, init, functools.partial(update, config), policy)


class CorridorEnv(gym.Env):
    """A reward of 1 at the right end of a corridor."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 4):
        self._length, self._position = length, 0

    def _obs(self) -> np.ndarray:
        return np.array([self._position / self._length], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._position = 0
        return self._obs(), {}

    def step(self, action):
        self._position = max(0, self._position + 2 * int(action) - 1)
        at_end = self._position == self._length
        return self._obs(), float(at_end), at_end, False, {}


pn.register_env(
    "example/Corridor-v0",
    entry_point=CorridorEnv,
    max_episode_steps=10,
    help="a corridor of a plug-in; length:N sets its length",
    preset=pn.Preset(
        agents={"tiny-dqn": pn.AgentPreset(settings={"gamma": 0.9}, explorations={"coin": {"heads": 0.75}})},
        run={"steps": 40, "eval_every": 20, "eval_episodes": 2},
    ),
)

pn.register_figure(
    CurveFigure(
        name="corridor",
        methods=(Method("tiny-dqn", "coin", "A coin"), Method("tiny-dqn", "epsilon-greedy", "Epsilon-greedy")),
        scales={
            "small": CurveScale(envs=("example/Corridor-v0",), seeds=1, steps=40, eval_every=20, eval_episodes=2),
        },
    )
)
