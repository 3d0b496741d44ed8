"""Environments of Brax by name, `brax/halfcheetah`: written in JAX, so that training is one compiled program."""

import functools
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.envs.base import AgentPreset, Preset, Settings, register_family
from paramnoise.loops.environments import EnvSource, JaxEnv, JaxStep
from paramnoise.loops.jax_vector import jax_source
from paramnoise.validation import UsageError, one_line, require, require_extra

PREFIX = "brax/"
EPISODE_LENGTH = 1_000
"""Steps after which an episode is cut, as Brax itself has it; the keyword `episode_length` sets another."""
MEMBERS = (
    *("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_double_pendulum"),
    *("inverted_pendulum", "pusher", "reacher", "swimmer", "walker2d"),
)


class BraxState(NamedTuple):
    """What Brax keeps of an episode, and its steps so far."""

    own: Any
    time: Array


def brax_env(name: str, env_kwargs: Mapping[str, Any]) -> JaxEnv:
    """An environment of Brax as the compiled loop takes it.

    Brax's own wrappers cut episodes and start the next one. Here the environment is bare: its `done` is the task's own
    end, and the time limit is looked at apart, `truncated`. Its actions are in [-1, 1] already.

    Args:
        name: the id, with or without the prefix `brax/`.
        env_kwargs: keywords of the environment, such as `backend` (generalized, positional, spring or mjx), and
            `episode_length`.

    Raises:
        UsageError: if Brax is not installed, has no such environment, or does not take the keywords.
    """
    require_extra("brax", "brax", "Brax's environments")
    return _made(name.removeprefix(PREFIX), tuple(sorted(env_kwargs.items())))


@functools.lru_cache(maxsize=64)
def _made(name: str, env_kwargs: tuple[tuple[str, Any], ...]) -> JaxEnv:
    """One object for one name and its keywords: equal agents share their programs."""
    keywords = dict(env_kwargs)
    limit = keywords.pop("episode_length", EPISODE_LENGTH)
    require(isinstance(limit, int) and limit >= 1, "episode_length", limit, "a whole number of at least 1")
    return adapted(f"{PREFIX}{name}", _brax_make(name, keywords), limit)


def adapted(name: str, env: Any, limit: int) -> JaxEnv:
    """A bare environment of Brax, with a time limit of so many steps."""

    def reset(key: Array) -> tuple[Array, BraxState]:
        with _warnings_apart():
            own = env.reset(key)
        return own.obs, BraxState(own, jnp.int32(0))

    def step(key: Array, state: BraxState, action: Array) -> JaxStep:
        before = jax.tree.map(lambda leaf: leaf, state.own)  # a copy: Brax writes into its dict of metrics
        with _warnings_apart():
            own = env.step(before, action)
        terminated, time = own.done.astype(bool), state.time + 1
        return JaxStep(own.obs, BraxState(own, time), own.reward, terminated, (time >= limit) & ~terminated)

    spaces = (
        gym.spaces.Box(-np.inf, np.inf, (env.observation_size,), np.float32),
        gym.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32),
    )
    return JaxEnv(name, reset, step, *spaces, max_episode_steps=limit)


def _brax_make(name: str, keywords: dict[str, Any]) -> Any:
    """The bare environment."""
    with _warnings_apart():
        from brax import envs  # an extra

    try:
        with _warnings_apart():
            return envs.get_environment(name, **keywords)
    except Exception as error:  # whatever an environment makes of keywords that it does not take
        if isinstance(error, KeyError) and name not in MEMBERS:
            raise UsageError(f"unknown environment {PREFIX + name!r}: choose from {', '.join(MEMBERS)}") from None
        raise UsageError(
            f"cannot make environment {PREFIX + name!r}: {type(error).__name__}: {one_line(error)}"
        ) from None


def _warnings_apart() -> Any:
    """Keeps Brax's warnings, such as that Brax is not actively maintained (docs/loops.md says so), to Brax."""
    return warnings.catch_warnings(action="ignore")


def brax_source(name: str, env_kwargs: Settings) -> EnvSource:
    """How a loop makes an environment of Brax."""
    return jax_source(brax_env(name, env_kwargs))


PRESET = Preset(
    agents={
        "ppo": AgentPreset(
            settings={"batch_size": 16_384, "minibatch_size": 1_024, "epochs": 4, "hidden_sizes": (128, 128)},
            explorations={"parameter": {"adapt_every": 1_000}},
        ),
        **{
            name: AgentPreset(
                settings={"batch_size": 256, "train_every": 128, "train_steps": 32, "buffer_size": 1_000_000},
                explorations={"parameter": {"adapt_every": 1_280}},
            )
            for name in ("ddpg", "td3", "sac")
        },
    },
    run={"steps": 10_000_000, "num_envs": 128, "eval_every": 1_000_000, "eval_episodes": 16, "eval_max_steps": 1_000},
)
"""Not measured yet."""

register_family(
    "brax",
    matches=lambda name: name.startswith(PREFIX),
    source=brax_source,
    preset=PRESET,
    group="Brax's bodies, written in JAX",
    members=tuple(PREFIX + name for name in MEMBERS),
    needs=("brax", "brax"),
)
