"""SparseHalfCheetah (Houthooft et al. 2016; sec. 4.2): a reward only beyond a distance from the start."""

from typing import Any

import gymnasium as gym
import numpy as np

try:
    from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
except (ImportError, gym.error.DependencyNotInstalled) as error:
    raise gym.error.DependencyNotInstalled("MuJoCo is not installed: run `pip install 'paramnoise[mujoco]'`") from error

TARGET_DISTANCE = 5.0
"""How far the torso must have moved, in the running direction."""


class SparseHalfCheetahEnv(HalfCheetahEnv):
    """Gymnasium's HalfCheetah with reward 1 while the torso is more than 5 units ahead of its start, else 0.

    The observation (17) leaves out the torso's x, as in the paper, so the reward depends on what the agent cannot see.
    An episode never terminates. A step is one of the simulation, as in rllab, from where the paper has the task: 500
    steps are 5 seconds, in which the cheetah has to run. Gymnasium's own HalfCheetah takes five, and has time to crawl.
    """

    def __init__(self, *, frame_skip: int = 1, render_mode: str | None = None, width: int = 480, height: int = 480):
        """Makes the environment.

        Args:
            frame_skip: steps of the simulation, 0.01 s each, in one step.
            render_mode: Gymnasium's.
            width: of frames.
            height: of frames.
        """
        settings: Any = {"frame_skip": frame_skip, "render_mode": render_mode, "width": width, "height": height}
        super().__init__(**settings)
        # A copy is made anew from our keywords, not from those of the parent.
        gym.utils.EzPickle.__init__(self, **settings)
        self._start = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode near x = 0, standing, as HalfCheetah does."""
        obs, info = super().reset(seed=seed, options=options)
        self._start = float(self.data.qpos[0])
        return obs, info

    def step(  # type: ignore[override]  # the parent's reward is a NumPy scalar
        self, action: np.ndarray
    ) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Applies the torques, clipped to [-1, 1]."""
        obs, _, terminated, truncated, info = super().step(np.clip(action, -1.0, 1.0))
        reward = float(info["x_position"] - self._start > TARGET_DISTANCE)
        state = {name: info[name] for name in ("x_position", "x_velocity")}
        return obs, reward, terminated, truncated, state
