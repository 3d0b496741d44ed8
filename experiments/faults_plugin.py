"""An environment that shows images, small enough to be learned from in seconds, for the trial of faults."""

from typing import Any

import gymnasium as gym
import numpy as np

ID = "faults/Sides-v0"


class Sides(gym.Env):
    """The bright half of a noisy frame tells the rewarded action; episodes are cut after 7 steps, or end by chance."""

    observation_space = gym.spaces.Box(0, 255, (12, 12, 1), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode."""
        super().reset(seed=seed)
        self._time = 0
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Pays for the bright side."""
        reward = 3.0 if action == self._side else 0.0
        self._time += 1
        return self._show(), reward, bool(self.np_random.random() < 0.1), self._time == 7, {}

    def _show(self) -> np.ndarray:
        self._side = int(self.np_random.integers(2))
        image = self.np_random.integers(0, 60, (12, 12, 1), np.uint8)
        image[:, 6 * self._side : 6 * self._side + 6] += 150
        return image


gym.register(ID, entry_point="faults_plugin:Sides")
