"""Gymnasium vector environments that a user made, taken as they are.

How they tell an episode's end is theirs to say (`metadata["autoreset_mode"]`):

NEXT_STEP   an ended environment is reset by its next step, whatever the action: that step is no step, and is skipped
SAME_STEP   the next episode's first observation comes with the end; the final one is `info["final_obs"]`
DISABLED    who steps them resets the ended ones, by `options["reset_mask"]`
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorRewardWrapper, VectorWrapper

from paramnoise.envs.actions import environment_actions
from paramnoise.envs.base import env_name
from paramnoise.envs.checked import reset_vector, step_vector
from paramnoise.envs.checks import check_vector
from paramnoise.envs.observations import flatten_batch, shows_images, vector_space
from paramnoise.loops.environments import ALL, Environments, EnvSource, EnvStep
from paramnoise.loops.vector import episode_seed
from paramnoise.validation import RunError, UsageError, require

_HARMLESS = (VectorRewardWrapper, gym.wrappers.vector.RecordEpisodeStatistics)
"""Vector wrappers that change nothing of what an environment shows and takes."""
_OF_A_VECTOR = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
"""Keywords in a vector environment's spec that a single environment does not take."""


class UserVectors(Environments):
    """Environments that a user's own vectors step; the first `num_envs` of them are used.

    They start their episodes by random streams of their own, so that a snapshot cannot bring an episode back.
    """

    replays = False

    def __init__(self, vectors: Sequence[VectorEnv], num_envs: int, seed: int):
        """Takes vectors of one kind; `restart` starts their first episodes."""
        self._vectors, self.num_envs, self._seed, self._restores = vectors, num_envs, seed, 0
        self._space, self.action_space = vectors[0].single_observation_space, vectors[0].single_action_space
        self.observation_space = vector_space(env_name(vectors[0]), self._space)
        self._dtype = jax.dtypes.canonicalize_dtype(self.observation_space.dtype)  # what a compiled program takes
        self._mode = autoreset_mode(vectors[0])
        self.skips = self._mode is AutoresetMode.NEXT_STEP
        self._ends = np.cumsum([vector.num_envs for vector in vectors])
        self._ended = np.zeros(self._ends[-1], bool)
        self._actions = np.zeros(0)

    def restart(self, seeds: Sequence[int] | None = None) -> np.ndarray:
        """Starts the first episode of every environment, with another seed if one is given."""
        self._seed = self._seed if seeds is None else seeds[0]
        self._ended[:] = False
        shown = [
            reset_vector(vector, seed=episode_seed(self._seed, number, self._restores))
            for number, vector in enumerate(self._vectors)
        ]
        return np.concatenate(list(map(self._rows, shown)))[: self.num_envs]

    def send(self, actions: np.ndarray, where: np.ndarray | None = None) -> None:
        """Keeps the actions for `recv`; environments beyond `num_envs` get those of the first."""
        spare = np.repeat(actions[:1], self._ends[-1] - self.num_envs, axis=0)
        self._actions = environment_actions(self.action_space, np.concatenate([actions, spare]))

    def recv(self) -> EnvStep:
        """Steps the vectors; an ended environment starts its next episode by the rules of its vector."""
        parts = [self._step(number, vector) for number, vector in enumerate(self._vectors)]
        obs, reward, terminated, truncated, starts, skipped, next_obs = (
            np.concatenate(each)[: self.num_envs] for each in zip(*parts, strict=True)
        )
        if not (np.isfinite(reward).all() and np.isfinite(next_obs).all()):
            raise RunError(f"{env_name(self._vectors[0])} gave a reward or observation that is not finite")
        return EnvStep(obs, reward, terminated, truncated, starts, starts, next_obs, skipped if self.skips else None)

    def snapshot(self, part: slice = ALL) -> dict[str, np.ndarray]:
        """How often episodes were started anew by `restore`: all that can be kept."""
        return {"restores": np.array(self._restores)}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Starts new episodes, of another seed than all before; says that these are not the ones that were saved."""
        if "restores" not in snapshot:
            raise UsageError("the agent was saved with environments of ours: pass one, or its id, not a vector (env=)")
        self._restores = int(snapshot["restores"]) + 1
        warnings.warn(
            f"{env_name(self._vectors[0])} is a vector environment of your own, whose episodes cannot be brought back: "
            "training goes on with new ones, and so not exactly as if it had not been interrupted",
            stacklevel=2,
        )
        return self.restart()

    def close(self) -> None:
        """Closes the vectors."""
        for vector in self._vectors:
            vector.close()

    def _step(self, number: int, vector: VectorEnv) -> tuple[np.ndarray, ...]:
        """Steps one of the vectors: obs, reward, terminated, truncated, starts, skipped, next_obs."""
        here = slice(self._ends[number] - vector.num_envs, self._ends[number])
        shown, reward, terminated, truncated, info = step_vector(vector, self._actions[here])
        obs = next_obs = self._rows(shown)
        skipped = self._ended[here].copy()
        terminated, truncated = np.array(terminated, bool) & ~skipped, np.array(truncated, bool) & ~skipped
        ended = starts = terminated | truncated
        if self._mode is AutoresetMode.NEXT_STEP:
            self._ended[here], starts = ended, skipped
        elif ended.any() and self._mode is AutoresetMode.SAME_STEP:
            next_obs = obs.copy()
            next_obs[ended] = self._final_rows(info, ended)
        elif ended.any():
            fresh = reset_vector(vector, options={"reset_mask": ended.copy()})
            obs = next_obs.copy()
            obs[ended] = self._rows(fresh)[ended]
        reward = np.where(skipped, 0.0, reward).astype(np.float32)
        return obs, reward, terminated, truncated, starts, skipped, next_obs

    def _rows(self, shown: Any) -> np.ndarray:
        """A copy of a batch of observations as vectors: a vector environment may use its arrays again."""
        return np.array(flatten_batch(self._space, shown), self._dtype)

    def _final_rows(self, info: dict[str, Any], ended: np.ndarray) -> np.ndarray:
        """The final observations of ended episodes: those of each environment, or a batch of all."""
        final = info.get("final_obs")
        if final is None:
            raise RunError(f"{env_name(self._vectors[0])} resets in the same step but gives no info['final_obs']")
        if isinstance(final, np.ndarray) and final.dtype == object:
            return np.stack([self._rows(each) for each in final[ended]])
        return self._rows(final)[ended]


def autoreset_mode(vector: VectorEnv) -> AutoresetMode:
    """How a vector environment tells an episode's end.

    Raises:
        UsageError: if it does not say.
    """
    said = vector.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(said)
    except ValueError:
        modes = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        raise UsageError(
            f"metadata['autoreset_mode'] of {env_name(vector)} must say how it resets, one of {modes}, not {said!r}"
        ) from None


def single_env(vector: VectorEnv) -> Callable[[], gym.Env] | None:
    """A function that makes one environment of the kind that a vector has, if it is known: by `env_fns` or by `spec`.

    It is not known if a wrapper around the vector changes what its environments show or take.
    """
    inner = vector
    while isinstance(inner, VectorWrapper):
        if not isinstance(inner, _HARMLESS):
            return None
        inner = inner.env
    if env_fns := getattr(inner, "env_fns", None):
        return env_fns[0]
    if inner.spec is None:
        return None
    kwargs = {name: value for name, value in inner.spec.kwargs.items() if name not in _OF_A_VECTOR}
    return functools.partial(gym.make, inner.spec.id, **kwargs)


def user_vector_source(vector: VectorEnv, make: Callable[[], VectorEnv] | None, singles: EnvSource | None) -> EnvSource:
    """How a loop makes its environments of a vector that a user made; training has the vector itself.

    Args:
        vector: the vector, which is checked here.
        make: makes another one, if the user gave a function.
        singles: single environments of the same kind, for evaluation, if they are known.
    """
    name = env_name(vector)
    check_vector(vector)
    autoreset_mode(vector)
    if shows_images(vector.single_observation_space):
        raise UsageError(
            f"the vector environment {name} shows images: pass a function that makes one environment, and num_envs"
        )
    if singles is not None and not _alike(vector, singles):
        singles = None
    if singles is None and make is None:
        raise UsageError(
            f"evaluation needs environments of its own, and {name} has neither env_fns nor a spec to make them from: "
            "pass a function that makes it"
        )
    return EnvSource(
        functools.partial(_no_single, name) if singles is None else singles.make_env,
        functools.partial(_vectors, vector, make, singles),
        vector_space(name, vector.single_observation_space),
        vector.single_action_space,
        vector.single_observation_space,
        vector.num_envs,
    )


def _alike(vector: VectorEnv, singles: EnvSource) -> bool:
    """Whether single environments show and take what those of a vector do."""
    shows_same = vector_space("", vector.single_observation_space).shape == singles.observation_space.shape
    return shows_same and vector.single_action_space == singles.action_space


def _vectors(
    vector: VectorEnv,
    make: Callable[[], VectorEnv] | None,
    singles: EnvSource | None,
    seeds: Sequence[int],
    num_envs: int,
    *,
    trains: bool,
) -> Environments:
    if trains:
        require(len(seeds) == 1, "seeds", seeds, "one, as there is one vector environment")
        return UserVectors([vector], num_envs, seeds[0])
    if singles is not None:
        return singles.make_envs(seeds, num_envs, trains=False)
    assert make is not None
    return UserVectors([make() for _ in range(-(-num_envs // vector.num_envs))], num_envs, seeds[0])


def _no_single(name: str) -> gym.Env:
    raise UsageError(f"one environment is needed here, and {name} has neither env_fns nor a spec to make it from")
