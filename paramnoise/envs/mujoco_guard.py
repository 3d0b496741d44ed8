"""Ends a run whose MuJoCo simulation diverged, where the engine itself resets its state and goes on."""

import math
from typing import Any

import gymnasium as gym
import numpy as np

from paramnoise.envs.base import env_name
from paramnoise.validation import RunError, UsageError

try:
    import mujoco
except ImportError as error:
    raise gym.error.DependencyNotInstalled("MuJoCo is not installed: run `pip install 'paramnoise[mujoco]'`") from error

DIVERGED = {
    int(mujoco.mjtWarning.mjWARN_BADQPOS): "bad qpos",
    int(mujoco.mjtWarning.mjWARN_BADQVEL): "bad qvel",
    int(mujoco.mjtWarning.mjWARN_BADQACC): "bad qacc",
    int(mujoco.mjtWarning.mjWARN_BADCTRL): "bad ctrl",
}
"""The warnings of a diverged simulation, by their place among the engine's counters."""


class SimulationDiverged(RunError):
    """A simulation that left the numbers it can compute with."""


class DivergenceGuard(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """Raises SimulationDiverged instead of returning what a diverged simulation shows.

    On a NaN or a huge value MuJoCo prints a line, counts a warning and continues from its initial state, in the midst
    of an episode. The guard reads the counters after each step (in less than 2 microseconds) and changes nothing else.
    """

    def __init__(self, env: gym.Env):
        """Guards `env`, whose `unwrapped.data` is MuJoCo's MjData.

        Raises:
            UsageError: if `env` does not run on MuJoCo.
        """
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        if not isinstance(getattr(env.unwrapped, "data", None), mujoco.MjData):
            raise UsageError(f"a DivergenceGuard wraps an environment that runs on MuJoCo, not {env_name(env)}")
        self._engine: Any = env.unwrapped
        self._cleared = self._counters().tobytes()
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode with the counters at 0."""
        self._counters()[:] = 0
        self._cleared = self._counters().tobytes()
        self._time = 0
        obs, info = self.env.reset(seed=seed, options=options)
        self._check(obs, 0.0)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment and looks at what came of it."""
        result = self.env.step(action)
        self._time += 1
        self._check(result[0], result[1])
        return result

    def _counters(self) -> np.ndarray:
        # Read anew each time: a copied environment, or one that makes its data anew, has counters of its own.
        return self._engine.data.warning.number

    def _check(self, obs: Any, reward: Any) -> None:
        if self._engine.data.warning.number.tobytes() != self._cleared:
            self._check_counters()
        if not math.isfinite(reward):
            self._raise(f"its reward is {reward}")
        # The squared norm is the cheapest look at every element; as it may overflow, a second look decides.
        if isinstance(obs, dict) or not math.isfinite(np.vdot(obs, obs)):
            self._check_elements(obs)

    def _check_counters(self) -> None:
        counters = self._counters()
        for place, warning in DIVERGED.items():
            if counters[place]:
                self._raise(f"MuJoCo warned of {warning}, and what follows is not a simulation of the task")
        self._cleared = counters.tobytes()  # a full buffer or the like: the state is still the simulation's own

    def _check_elements(self, obs: Any) -> None:
        if isinstance(obs, dict):
            for part in obs.values():
                self._check_elements(part)
        elif not np.isfinite(obs).all():
            self._raise("its observation is not finite")

    def _raise(self, what: str) -> None:
        raise SimulationDiverged(
            f"{env_name(self.env)} diverged at step {self._time} of the episode: {what} (smaller actions may help)"
        )
