"""Actions as environments take them: agents choose vectors, continuous ones in [-1, 1], whatever the space."""

import math
from typing import Any

import gymnasium as gym
import numpy as np

from paramnoise.envs.base import env_name
from paramnoise.validation import UsageError, one_line

_SEVERAL = (gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
"""Spaces of discrete actions with several parts."""


def environment_actions(space: gym.Space, actions: Any) -> Any:
    """Actions of a policy, [batch, ...], in the units, the shape and the dtype of an environment's own space.

    Both are arrays of NumPy, or both of JAX.
    """
    if isinstance(space, _SEVERAL):
        return actions.reshape(len(actions), *space.shape).astype(space.dtype)
    if not isinstance(space, gym.spaces.Box):
        return _narrowed(actions, space)
    centre, half = _centre_and_half(space)
    return _narrowed(centre + half * actions.reshape(len(actions), *space.shape), space)


def with_agent_actions(env: gym.Env) -> gym.Env:
    """The environment with actions as agents choose them."""
    space = env.action_space
    if isinstance(space, gym.spaces.Box):
        return env if _is_unit(space) else _UnitActions(env)
    if isinstance(space, _SEVERAL):
        return _Parts(env) if len(space.shape) != 1 else env
    return _Narrow(env) if isinstance(space, gym.spaces.Discrete) and not np.can_cast(np.int32, space.dtype) else env


def _narrowed(actions: Any, space: gym.Space) -> Any:
    """Actions in a dtype of the space that holds fewer numbers than theirs, such as float16 or uint8; others as is."""
    dtype: Any = space.dtype
    return actions if np.can_cast(actions.dtype, dtype) else actions.astype(dtype)


class _Narrow(gym.ActionWrapper):
    """Takes a discrete action of any type; the environment gets it in its space's, such as uint8."""

    def action(self, action: Any) -> Any:
        """The action in the environment's dtype."""
        return _narrowed(np.asarray(action), self.action_space)[()]


class _Parts(gym.ActionWrapper):
    """Takes the parts of a discrete action as a vector; the environment gets its own shape."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self._shape = env.action_space.shape or ()

    def action(self, action: np.ndarray) -> Any:
        """The action in the environment's shape."""
        return action.reshape(self._shape)


class _UnitActions(gym.ActionWrapper):
    """Takes continuous actions as vectors in [-1, 1]; the environment gets its own bounds and its own shape."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        space = env.action_space
        assert isinstance(space, gym.spaces.Box)
        described = f"the actions of {env_name(env)} ({one_line(space)})"
        if not np.issubdtype(space.dtype, np.floating):
            raise UsageError(f"{described} are whole numbers in a Box: give it a Discrete or MultiDiscrete space")
        if not space.is_bounded():
            raise UsageError(f"{described} have no bounds: give it some (gymnasium's TransformAction sets a space)")
        self.action_space = gym.spaces.Box(-1.0, 1.0, (math.prod(space.shape),), np.float32)
        self._centre, self._half = _centre_and_half(space)
        self._space = space

    def action(self, action: np.ndarray) -> Any:
        """The action in the environment's units."""
        return _narrowed(self._centre + self._half * action.reshape(self._space.shape), self._space)


def _is_unit(space: gym.spaces.Box) -> bool:
    """Whether actions are vectors in [-1, 1] already: MuJoCo's tasks are spared a call for each step."""
    return space == gym.spaces.Box(-1.0, 1.0, (math.prod(space.shape),), np.float32)


def _centre_and_half(space: gym.spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """The middle of the bounds and half their distance, in the space's dtype.

    Half is a rounding error less where middle and half together would be one beyond a bound.
    """
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    centre, half = (high / 2 + low / 2).astype(space.dtype), (high / 2 - low / 2).astype(space.dtype)
    while (beyond := (centre + half > space.high) | (centre - half < space.low)).any():
        half = np.where(beyond, np.nextafter(half, np.zeros_like(half)), half)
    return centre, half
