"""What is checked of an environment when an agent is made: once, on an environment that is made anyway.

What does not fit is refused with one line: what was returned, and what the space says. `checked` looks at each step.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from paramnoise.envs.base import env_name
from paramnoise.validation import UsageError, brief, one_line

_OF_OBSERVATIONS = (gym.wrappers.NormalizeObservation, gym.wrappers.vector.NormalizeObservation)
_OF_REWARDS = (gym.wrappers.NormalizeReward, gym.wrappers.vector.NormalizeReward)


def check_environment(env: gym.Env) -> None:
    """Resets an environment once and compares what it returns with its spaces.

    Warns of a wrapper that normalises by statistics of its own.

    Raises:
        UsageError: if a space is missing, if `reset` fails or does not return a pair, or if the observation does not
            fit its space.
    """
    _check(env, ("observation_space", "action_space"))


def check_vector(vector: VectorEnv) -> None:
    """The same for a vector environment, whose observations are batches."""
    _check(vector, ("observation_space", "single_observation_space", "single_action_space"))


def _check(env: gym.Env | VectorEnv, spaces: Sequence[str]) -> None:
    name = env_name(env)
    for which in spaces:
        if not isinstance(space := getattr(env, which, None), gym.Space):
            raise UsageError(f"the {which} of {name} must be a Gymnasium space, not {brief(space)}")
    try:
        returned = env.reset(seed=0)
    except Exception as error:  # whatever the environment, or Gymnasium's checker around it, makes of a seeded reset
        raise UsageError(f"reset(seed=0) of {name} failed: {type(error).__name__}: {one_line(error)}") from error
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping)):
        raise UsageError(f"reset of {name} must return a pair, observation and info, not {brief(returned)}")
    if problem := misfit(env.observation_space, returned[0]):
        raise UsageError(f"reset of {name} returned {problem}")
    _warn_of_statistics(env)


def fits(space: gym.Space, obs: Any) -> bool:
    """Whether an observation fits its space, as `misfit` says, without the words."""
    if parts := parts_of(space):
        if not isinstance(obs, Mapping if isinstance(space, gym.spaces.Dict) else tuple) or len(obs) != len(parts):
            return False
        keys = obs if isinstance(obs, Mapping) else range(len(obs))
        return all(key in parts and fits(parts[key], obs[key]) for key in keys)
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        try:
            array = np.asarray(obs)
        except ValueError:  # rows of several lengths
            return False
        return array.shape == space.shape and np.can_cast(array.dtype, space.dtype, "same_kind")
    return space.contains(obs)


def misfit(space: gym.Space, obs: Any, where: str = "") -> str:
    """What is wrong with an observation, in words; nothing if it fits its space.

    A dtype fits if NumPy casts it to the space's without a change of kind: float64 fits float32, and no float an int.
    """
    if fits(space, obs):
        return ""
    says = f"but its space{where and ' there'} is {one_line(space)}"
    spaces = parts_of(space)
    if spaces:
        if not isinstance(obs, Mapping if isinstance(space, gym.spaces.Dict) else tuple):
            return f"{brief(obs)}{where}, {says}"
        parts = dict(obs) if isinstance(obs, Mapping) else dict(enumerate(obs))
        if parts.keys() != spaces.keys():
            return f"an observation{where} with the parts {', '.join(map(repr, parts))}, {says}"
        problems = (misfit(each, parts[key], f"{where}[{key!r}]") for key, each in spaces.items())
        return next(filter(None, problems), "")
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        try:
            array = np.asarray(obs)
        except ValueError:  # rows of several lengths
            array = np.empty((), object)
        found = brief(obs) if array.dtype == object else f"shape {array.shape} and dtype {array.dtype}"
        return f"an observation{where} of {found}, {says}"
    return f"the observation{where} {brief(obs)}, {says}"


def parts_of(space: gym.Space) -> dict[Any, gym.Space]:
    """The spaces that a Dict or a Tuple is made of, by key or by number; nothing for any other space."""
    if isinstance(space, gym.spaces.Dict):
        return dict(space.spaces)
    return dict(enumerate(space.spaces)) if isinstance(space, gym.spaces.Tuple) else {}


def _warn_of_statistics(env: Any) -> None:
    while isinstance(env, gym.Wrapper | VectorWrapper):
        if isinstance(env, (*_OF_OBSERVATIONS, *_OF_REWARDS)) and env.update_running_mean:
            remedy = "fixed factors do not have this problem (gymnasium's TransformReward)"
            if isinstance(env, _OF_OBSERVATIONS):
                remedy = "ddpg, td3, sac and es normalise observations inside the agent"
            warnings.warn(
                f"{type(env).__name__} keeps statistics of its own: every environment, also of evaluation, gathers "
                f"them anew, and they are not saved with the agent. Leave it out: {remedy}",
                stacklevel=2,
            )
        env = env.env
