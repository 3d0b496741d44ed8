"""Environments of gymnax by name, `gymnax/CartPole-v1`: written in JAX, so that training is one compiled program."""

import functools
import math
import warnings
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.envs.actions import environment_actions
from paramnoise.envs.base import AgentPreset, Preset, Settings, register_family
from paramnoise.loops.environments import EnvSource, JaxEnv, JaxStep
from paramnoise.loops.jax_vector import jax_source
from paramnoise.networks.own import register_network
from paramnoise.validation import UsageError, one_line, require_extra

PREFIX = "gymnax/"
NO_LIMIT = 2**30
"""Steps that no episode has."""
MINATAR = ("Asterix-MinAtar", "Breakout-MinAtar", "Freeway-MinAtar", "SpaceInvaders-MinAtar")
BOARD = 10
"""Rows and columns of what MinAtar's games show."""


def gymnax_env(name: str, env_kwargs: Mapping[str, Any]) -> JaxEnv:
    """An environment of gymnax as the compiled loop takes it: vectors seen, continuous actions in [-1, 1].

    gymnax has one word for both ends of an episode. Here the environment itself is stepped without its time limit, so
    that its end is the task's own, and the limit is looked at apart: `truncated`.

    Args:
        name: the id, with or without the prefix `gymnax/`.
        env_kwargs: keywords of the environment, such as `size` of DeepSea, or of its parameters, such as
            `max_steps_in_episode`.

    Raises:
        UsageError: if there is no such environment, or what it shows or takes cannot be vectors.
    """
    require_extra("gymnax", "gymnax", "gymnax's environments")
    return _made(name.removeprefix(PREFIX), tuple(sorted(env_kwargs.items())))


@functools.lru_cache(maxsize=64)
def _made(name: str, env_kwargs: tuple[tuple[str, Any], ...]) -> JaxEnv:
    """One object for one name and its keywords: equal agents share their programs."""
    env, params = _gymnax_make(name, dict(env_kwargs))
    limit = int(params.max_steps_in_episode)
    endless = params.replace(max_steps_in_episode=NO_LIMIT)
    seen, action_space = env.observation_space(params), _action_space(name, env.action_space(params))
    if not hasattr(seen, "shape"):
        raise UsageError(f"{PREFIX}{name} shows {type(seen).__name__}, of which no vector can be made")

    def reset(key: Array) -> tuple[Array, Any]:
        with _no_word_of_the_future():
            obs, state = env.reset_env(key, endless)
        return _vector(obs), state

    def step(key: Array, state: Any, action: Array) -> JaxStep:
        own = environment_actions(action_space, action[None])[0]
        with _no_word_of_the_future():
            obs, state, reward, terminated, _ = env.step_env(key, state, own, endless)
        terminated = jnp.asarray(terminated, bool)
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return JaxStep(_vector(obs), state, reward, terminated, (state.time >= limit) & ~terminated)

    size = math.prod(seen.shape)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
    return JaxEnv(f"{PREFIX}{name}", reset, step, observation_space, action_space, max_episode_steps=limit)


def _gymnax_make(name: str, env_kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The environment and its parameters."""
    import gymnax  # an extra
    from gymnax.registration import registered_envs

    if name not in registered_envs:
        raise UsageError(f"unknown environment {PREFIX + name!r}: choose from {', '.join(registered_envs)}")
    try:
        fields = gymnax.make(name)[1].__dataclass_fields__
        of_params = {key: value for key, value in env_kwargs.items() if key in fields}
        env, params = gymnax.make(name, **{key: value for key, value in env_kwargs.items() if key not in fields})
    except Exception as error:  # whatever an environment makes of keywords that it does not take
        raise UsageError(
            f"cannot make environment {PREFIX + name!r}: {type(error).__name__}: {one_line(error)}"
        ) from None
    return env, params.replace(**of_params)


def _action_space(name: str, space: Any) -> gym.Space:
    """An action space of gymnax as Gymnasium has it."""
    if hasattr(space, "n"):
        return gym.spaces.Discrete(int(space.n))
    if not hasattr(space, "low"):
        raise UsageError(f"{PREFIX}{name} takes {type(space).__name__} actions, which no agent chooses")
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), space.shape) for bound in (space.low, space.high))
    return gym.spaces.Box(low, high, dtype=np.float32)


def _no_word_of_the_future() -> Any:
    """Keeps JAX's warnings of what gymnax does to gymnax."""
    return warnings.catch_warnings(action="ignore", category=FutureWarning)


def _vector(obs: Array) -> Array:
    return jnp.asarray(obs, jnp.float32).reshape(-1)


def gymnax_source(name: str, env_kwargs: Settings) -> EnvSource:
    """How a loop makes an environment of gymnax."""
    return jax_source(gymnax_env(name, env_kwargs))


class MinAtarNetwork(eqx.Module):
    """The network of MinAtar's authors, with layer norm: 16 filters of 3 x 3, a dense layer of 128, the outputs."""

    filters: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    hidden: eqx.nn.Linear  # of another name than before features were by row: an agent of then must not be loaded
    hidden_norm: eqx.nn.LayerNorm
    out: eqx.nn.Linear
    channels: int = eqx.field(static=True)

    def __init__(self, channels: int, outputs: int, key: Array):
        """Makes the network for boards of so many channels."""
        keys = jax.random.split(key, 3)
        self.channels = channels
        self.filters = eqx.nn.Conv2d(channels, 16, 3, key=keys[0])
        features = 16 * (BOARD - 2) ** 2
        self.norm, self.hidden_norm = eqx.nn.LayerNorm(features), eqx.nn.LayerNorm(128)
        self.hidden, self.out = eqx.nn.Linear(features, 128, key=keys[1]), eqx.nn.Linear(128, outputs, key=keys[2])

    def __call__(self, obs: Array) -> Array:
        """The outputs for one board, given as a vector: rows, columns, channels."""
        features = jax.nn.relu(self.norm(self._filtered(obs.reshape(BOARD, -1)).reshape(-1)))
        return self.out(jax.nn.relu(self.hidden_norm(self.hidden(features))))

    def _filtered(self, rows: Array) -> Array:
        """The convolution of a board, [rows, columns * channels], as [rows, columns * filters].

        Each row of the outputs is one product of three rows of the board with a matrix in which every filter stands at
        every column. That is 3 times the multiplications, in a shape for which accelerators are built.
        """
        reach, size = 3, BOARD - 2
        weight, bias = self.filters.weight, self.filters.bias
        assert bias is not None
        offset = np.arange(BOARD)[:, None] - np.arange(size)  # of a column of the board from one of the outputs
        by_row = weight.transpose(2, 1, 3, 0)[:, None, :, None]  # rows, 1, channels, 1, columns, filters
        matrix = sum(by_row[..., i, :] * (offset == i)[:, None, :, None] for i in range(reach))
        bands = jnp.stack([rows[i : i + size] for i in range(reach)], axis=1)
        return bands.reshape(size, -1) @ matrix.reshape(-1, size * len(bias)) + jnp.tile(bias.reshape(-1), size)


@register_network("minatar")
def minatar_network(observation_shape: tuple[int, ...], outputs: int, key: Array) -> MinAtarNetwork:
    """Outputs of one of MinAtar's games from its board, whose channels follow from the observation's size."""
    (size,) = observation_shape
    if size % BOARD**2:
        raise UsageError(f"the network minatar sees boards of {BOARD} x {BOARD}, not {size} numbers")
    return MinAtarNetwork(size // BOARD**2, outputs, key)


MINATAR_PRESET = Preset(
    agents={
        "dqn": AgentPreset(
            settings={
                "network": "minatar",
                "learning_rate": 2.5e-4,
                "buffer_size": 100_000,
                "learning_starts": 5_000,
                "train_every": 4,
                "target_every": 1_000,
                "double_q": True,
            },
            explorations={
                "parameter": {"adapt_every": 320, "anneal_steps": 250_000},
                "epsilon-greedy": {"anneal_steps": 250_000},
            },
        ),
        "pqn": AgentPreset(
            settings={
                "network": "minatar",
                "learning_rate": "linear:5e-4:1e-8:156224",  # over all train steps: 2,441 batches, 64 of each
                "minibatches": 32,
            },
            explorations={
                "parameter": {"adapt_every": 2_000, "epsilon_end": 0.05, "anneal_steps": 1_000_000},
                "epsilon-greedy": {"epsilon_end": 0.05, "anneal_steps": 1_000_000},
            },
            run={"steps": 10_000_000, "num_envs": 128, "eval_every": 1_000_000},
        ),
    },
    run={"steps": 5_000_000, "num_envs": 32, "eval_every": 500_000, "eval_episodes": 32, "eval_max_steps": 1_000},
)
"""For MinAtar's games; not measured yet."""


register_family(
    "gymnax-minatar",
    matches=lambda name: name.startswith(PREFIX) and name.endswith("MinAtar"),
    source=gymnax_source,
    preset=MINATAR_PRESET,
    group="MinAtar's games, written in JAX (gymnax)",
    members=tuple(PREFIX + name for name in MINATAR),
    needs=("gymnax", "gymnax"),
)
register_family(
    "gymnax",
    matches=lambda name: name.startswith(PREFIX),
    source=gymnax_source,
    preset=Preset(run={"num_envs": 32}),
    group="Other environments written in JAX (gymnax); all of its ids work",
    members=tuple(
        PREFIX + name
        for name in ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "DeepSea-bsuite", "Catch-bsuite")
    ),
    needs=("gymnax", "gymnax"),
)
