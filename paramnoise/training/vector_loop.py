"""What the loops that step a vector of environments share: counts, evaluation, rows of progress."""

import abc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from paramnoise.envs.vector import VectorEnv, VectorStep
from paramnoise.policies import Policy
from paramnoise.training.evaluation import Evaluator


class VectorLoop(abc.ABC):
    """Training on Gymnasium environments that are stepped together; a loop says what one step does."""

    def __init__(self, make_env: Callable[[], gym.Env], seed: int, num_envs: int, eval_max_steps: int):
        """Makes the environments and starts their first episodes."""
        self.seed, self.step, self.episodes = seed, 0, 0
        self._envs = VectorEnv(make_env, num_envs, seed)
        self._evaluator = Evaluator(make_env, eval_max_steps)
        self._obs = self._envs.restart()
        self._starts, self._any_start = np.ones(num_envs, bool), True
        self._running_return = np.zeros(num_envs)
        self._ended_returns: list[float] = []

    @property
    @abc.abstractmethod
    def policy(self) -> Policy:
        """The clean policy, as learned so far."""

    @abc.abstractmethod
    def _step(self) -> None:
        """One step of every environment, and all the learning that is due after it."""

    @abc.abstractmethod
    def _columns(self) -> dict[str, float]:
        """What a row of progress shows besides steps, episodes and returns; means start anew."""

    def run(
        self,
        steps: int,
        *,
        eval_every: int,
        eval_episodes: int,
        on_step: Callable[[int], None] = lambda step: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[dict[str, float]]:
        """Trains until `steps` environment steps in all, and yields a row of progress after each evaluation.

        An evaluation follows every `eval_every` steps and the last step. `on_step` hears the step count after each
        vector step; `should_stop` is asked before each, where a snapshot can be taken.
        """
        while self.step < steps and not should_stop():
            before = self.step
            self._step()
            on_step(self.step)
            if self.step // eval_every > before // eval_every or self.step >= steps:
                yield self._row(eval_episodes)

    def evaluate(self, episodes: int, seed: int) -> np.ndarray:
        """The returns of noise-free episodes on environments of their own."""
        return self._evaluator.returns(self.policy, episodes, seed)

    def close(self) -> None:
        """Closes all environments."""
        self._envs.close()
        self._evaluator.close()

    def _row(self, eval_episodes: int) -> dict[str, float]:
        ended, self._ended_returns = self._ended_returns, []
        row = self._evaluator.row(self.policy, eval_episodes, self.seed, self.step, self.episodes, ended)
        return {**row, **self._columns()}

    def _count(self, after: VectorStep) -> None:
        """Takes note of what a step led to."""
        self._obs, self._starts, self._any_start = after.obs, after.starts, bool(after.starts.any())
        self._running_return += after.reward
        if self._any_start:
            self._ended_returns += self._running_return[after.starts].tolist()
            self._running_return[after.starts] = 0.0
            self.episodes += int(after.starts.sum())

    def _counts(self) -> dict[str, np.ndarray]:
        """The part of a snapshot that all loops have: the counts, and the environments'."""
        counts = {
            "starts": self._starts.copy(),
            "running_return": self._running_return.copy(),
            "ended_returns": np.array(self._ended_returns),
            "episodes": np.array(self.episodes),
        }
        return {**counts, **{f"env/{name}": array for name, array in self._envs.snapshot().items()}}

    def _restore_counts(self, own: Mapping[str, Any]) -> None:
        """Goes back to such a part of a snapshot; the environments replay their current episodes."""
        self._starts, self._any_start = own["starts"].copy(), bool(own["starts"].any())
        self._running_return = own["running_return"].copy()
        self._ended_returns = own["ended_returns"].tolist()
        self.episodes = int(own["episodes"])
        self._obs = self._envs.restore(below("env/", own))


def below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
