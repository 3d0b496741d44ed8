"""What an environment returns is held to its spaces at every step, and what it raises is an error of one line.

The loops write what environments return into arrays, and NumPy would broadcast an observation of another shape in
silence. Where a step returns arrays and numbers of types that were seen to fit, the check is a look at these types.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from paramnoise.envs.base import env_name
from paramnoise.envs.checks import fits, misfit
from paramnoise.validation import RunError, UsageError, brief, raised_by

_NUMBERS = frozenset((float, int, np.float64, np.float32))
"""The types of nearly all rewards."""
_BOOLEANS = frozenset((bool, np.bool_))


class CheckedEnv(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """Raises RunError where `reset` or `step` fails or does not return what the environment's spaces say.

    On HalfCheetah it costs about a microsecond a step.
    """

    def __init__(self, env: gym.Env):
        """Checks `env`."""
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._seen: set[tuple[tuple[int, ...], np.dtype]] = set()
        """Shapes and dtypes of arrays that fit; those of a space with parts are looked at each time."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        try:
            returned: Any = self.env.reset(seed=seed, options=options)
        except (RunError, UsageError):
            raise
        except Exception as error:
            raise raised_by(f"reset of {env_name(self.env)}", error) from error
        if not (isinstance(returned, tuple) and len(returned) == 2):
            raise self._wrong("reset", f"{brief(returned)}, and not a pair, observation and info")
        obs = returned[0]
        if type(obs) is not np.ndarray or (obs.shape, obs.dtype) not in self._seen:
            self._check_observation("reset", obs)
        if not _is_finite(obs):
            raise self._wrong("reset", "an observation that is not finite")
        return returned

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment."""
        try:
            returned: Any = self.env.step(action)
        except (RunError, UsageError):
            raise
        except Exception as error:
            raise raised_by(f"step of {env_name(self.env)}", error) from error
        if not (isinstance(returned, tuple) and len(returned) == 5):
            five = "observation, reward, terminated, truncated and info"
            raise self._wrong("step", f"{brief(returned)}, and not {five}")
        obs, reward, terminated, truncated, _ = returned
        if type(obs) is not np.ndarray or (obs.shape, obs.dtype) not in self._seen:
            self._check_observation("step", obs)
        if type(reward) not in _NUMBERS and not _is_number(reward):
            raise self._wrong("step", f"the reward {brief(reward)}, and not a number")
        if type(terminated) not in _BOOLEANS or type(truncated) not in _BOOLEANS:
            self._check_booleans(terminated=terminated, truncated=truncated)
        return returned

    def _check_observation(self, method: str, obs: Any) -> None:
        space = self.env.observation_space
        if not fits(space, obs):
            raise self._wrong(method, misfit(space, obs))
        if type(obs) is np.ndarray and isinstance(space, gym.spaces.Box):
            self._seen.add((obs.shape, obs.dtype))

    def _check_booleans(self, **flags: Any) -> None:
        for name, flag in flags.items():
            if not (
                type(flag) in _BOOLEANS or (isinstance(flag, np.ndarray) and flag.shape == () and flag.dtype == bool)
            ):
                raise self._wrong("step", f"{name} as {brief(flag)}, and not True or False")

    def _wrong(self, method: str, what: str) -> RunError:
        return RunError(f"{method} of {env_name(self.env)} returned {what}")


def reset_vector(vector: VectorEnv, **how: Any) -> Any:
    """What the environments of a user's vector show after `reset`, checked as `CheckedEnv` does."""
    try:
        shown, _ = vector.reset(**how)
    except Exception as error:
        raise raised_by(f"reset of {env_name(vector)}", error) from error
    _check_batch(vector, "reset", shown)
    if not _is_finite(shown):
        raise RunError(f"reset of {env_name(vector)} returned an observation that is not finite")
    return shown


def step_vector(vector: VectorEnv, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """A step of a user's vector, checked as `CheckedEnv` does."""
    try:
        shown, reward, terminated, truncated, info = vector.step(actions)
    except Exception as error:
        raise raised_by(f"step of {env_name(vector)}", error) from error
    _check_batch(vector, "step", shown)
    for name, values, kinds in (
        ("reward", reward, "fiub"),
        ("terminated", terminated, "b"),
        ("truncated", truncated, "b"),
    ):
        array = np.asarray(values)
        if array.shape != (vector.num_envs,) or array.dtype.kind not in kinds:
            wanted = f"{'booleans' if kinds == 'b' else 'numbers'} of shape ({vector.num_envs},)"
            raise RunError(f"step of {env_name(vector)} returned {name} as {brief(values)}, and not as {wanted}")
    return shown, reward, terminated, truncated, info


def _check_batch(vector: VectorEnv, method: str, shown: Any) -> None:
    if not fits(vector.observation_space, shown):
        raise RunError(f"{method} of {env_name(vector)} returned {misfit(vector.observation_space, shown)}")


def _is_number(reward: Any) -> bool:
    if isinstance(reward, np.ndarray):
        return reward.shape == () and reward.dtype.kind in "fiub"
    return isinstance(reward, int | float | np.integer | np.floating | np.bool_)


def _is_finite(obs: Any) -> bool:
    """Whether all numbers of an observation, of any parts, are finite."""
    if isinstance(obs, Mapping):
        return all(map(_is_finite, obs.values()))
    if isinstance(obs, tuple):
        return all(map(_is_finite, obs))
    array = np.asarray(obs)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
