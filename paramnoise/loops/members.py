"""The evaluation of a population: several members side by side, each episode with perturbed parameters of its own.

An episode is a function of the broadcast and of its number, so it does not matter where or beside which others it runs.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from paramnoise.agents.base import Learner
from paramnoise.experience.returns import ACT, RESET, Broadcast, Episode, draw_index, noise_table, num_parameters
from paramnoise.loops.fast.member_networks import make_networks
from paramnoise.validation import RunError


class Setting(NamedTuple):
    """What an evaluator is made of; another process can make the same one from it."""

    learner: Learner
    make_env: Callable[[], gym.Env]
    seed: int
    num_envs: int
    """Episodes side by side."""
    max_steps: int
    """Steps after which an episode is cut."""


class MemberEvaluator:
    """Runs episodes of members in environments of its own, with parameters for each environment."""

    def __init__(self, setting: Setting):
        """Makes the environments; `evaluate` gives them episodes."""
        self._setting, self._config = setting, setting.learner.config
        self._envs = [setting.make_env() for _ in range(setting.num_envs)]
        self._table = noise_table(self._config.table_size)
        self._networks = make_networks(setting.learner, setting.num_envs)
        self._num_parameters = num_parameters(setting.learner.init)
        size, spaces = setting.num_envs, setting.learner.spaces
        shows_pixels = spaces.shows_frames
        self._obs = np.zeros((size, *spaces.observation), np.uint8 if shows_pixels else np.float32)
        # Frames are bytes: there is nothing to normalise them by, and they are finite.
        self._counted = self._obs.reshape(size, -1)[:, : 0 if shows_pixels else None]
        self._sums, self._squares = np.zeros(self._counted.shape), np.zeros(self._counted.shape)
        self._total, self._length = np.zeros(setting.num_envs), np.zeros(setting.num_envs, np.int64)
        self._noise = [np.random.default_rng(0) for _ in range(setting.num_envs)]
        self._numbers: dict[int, int] = {}
        self._waiting: list[int] = []

    def evaluate(self, broadcast: Broadcast, numbers: Sequence[int]) -> Generator[list[Episode]]:
        """Runs the episodes of these numbers; yields after each vector step those that ended with it."""
        self._begin(broadcast, numbers)
        while self._numbers:
            yield self._step()

    def __call__(self, broadcast: Broadcast, numbers: Sequence[int]) -> list[Episode]:
        """The episodes of these numbers, once all have ended."""
        return [episode for episodes in self.evaluate(broadcast, numbers) for episode in episodes]

    def close(self) -> None:
        """Closes the environments."""
        for env in self._envs:
            env.close()

    def _begin(self, broadcast: Broadcast, numbers: Sequence[int]) -> None:
        self._broadcast, self._waiting = broadcast, list(reversed(numbers))
        self._networks.begin(broadcast.statistics)
        self._numbers = {}
        for place in range(min(len(self._envs), len(self._waiting))):
            self._start(place)

    def _start(self, place: int) -> None:
        """Starts the next episode that waits."""
        number = self._waiting.pop()
        seed, generation = self._setting.seed, self._broadcast.generation
        pair, is_negative = divmod(number // self._config.episodes_per_member, 2)
        index = draw_index(self._config.table_size, self._num_parameters, seed, generation, pair)
        epsilon = self._table[index : index + self._num_parameters]
        signed = np.float32(-self._config.sigma if is_negative else self._config.sigma)
        self._networks.load(place, self._broadcast.parameters + signed * epsilon)
        env_seed = np.random.SeedSequence((seed, RESET, generation, number)).generate_state(1)[0]
        self._noise[place] = np.random.default_rng((seed, ACT, generation, number))
        self._obs[place] = self._envs[place].reset(seed=int(env_seed))[0]
        self._sums[place] = self._squares[place] = 0.0
        self._total[place] = self._length[place] = 0
        self._numbers[place] = number

    def _step(self) -> list[Episode]:
        actions = self._act()
        obs = self._counted.astype(np.float64)
        self._sums += obs
        self._squares += obs * obs
        ended = []
        for place in self._numbers:
            step = self._envs[place].step(actions[place])
            self._obs[place], reward, terminated, truncated = step[:4]
            self._total[place] += reward
            self._length[place] += 1
            if terminated or truncated or self._length[place] >= self._setting.max_steps:
                ended.append(place)
        if not (np.isfinite(self._total).all() and np.isfinite(self._counted).all()):
            self._refuse()
        return [self._end(place) for place in ended]

    def _act(self) -> np.ndarray:
        outputs = self._networks.outputs(self._obs)
        if self._setting.learner.spaces.is_discrete:
            return np.argmax(outputs, axis=-1)
        actions = np.tanh(outputs)
        if self._config.action_noise > 0:
            for place in self._numbers:
                noise = self._noise[place].standard_normal(actions.shape[1], np.float32)
                actions[place] += np.float32(self._config.action_noise) * noise
        return np.minimum(np.maximum(actions, -1.0), 1.0)

    def _end(self, place: int) -> Episode:
        number, length = self._numbers.pop(place), int(self._length[place])
        sums, squares = self._sums[place].copy(), self._squares[place].copy()
        episode = Episode(number, float(self._total[place]), length, sums, squares)
        if self._waiting:
            self._start(place)
        return episode

    def _refuse(self) -> None:
        finite = np.isfinite(self._total) & np.isfinite(self._counted).all(axis=1)
        place = next(place for place in self._numbers if not finite[place])
        member = self._numbers[place] // self._config.episodes_per_member
        raise RunError(
            f"a reward or observation was not finite in generation {self._broadcast.generation}, at step "
            f"{self._length[place]} of an episode of member {member}"
        )
