"""Observations as agents see them: vectors, or images; what can become neither is refused with one line."""

from collections.abc import Iterator

import gymnasium as gym
import numpy as np

from paramnoise.envs.base import env_name
from paramnoise.envs.checks import parts_of
from paramnoise.validation import UsageError, one_line

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
    if shows_images(space):
        raise UsageError(
            f"{env_name(env)} shows pixels ({space.shape}), which only dqn and es take: "
            "wrap it so that it shows features (a RAM version of an Atari game works)"
        )
    for where, part in _leaves(space):
        if shows_images(part):
            raise UsageError(
                f"{env_name(env)} shows an image among other things ({where}{one_line(part)}), which no agent takes: "
                "wrap it so that it shows the image alone, or features alone (gymnasium's FilterObservation)"
            )
        if not isinstance(part, _FLAT):
            raise UsageError(
                f"{env_name(env)} shows {where}{one_line(part)}, which is no vector of fixed length: wrap it so that "
                "it shows Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these"
            )
    is_vector = isinstance(space, gym.spaces.Box) and len(space.shape) == 1
    return env if is_vector else gym.wrappers.FlattenObservation(env)


def _leaves(space: gym.Space, where: str = "") -> Iterator[tuple[str, gym.Space]]:
    """The spaces that a space is made of in the end, and where each is in it."""
    parts = parts_of(space)
    if not parts:
        yield where, space
    for name, part in parts.items():
        yield from _leaves(part, f"{where.removesuffix(': ')}[{name!r}]: ")
