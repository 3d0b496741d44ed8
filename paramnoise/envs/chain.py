"""The chain (Osband et al. 2016; app. A.3): a small reward near, a large one far, N + 9 steps an episode.

One definition of the dynamics serves the Gymnasium environment and the compiled one.
"""

import functools
from typing import Any, NamedTuple

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.envs.base import NAMESPACE, AgentPreset, Preset, Settings, register_env
from paramnoise.loops.environments import JaxEnv, JaxStep
from paramnoise.validation import require

START = 2
"""The state in which an episode starts; states are numbered from 1 to N."""
DEFAULT_LENGTH = 20
NEAR_REWARD = 0.001
FAR_REWARD = 1.0


class ChainState(NamedTuple):
    """The position, from 1 to N, and the steps taken."""

    position: Any
    time: Any


def horizon(length: int) -> int:
    """Steps in an episode."""
    return length + 9


def transition(xp: Any, length: int, state: ChainState, action: Any) -> tuple[ChainState, Any, Any]:
    """One step: action 0 moves left, 1 right; the reward is that of the state arrived in.

    Args:
        xp: the array module, numpy or jax.numpy.
        length: N, the number of states.
        state: the state before.
        action: 0 or 1.

    Returns:
        The state after, the reward, and whether the time limit cut the episode.
    """
    position = xp.clip(state.position + 2 * action - 1, 1, length)
    reward = xp.where(position == length, FAR_REWARD, xp.where(position == 1, NEAR_REWARD, 0.0))
    return ChainState(position, state.time + 1), reward, state.time + 1 >= horizon(length)


def observe(xp: Any, length: int, state: ChainState) -> Any:
    """The thermometer encoding: 1 for each state up to the position."""
    return (xp.arange(1, length + 1) <= state.position).astype(xp.float32)


@functools.lru_cache
def optimal_return(length: int) -> float:
    """The best undiscounted return of an episode, by dynamic programming over the environment itself."""
    positions = np.arange(1, length + 1)
    value = np.zeros(length)
    for time in reversed(range(horizon(length))):
        options = []
        for action in (0, 1):
            after, reward, _ = transition(np, length, ChainState(positions, time), action)
            options.append(reward + value[after.position - 1])
        value = np.max(options, axis=0)
    return float(value[START - 1])


def chain(length: int) -> JaxEnv:
    """The chain for the compiled loop."""
    check_length(length)

    def reset(key: Array) -> tuple[Array, ChainState]:
        state = ChainState(jnp.int32(START), jnp.int32(0))
        return observe(jnp, length, state), state

    def step(key: Array, state: ChainState, action: Array) -> JaxStep:
        state, reward, truncated = transition(jnp, length, state, action)
        return JaxStep(observe(jnp, length, state), state, reward, jnp.bool_(False), truncated)

    spaces = _observation_space(length), gym.spaces.Discrete(2)
    return JaxEnv(f"Chain-{length}", reset, step, *spaces, max_episode_steps=horizon(length))


@functools.lru_cache(maxsize=64)
def _shared_chain(length: int) -> JaxEnv:
    return chain(length)


def chain_of(env_kwargs: Settings) -> JaxEnv:
    """The chain of an environment's keywords; one object for each length, so that equal agents share their programs."""
    return _shared_chain(env_kwargs.get("length", DEFAULT_LENGTH))


class ChainEnv(gym.Env[np.ndarray, np.int64]):
    """The chain as a Gymnasium environment: `gymnasium.make("paramnoise/Chain-v0", length=50)`."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(self, length: int = DEFAULT_LENGTH, render_mode: str | None = None):
        """Makes a chain of `length` states."""
        check_length(length)
        self.length = length
        self.render_mode = render_mode
        self.observation_space = _observation_space(length)
        self.action_space = gym.spaces.Discrete(2)
        self._state = ChainState(START, 0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode in s2."""
        super().reset(seed=seed)
        self._state = ChainState(START, 0)
        return observe(np, self.length, self._state), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Moves left (0) or right (1)."""
        self._state, reward, truncated = transition(np, self.length, self._state, int(action))
        return observe(np, self.length, self._state), float(reward), False, bool(truncated), {}

    def render(self) -> str | None:
        """The chain as a line of text, the agent as `o`."""
        if self.render_mode is None:
            return None
        return "".join("o" if i == self._state.position else "." for i in range(1, self.length + 1))


def check_length(length: int) -> None:
    """Raises UsageError unless `length` can be a chain's."""
    require(isinstance(length, int) and length >= 3, "length", length, "a whole number of at least 3")


def _observation_space(length: int) -> gym.spaces.Box:
    return gym.spaces.Box(0.0, 1.0, (length,), np.float32)


def chain_preset(env_kwargs: Settings) -> Preset:
    """The paper's settings for a chain of so many states (app. A.3)."""
    length = env_kwargs.get("length", DEFAULT_LENGTH)
    check_length(length)
    episode = horizon(length)
    learner = AgentPreset(
        settings={
            "hidden_sizes": (16, 16),
            "gamma": 0.999,
            "learning_rate": 1e-3,
            "batch_size": 32,
            "buffer_size": 100_000,
            "learning_starts": 5 * episode,
            "train_every": 1,
            "target_every": 100,
        },
        explorations={
            "parameter": {"delta": 0.05, "adapt_every": 1},
            "epsilon-greedy": {"epsilon_start": 1.0, "epsilon_end": 0.1, "anneal_steps": 100 * episode},
        },
    )
    return Preset(
        agents={"dqn": learner, "bootstrapped-dqn": learner},
        run={"steps": 2_000 * episode, "eval_every": 50 * episode, "eval_episodes": 1},
    )


register_env(
    f"{NAMESPACE}Chain-v0",
    entry_point="paramnoise.envs.chain:ChainEnv",
    help="the chain of the paper (app. A.3); length:N sets its number of states (default 20)",
    preset=chain_preset,
    functions=chain_of,
    group="Ours (names without namespace and version work too)",
)
