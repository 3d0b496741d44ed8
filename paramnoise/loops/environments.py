"""What the loops ask of environments: those that live outside, stepped together, and those that XLA can compile."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

ALL = slice(None)
"""A part that is the whole."""


class EnvStep(NamedTuple):
    """What one step of all environments led to: arrays with a leading axis of environments."""

    obs: np.ndarray
    """What to act on next: what the action led to, or the first observation of a new episode."""
    reward: np.ndarray
    """float32, never clipped."""
    terminated: np.ndarray
    """Where the task itself ended, so that nothing follows."""
    truncated: np.ndarray
    """Where a time limit cut the episode, after which there would have been more."""
    starts: np.ndarray
    """Where an episode starts with `obs`."""
    resets: np.ndarray
    """Where nothing before `obs` belongs to what it shows: as `starts`, but for a life lost in the midst of a game."""
    next_obs: np.ndarray | None
    """What the action led to; at an episode's end the final observation. Frames: None unless an episode was cut."""
    skipped: np.ndarray | None = None
    """Where an environment only started its next episode, whatever the action: no step to store. None: nowhere."""


class Environments(abc.ABC):
    """Several environments stepped together, those of the first training seed first; they show vectors or frames.

    `recv` is the one place where an episode's end and the next one's start are handled.
    """

    num_envs: int
    observation_space: gym.Space
    """What an agent sees of one: a vector, or a stack of the newest frames, of which each step shows one."""
    action_space: gym.Space
    skips: bool = False
    """Whether a step may be skipped by some of them, to start their next episodes."""
    replays: bool = True
    """Whether the last `restore` brought back the episodes that were saved; else it started new ones."""

    @abc.abstractmethod
    def restart(self, seeds: Sequence[int] | None = None) -> np.ndarray:
        """Starts the first episode of every environment, with other seeds if any are given; returns what they show."""

    @abc.abstractmethod
    def send(self, actions: np.ndarray, where: np.ndarray | None = None) -> None:
        """Hands an action to every environment, or to those of a mask; `recv` must follow."""

    @abc.abstractmethod
    def recv(self) -> EnvStep:
        """Waits for what the actions led to; what it says of environments without an action means nothing."""

    def step(self, actions: np.ndarray, where: np.ndarray | None = None) -> EnvStep:
        """`send` and `recv`."""
        self.send(actions, where)
        return self.recv()

    @abc.abstractmethod
    def snapshot(self, part: slice = ALL) -> dict[str, np.ndarray]:
        """What brings the environments, or those of one seed, back to where they are; not between `send` and `recv`."""

    def joined(self, parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """One snapshot of those of every seed; there is one unless several seeds can train side by side."""
        (only,) = parts
        return only

    @abc.abstractmethod
    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Brings every environment back to a snapshot by replaying its episode; returns what they show."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes every environment."""


class MakeEnvs(Protocol):
    """Makes environments that are stepped together."""

    def __call__(self, seeds: Sequence[int], num_envs: int, *, trains: bool) -> Environments:
        """So many environments of each seed; `trains`: for training, where a lost life may end an episode."""


class EnvSource(NamedTuple):
    """How a loop makes its environments."""

    make_env: Callable[[], gym.Env]
    """Makes one, which shows what an agent sees."""
    make_envs: MakeEnvs
    """Makes several that are stepped together."""
    observation_space: gym.Space
    """What an agent sees."""
    action_space: gym.Space
    """The environment's own, which messages show: agents choose vectors, continuous ones in [-1, 1]."""
    own_observation_space: gym.Space | None = None
    """What the environment itself shows, where an agent sees something else."""
    num_envs: int | None = None
    """How many train together, where that is not for the loop to choose."""
    functions: "JaxEnv | None" = None
    """The environment as pure functions, if it is written in JAX: training can then be one compiled program."""


class JaxStep(NamedTuple):
    """What one step of a JAX environment returns."""

    obs: Array
    state: Any
    reward: Array
    terminated: Array
    truncated: Array


Step = TypeVar("Step", EnvStep, JaxStep)


def with_terminal_limits(after: Step) -> Step:
    """The step with every time limit taken for an end of the task, after which nothing follows."""
    ended = after.terminated | after.truncated
    return after._replace(terminated=ended, truncated=after.truncated & ~ended)


class JaxEnv(NamedTuple):
    """An environment as pure functions, in the manner of gymnax, for the compiled loop."""

    name: str
    reset: Callable[[Array], tuple[Array, Any]]
    """key -> obs, state."""
    step: Callable[[Array, Any, Array], JaxStep]
    """key, state, action -> JaxStep."""
    observation_space: gym.spaces.Box
    action_space: gym.Space
    max_episode_steps: int
    """No episode is longer; evaluation rolls out this many steps."""


def step_and_reset(env: JaxEnv, key: Array, state: Any, action: Array) -> tuple[JaxStep, Array, Any]:
    """Steps one JAX environment and starts the next episode where this one ended.

    Returns:
        The step as it was, with its final observation; then the observation and the state to go on from.
    """
    step_key, reset_key = jax.random.split(key)
    return step_or_reset(env, step_key, reset_key, state, action)


def step_or_reset(
    env: JaxEnv, step_key: Array, reset_key: Array, state: Any, action: Array
) -> tuple[JaxStep, Array, Any]:
    """As `step_and_reset`, with the two keys that it makes of one."""
    after = env.step(step_key, state, action)
    ended = after.terminated | after.truncated
    fresh_obs, fresh_state = env.reset(reset_key)
    obs, state = jax.tree.map(
        lambda new, old: jnp.where(ended, new, old), (fresh_obs, fresh_state), (after.obs, after.state)
    )
    return after, obs, state
