"""Makes environments from what users have: an id, an environment, or a function that makes one."""

import copy
import functools
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from paramnoise.envs.base import EnvLike, env_id, env_name, family_of
from paramnoise.loops.environments import EnvSource, MakeEnvs
from paramnoise.loops.frames import GymFrames, GymStacks
from paramnoise.loops.vector import make_vector
from paramnoise.validation import UsageError


def env_factory(env: EnvLike, env_kwargs: Mapping[str, Any] | None = None) -> Callable[[], gym.Env]:
    """A function that makes the environment anew, its observations flattened to a vector.

    Args:
        env: a Gymnasium id or name (`env_id`), an environment (each call copies it), or a function that makes one.
        env_kwargs: keywords for an id.

    Raises:
        UsageError: from the function, if Gymnasium cannot make the environment or its observations are pixels.
    """
    return functools.partial(_fresh, env, _keywords(env, env_kwargs))  # unlike a lambda, it can go to another process


def pixel_env_factory(env: EnvLike, env_kwargs: Mapping[str, Any] | None = None) -> Callable[[], gym.Env]:
    """A function that makes the environment anew, as `env_factory` does, but leaves its observations alone.

    It is for environments that show images, which `GymFrames` steps.
    """
    return functools.partial(_fresh_unchanged, env, _keywords(env, env_kwargs))


def env_source(env: EnvLike, env_kwargs: Mapping[str, Any] | None = None) -> EnvSource:
    """How a loop makes an environment, be it one of vectors or of images, Gymnasium's or a family's."""
    kwargs = _keywords(env, env_kwargs)
    family = family_of(env_id(env)) if isinstance(env, str) else None
    if family is not None and isinstance(env, str):
        return family.source(env, kwargs)
    make_unchanged = pixel_env_factory(env, kwargs)
    probe = make_unchanged()
    make_env = env_factory(env, kwargs)
    make_envs: MakeEnvs = functools.partial(make_vector, make_env)
    if shows_images(probe.observation_space):
        make_env = functools.partial(_stacks, make_unchanged)
        make_envs = functools.partial(_frames, make_unchanged)
        made: gym.Env = GymStacks(probe)
    else:
        made = _with_unit_actions(_with_vector_observations(probe))
    source = EnvSource(make_env, make_envs, made.observation_space, made.action_space)
    made.close()
    return source


def _stacks(make_env: Callable[[], gym.Env]) -> gym.Env:
    return GymStacks(make_env())


def _frames(make_env: Callable[[], gym.Env], seeds: Sequence[int], num_envs: int, *, trains: bool) -> GymFrames:
    return GymFrames(make_env, num_envs, seeds)


def shows_images(space: gym.Space) -> bool:
    """Whether observations are images, however many channels they have."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) >= 2 and space.dtype == np.uint8


def known_kwargs(env: EnvLike) -> dict[str, Any]:
    """The keywords that an environment was made with, those that JSON can hold."""
    made_with = env.spec.kwargs if isinstance(env, gym.Env) and env.spec is not None else {}
    return {name: value for name, value in made_with.items() if _is_json(value)}


def unflattened_space(env: gym.Env) -> gym.Space:
    """The observation space as it was before `env_factory` flattened it."""
    env = env.env if isinstance(env, _UnitActions) else env
    return env.env.observation_space if isinstance(env, _Flattened) else env.observation_space


def environment_actions(env: gym.Env, actions: np.ndarray) -> np.ndarray:
    """Actions of a policy in the units of the environment as it was before `env_factory` rescaled them."""
    return env.action(actions) if isinstance(env, _UnitActions) else actions


class _UnitActions(gym.wrappers.RescaleAction):
    """Our rescaling, told apart from a user's own."""


class _Flattened(gym.wrappers.FlattenObservation):
    """Our flattening, told apart from a user's own."""


def _keywords(env: EnvLike, env_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    if env_kwargs and not isinstance(env, str):
        raise UsageError("env_kwargs go with an environment's id; pass a function that makes the environment instead")
    return dict(env_kwargs or {})


def _fresh(env: EnvLike, kwargs: Mapping[str, Any]) -> gym.Env:
    return _with_unit_actions(_with_vector_observations(_fresh_unchanged(env, kwargs)))


def _fresh_unchanged(env: EnvLike, kwargs: Mapping[str, Any]) -> gym.Env:
    if isinstance(env, str):
        return _guarded(_make_by_id(env, kwargs))
    return _guarded(copy.deepcopy(env) if isinstance(env, gym.Env) else env())


def _make_by_id(name: str, kwargs: Mapping[str, Any]) -> gym.Env:
    try:
        # The paper's tasks are older versions, and Box2D warns of its own types: Python crashes where that is an error.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            return gym.make(env_id(name), **kwargs)
    except (gym.error.UnregisteredEnv, ModuleNotFoundError) as error:
        raise UsageError(
            f"unknown environment {name!r}: {_one_line(error)} (`paramnoise envs` lists those installed)"
        ) from None
    except Exception as error:  # whatever an environment makes of keywords that it does not take
        with_keywords = f" with {dict(kwargs)}" if kwargs else ""
        reason = f"{type(error).__name__}: {_one_line(error)}"
        raise UsageError(f"cannot make environment {name!r}{with_keywords}: {reason}") from None


def _guarded(env: gym.Env) -> gym.Env:
    """The environment, guarded against a diverged simulation if it runs on MuJoCo."""
    if not type(getattr(env.unwrapped, "data", None)).__module__.startswith("mujoco"):
        return env
    from paramnoise.envs.mujoco_guard import DivergenceGuard  # MuJoCo is an extra

    return DivergenceGuard(env)


def _with_unit_actions(env: gym.Env) -> gym.Env:
    """Continuous actions in [-1, 1], whatever the environment's own bounds."""
    space = env.action_space
    if not isinstance(space, gym.spaces.Box):
        return env
    if not space.is_bounded():
        raise UsageError(
            f"the actions of {env_name(env)} have no bounds ({space}): wrap it with gymnasium's ClipAction"
        )
    return _UnitActions(env, np.float32(-1.0), np.float32(1.0))


def _with_vector_observations(env: gym.Env) -> gym.Env:
    space = env.observation_space
    if shows_images(space):
        raise UsageError(
            f"{env_name(env)} shows pixels ({space.shape}), which only dqn and es take: "
            "wrap it so that it shows features (a RAM version of an Atari game works)"
        )
    if isinstance(space, gym.spaces.Box) and len(space.shape) == 1:
        return env
    return _Flattened(env)


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
