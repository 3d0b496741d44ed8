"""Observations as agents see them: vectors, or images; what can become neither is refused with one line."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from paramnoise.envs.base import env_name
from paramnoise.envs.checks import parts_of
from paramnoise.loops.environments import EnvSource
from paramnoise.validation import UsageError, brief, one_line

_FLAT = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
"""Spaces whose every observation is a vector of one length."""


def shows_images(space: gym.Space) -> bool:
    """Whether observations are images, however many channels they have."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) >= 2 and space.dtype == np.uint8


def with_vector_observations(env: gym.Env) -> gym.Env:
    """The environment with observations as vectors: one-hot for numbers, and one after the other for parts.

    Raises:
        UsageError: if it shows images, alone or in a part, or something that has no fixed length.
    """
    space = env.observation_space
    vector_space(env_name(env), space)
    return env if is_vector(space) else gym.wrappers.FlattenObservation(env)


def is_vector(space: gym.Space) -> bool:
    """Whether observations are vectors as they are."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) == 1


def vector_space(name: str, space: gym.Space) -> gym.Space:
    """The space of an environment's observations as vectors; raises as `with_vector_observations` does."""
    if shows_images(space):
        raise UsageError(
            f"{name} shows pixels ({space.shape}), which only dqn and es take: "
            "wrap it so that it shows features (a RAM version of an Atari game works)"
        )
    for where, part in _leaves(space):
        if shows_images(part):
            raise UsageError(
                f"{name} shows an image among other things ({where}{one_line(part)}), which no agent takes: "
                "wrap it so that it shows the image alone, or features alone (gymnasium's FilterObservation)"
            )
        if not isinstance(part, _FLAT):
            raise UsageError(
                f"{name} shows {where}{one_line(part)}, which is no vector of fixed length: wrap it so that "
                "it shows Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these"
            )
    return space if is_vector(space) else gym.spaces.flatten_space(space)


def agent_observations(source: EnvSource, obs: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """What an environment returns, as the rows that a policy takes, and the shape of the batch: () for one.

    Args:
        source: where the environment comes from.
        obs: an observation of it, or a batch with any leading axes; of a Dict or Tuple also a list of observations. Of
            images it is the stacks that `FrameStack` makes.

    Raises:
        UsageError: if it does not fit the environment's space, or is not finite.
    """
    seen = source.observation_space
    assert isinstance(seen, gym.spaces.Box)
    if len(seen.shape) == 3:
        array = np.asarray(obs)
        if array.shape[-3:] != seen.shape or array.dtype != np.uint8:
            raise UsageError(
                f"observation of shape {array.shape} and dtype {array.dtype}: expected a uint8 stack of grey frames of "
                f"shape {seen.shape}, or a batch of that (paramnoise.FrameStack makes one of each image)"
            )
        return array.reshape(-1, *seen.shape), array.shape[:-3]
    vectors = flatten_batch(source.own_observation_space or seen, obs)
    if not np.isfinite(vectors).all():
        raise UsageError(f"observation {brief(obs)} is not finite")
    return vectors.reshape(-1, vectors.shape[-1]), vectors.shape[:-1]


def flatten_batch(space: gym.Space, obs: Any) -> np.ndarray:
    """Observations of any leading axes as vectors, [..., size]; as `gymnasium.spaces.flatten` for one.

    Raises:
        UsageError: if they do not fit the space.
    """
    if parts := parts_of(space):
        if isinstance(obs, list | np.ndarray) and not space.contains(obs):
            return np.stack([flatten_batch(space, row) for row in obs])
        if not isinstance(obs, Mapping | tuple | list):
            raise UsageError(f"observation {brief(obs)}: expected the parts {list(parts)}")
        held = dict(obs) if isinstance(obs, Mapping) else dict(enumerate(obs))
        if held.keys() != parts.keys():
            raise UsageError(f"observation with the parts {list(held)}: expected {list(parts)}")
        vectors = [flatten_batch(part, held[name]) for name, part in parts.items()]
        if len({vector.shape[:-1] for vector in vectors}) > 1:
            raise UsageError(f"observation whose parts are batches of {[vector.shape[:-1] for vector in vectors]}")
        return np.concatenate(vectors, axis=-1)
    shape = space.shape or ()
    try:
        array = np.asarray(obs, space.dtype)
    except (ValueError, TypeError):
        raise UsageError(f"observation {brief(obs)}: expected an array of shape {shape}, or a batch of that") from None
    leading = array.shape[: array.ndim - len(shape)]
    if array.shape[len(leading) :] != shape:
        raise UsageError(f"observation of shape {array.shape}: expected {shape}, or a batch of that")
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        choices = [int(space.n)] if isinstance(space, gym.spaces.Discrete) else np.ravel(space.nvec).tolist()
        return _one_hot((array - space.start).reshape(*leading, len(choices)), choices)
    return array.reshape(*leading, math.prod(shape))


def _one_hot(numbers: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    """Numbers from 0, [..., parts], as a 1 for each among its part's choices, [..., all choices]."""
    if ((numbers < 0) | (numbers >= choices)).any():
        raise UsageError(f"observation outside of its space: numbers must be below {' '.join(map(str, choices))}")
    part = np.repeat(np.arange(len(choices)), choices)
    choice = np.concatenate([np.arange(n) for n in choices])
    return (numbers[..., part] == choice).astype(numbers.dtype)


def _leaves(space: gym.Space, where: str = "") -> Iterator[tuple[str, gym.Space]]:
    """The spaces that a space is made of in the end, and where each is in it."""
    parts = parts_of(space)
    if not parts:
        yield where, space
    for name, part in parts.items():
        yield from _leaves(part, f"{where.removesuffix(': ')}[{name!r}]: ")
