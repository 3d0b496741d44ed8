"""Makes environments from what users have: an id, an environment, or a function that makes one."""

import copy
import functools
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from paramnoise.envs.actions import with_agent_actions
from paramnoise.envs.base import ENVS, EnvLike, env_id, env_name, family_of
from paramnoise.envs.checked import CheckedEnv
from paramnoise.envs.checks import check_environment
from paramnoise.envs.observations import shows_images, with_vector_observations
from paramnoise.envs.vectors import single_env, user_vector_source
from paramnoise.loops.environments import EnvSource, JaxEnv, MakeEnvs
from paramnoise.loops.frames import GymFrames, GymStacks
from paramnoise.loops.jax_vector import jax_source
from paramnoise.loops.vector import make_vector
from paramnoise.validation import UsageError, brief, one_line


def env_factory(env: EnvLike, env_kwargs: Mapping[str, Any] | None = None) -> Callable[[], gym.Env]:
    """A function that makes the environment anew, with observations and actions as agents have them: vectors.

    Args:
        env: a Gymnasium id or name (`env_id`), an environment (each call copies it), or a function that makes one.
        env_kwargs: keywords for an id.

    Raises:
        UsageError: from the function, if Gymnasium cannot make the environment, or what it shows or takes cannot be
            vectors.
    """
    return functools.partial(_fresh, env, _keywords(env, env_kwargs))  # unlike a lambda, it can go to another process


def pixel_env_factory(env: EnvLike, env_kwargs: Mapping[str, Any] | None = None) -> Callable[[], gym.Env]:
    """A function that makes the environment anew, as `env_factory` does, but leaves its observations alone.

    It is for environments that show images, which `GymFrames` steps.
    """
    return functools.partial(_fresh_unchanged, env, _keywords(env, env_kwargs))


def env_source(env: EnvLike, env_kwargs: Mapping[str, Any] | None = None) -> EnvSource:
    """How a loop makes an environment, be it one of vectors or of images, Gymnasium's, a family's, or written in JAX.

    Raises:
        UsageError: if the environment cannot be made, or does not keep to its own spaces (`check_environment`).
    """
    if isinstance(env, JaxEnv):
        return jax_source(env)
    kwargs = _keywords(env, env_kwargs)
    family = family_of(env_id(env)) if isinstance(env, str) else None
    if family is not None and isinstance(env, str):
        return family.source(env, kwargs)
    make_unchanged = pixel_env_factory(env, kwargs)
    make: Any = env if callable(env) and not isinstance(env, gym.Env | VectorEnv) else None
    given = env if make is None else make()
    if isinstance(given, VectorEnv):
        one = single_env(given)
        return user_vector_source(given, make, None if one is None else env_source(one))
    probe = _guarded_env(env, kwargs) if make is None else _guarded(_checked_env(given, make))
    check_environment(probe)
    make_env = env_factory(env, kwargs)
    make_envs: MakeEnvs = functools.partial(make_vector, make_env)
    if shows_images(probe.observation_space):
        make_env = functools.partial(_stacks, make_unchanged)
        make_envs = functools.partial(_frames, make_unchanged)
        made: gym.Env = GymStacks(probe)
    else:
        made = with_vector_observations(probe)
    source = EnvSource(make_env, make_envs, made.observation_space, probe.action_space, probe.observation_space)
    made.close()
    entry = ENVS.get(env_id(env)) if isinstance(env, str) else None
    if entry is None or entry.functions is None:
        return source
    return source._replace(functions=entry.functions(kwargs))


def _stacks(make_env: Callable[[], gym.Env]) -> gym.Env:
    return GymStacks(make_env())


def _frames(make_env: Callable[[], gym.Env], seeds: Sequence[int], num_envs: int, *, trains: bool) -> GymFrames:
    return GymFrames(make_env, num_envs, seeds)


def known_kwargs(env: EnvLike) -> dict[str, Any]:
    """The keywords that an environment was made with, those that JSON can hold."""
    made_with = env.spec.kwargs if isinstance(env, gym.Env) and env.spec is not None else {}
    return {name: value for name, value in made_with.items() if _is_json(value)}


def _keywords(env: EnvLike, env_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    if env_kwargs and not isinstance(env, str):
        raise UsageError("env_kwargs go with an environment's id; pass a function that makes the environment instead")
    return dict(env_kwargs or {})


def _fresh(env: EnvLike, kwargs: Mapping[str, Any]) -> gym.Env:
    return with_agent_actions(with_vector_observations(_fresh_unchanged(env, kwargs)))


def _fresh_unchanged(env: EnvLike, kwargs: Mapping[str, Any]) -> gym.Env:
    return CheckedEnv(_guarded_env(env, kwargs))


def _guarded_env(env: EnvLike, kwargs: Mapping[str, Any]) -> gym.Env:
    if isinstance(env, str):
        return _guarded(_make_by_id(env, kwargs))
    return _guarded(_copied(env) if isinstance(env, gym.Env) else _made_by(env))


def _copied(env: gym.Env) -> gym.Env:
    try:
        return copy.deepcopy(env)
    except Exception as error:  # whatever refuses to be copied, such as a window, a thread or a socket
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UsageError(f"{env_name(env)} cannot be copied ({reason}): pass a function that makes it") from None


def _made_by(make: Any) -> gym.Env:
    if not callable(make):
        raise UsageError(f"env must be an id, an environment or a function that makes one, not {brief(make)}")
    return _checked_env(make(), make)


def _checked_env(made: Any, make: Callable[[], Any]) -> gym.Env:
    if not isinstance(made, gym.Env):
        raise UsageError(f"the function {env_name(make)} must make a Gymnasium environment, not {brief(made)}")
    return made


def _make_by_id(name: str, kwargs: Mapping[str, Any]) -> gym.Env:
    try:
        # The paper's tasks are older versions, and Box2D warns of its own types: Python crashes where that is an error.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            return gym.make(env_id(name), **{"disable_env_checker": True, **kwargs})  # `CheckedEnv` does it
    except (gym.error.UnregisteredEnv, ModuleNotFoundError) as error:
        raise UsageError(
            f"unknown environment {name!r}: {one_line(error)} (`paramnoise envs` lists those installed)"
        ) from None
    except Exception as error:  # whatever an environment makes of keywords that it does not take
        with_keywords = f" with {dict(kwargs)}" if kwargs else ""
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UsageError(f"cannot make environment {name!r}{with_keywords}: {reason}") from None


def _guarded(env: gym.Env) -> gym.Env:
    """The environment, guarded against a diverged simulation if it runs on MuJoCo."""
    if not type(getattr(env.unwrapped, "data", None)).__module__.startswith("mujoco"):
        return env
    from paramnoise.envs.mujoco_guard import DivergenceGuard  # MuJoCo is an extra

    return DivergenceGuard(env)


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
