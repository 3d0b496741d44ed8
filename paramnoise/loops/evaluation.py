"""Noise-free evaluation on environments of its own, and the counts that a row of progress begins with."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from paramnoise.loops.environments import Environments, MakeEnvs
from paramnoise.loops.frames import Stacks
from paramnoise.networks.policies import Policy, noise_free_actions
from paramnoise.validation import RunError

EVALUATION_STREAM = 1_000_003
"""Keeps the seeds of evaluation episodes apart from those of training."""
Watch = Callable[[np.ndarray, np.ndarray], None]
"""What each environment shows, and whether its episode goes on."""


class EndedEpisode(NamedTuple):
    """An episode of training that came to its end."""

    step: int
    """Environment steps of the run by then."""
    env: int
    """Which of the environments; for a population, which of its episodes."""
    episode_return: float
    """The sum of its rewards."""
    length: int
    """Its steps."""


class Progress:
    """How far training is: steps, and of each seed the episodes and their returns."""

    def __init__(self, seeds: Sequence[int], num_envs: int):
        """Begins at step 0."""
        self.step = 0
        """Environment steps so far, over all environments of a seed."""
        self.episodes = np.zeros(len(seeds), np.int64)
        self.ended: list[list[float]] = [[] for _ in seeds]
        """The returns of the episodes that ended since the last row."""
        self.on_episode: Callable[[EndedEpisode], None] | None = None
        """Who hears of episodes of the first seed as they end."""
        self._running = np.zeros(len(seeds) * num_envs)
        self._time = 0
        self._began = np.zeros(len(seeds) * num_envs, np.int64)
        self._num_envs = num_envs

    def count(self, reward: np.ndarray, resets: np.ndarray) -> bool:
        """Takes note of a step of every environment, and of where an episode, or a game, ended; whether one did."""
        self._running = self._running + reward  # in place, NumPy takes twice the time where the types differ
        self._time += 1
        ended = bool(np.count_nonzero(resets))  # a tenth of the time of `any`
        if ended:
            for place in map(int, np.flatnonzero(resets)):
                member, env = divmod(place, self._num_envs)
                self.end(member, env, float(self._running[place]), self._time - int(self._began[place]))
            self._running[resets] = 0.0
            self._began[resets] = self._time
        return ended

    def end(self, member: int, env: int, episode_return: float, length: int) -> None:
        """Takes note of an episode of one seed that ended."""
        self.ended[member].append(episode_return)
        self.episodes[member] += 1
        if self.on_episode is not None and member == 0:
            self.on_episode(EndedEpisode(self.step, env, episode_return, length))

    def snapshot(self, member: int) -> dict[str, np.ndarray]:
        """What there is of one seed, the step apart."""
        return {
            "running_return": self._running[self._part(member)].copy(),
            "running_length": self._time - self._began[self._part(member)],
            "ended_returns": np.array(self.ended[member]),
            "episodes": np.array(self.episodes[member]),
        }

    def restore(self, member: int, parts: Mapping[str, np.ndarray]) -> None:
        """Goes back to a snapshot."""
        self._running[self._part(member)] = parts["running_return"]
        lengths = parts.get("running_length", 0)  # a checkpoint of 0.2.0 does not know it
        self._began[self._part(member)] = self._time - lengths
        self.ended[member] = parts["ended_returns"].tolist()
        self.episodes[member] = int(parts["episodes"])

    def drop_running(self, member: int) -> None:
        """Forgets the episodes that were running, in whose place others start."""
        self._running[self._part(member)], self._began[self._part(member)] = 0.0, self._time

    def _part(self, member: int) -> slice:
        return slice(member * self._num_envs, (member + 1) * self._num_envs)


class Evaluator:
    """Noise-free episodes, one in each of its environments, which are made when they are first needed."""

    def __init__(self, make_envs: MakeEnvs, max_steps: int):
        """Remembers how to make environments, and the steps after which an episode is cut."""
        self._make_envs, self._max_steps = make_envs, max_steps
        self._envs: Environments | None = None
        self._made_for = (0, 0)

    def returns(
        self,
        policies: Policy,
        seeds: Sequence[int],
        episodes: int,
        *,
        has_axis: bool,
        watch: Watch | None = None,
    ) -> np.ndarray:
        """The returns of so many episodes of each seed, [seeds, episodes]; the seeds decide them.

        Args:
            policies: the clean policy.
            seeds: one for each training seed.
            episodes: how many of each.
            has_axis: whether the policy has a leading axis of training seeds.
            watch: sees every step.
        """
        seeds = [EVALUATION_STREAM + seed for seed in seeds]
        shape = (len(seeds), episodes)
        if self._envs is None or self._made_for != shape:
            self.close()
            self._envs, self._made_for = self._make_envs(seeds, episodes, trains=False), shape
        leaves, structure = jax.tree.flatten(policies)
        act = functools.partial(_noise_free, leaves, structure, has_axis)
        return first_returns(act, self._envs, seeds, shape, self._max_steps, watch, has_axis)

    def close(self) -> None:
        """Closes the environments."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None


def first_returns(
    act: Callable[[Any], Array],
    envs: Environments,
    seeds: Sequence[int],
    shape: tuple[int, int],
    max_steps: int,
    watch: Watch | None = None,
    has_axis: bool = False,
) -> np.ndarray:
    """The return of the first episode, or of its first `max_steps` steps, in each environment, of a given shape.

    With `has_axis` what `act` takes and returns has axes of seeds and episodes, as frames have in any case.
    """
    obs, resets = envs.restart(seeds), np.ones(envs.num_envs, bool)
    observation = envs.observation_space.shape or ()
    stacks = Stacks((*shape, *observation)) if len(observation) == 3 else None
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)
    for _ in range(max_steps):
        if watch is not None:
            watch(obs, running)
        shown: Any = obs
        if stacks is not None:
            shown = stacks.see(obs.reshape(*shape, *obs.shape[1:]), resets.reshape(shape))
        elif has_axis:
            shown = obs.reshape(*shape, *obs.shape[1:])
        actions = np.asarray(act(shown))
        after = envs.step(actions.reshape(envs.num_envs, *actions.shape[2 if has_axis else 1 :]), running)
        returns += np.where(running, after.reward, 0.0)
        running &= ~after.starts
        if not running.any():
            break
        obs, resets = after.obs, after.resets
    return returns.reshape(shape)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _noise_free(leaves: list[Array], structure: Any, has_axis: bool, obs: Array) -> Array:
    policy = jax.tree.unflatten(structure, leaves)
    return jax.vmap(noise_free_actions)(policy, obs) if has_axis else noise_free_actions(policy, obs)


def first_columns(step: int, episodes: int, returns: np.ndarray, ended: Sequence[float]) -> dict[str, float]:
    """The columns that every row of progress begins with: an evaluation's returns, and those of training episodes."""
    return {
        "step": step,
        "episodes": episodes,
        "eval_return_mean": float(np.mean(returns)),
        "eval_return_median": float(np.median(returns)),
        "train_return_mean": float(np.mean(ended)) if ended else float("nan"),
    }


def require_finite(values: Mapping[str, Any], step: int, remedy: str = "a lower rate may help") -> None:
    """Raises RunError if one of the numbers that learning reports is not finite."""
    for name, value in values.items():
        if not np.isfinite(value):
            raise RunError(f"{name} is {value} by step {step}: learning has diverged ({remedy})")
