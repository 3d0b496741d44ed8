"""Single Gymnasium environments that show stacks of grey frames: for agents that step environments one by one."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from paramnoise.envs.atari import AtariFrames, atari_frames, is_atari
from paramnoise.envs.factory import EnvLike, pixel_env_factory
from paramnoise.envs.frames import STACK, GreyFrames

FRAMES_FPS = 15.0
"""Of a film of games that are stepped every fourth frame of 60 a second."""
ENLARGED = 4
"""Pixels of a film for one of a frame, in each direction."""

_METADATA = {"render_modes": ["rgb_array"], "render_fps": FRAMES_FPS}


def stack_env_factory(env: EnvLike, env_kwargs: Mapping[str, Any] | None = None) -> Callable[[], gym.Env]:
    """A function that makes an Atari game, or any environment that shows images, as one that shows uint8 stacks.

    Args:
        env: an Atari game, a Gymnasium id, an environment (each call copies it), or a function that makes one.
        env_kwargs: keywords for a game or an id.
    """
    if isinstance(env, str) and is_atari(env):
        return functools.partial(_atari, env, dict(env_kwargs or {}))
    return functools.partial(_gym, pixel_env_factory(env, env_kwargs))


class GymStacks(GreyFrames):
    """An environment that shows images, as one that shows the newest frames, uint8[STACK, H, W], zeros before them."""

    metadata = _METADATA
    render_mode = "rgb_array"

    def __init__(self, env: gym.Env):
        """Wraps an environment that shows images."""
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, 255, (STACK, *(self.observation_space.shape or ())), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode, with nothing before its first frame."""
        _, info = super().reset(seed=seed, options=options)
        return self.stack(), info

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Steps the environment."""
        _, reward, terminated, truncated, info = super().step(action)
        return self.stack(), reward, terminated, truncated, info

    def render(self) -> Any:
        """The newest frame, as a picture."""
        return picture(self.stack()[-1])


class AtariStacks(gym.Env):
    """One Atari game by the rules of scores: a lost life ends nothing. A seeded reset takes some 0.1 s."""

    metadata = _METADATA
    render_mode = "rgb_array"

    def __init__(self, games: AtariFrames):
        """Takes a vector of one environment, of whose games only the first after each restart is played."""
        self._games = games
        self.observation_space = gym.spaces.Box(0, 255, (STACK, *games.frame_shape), np.uint8)
        self.action_space = gym.spaces.Discrete(games.num_actions)
        self._stack = np.zeros((STACK, *games.frame_shape), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts the game of a seed; without one, of a seed drawn from the last."""
        super().reset(seed=seed)
        self._stack[:] = 0
        own = int(self.np_random.integers(2**31)) if seed is None else seed
        self._stack[-1] = self._games.restart(own)[0]
        return self._stack.copy(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Steps the game; the frame that ends it is not known, and the one before is shown once more."""
        after = self._games.step(np.array([action]))
        shown = after.final_frame if after.resets[0] else after.frame
        if shown is not None:
            self._stack[:-1] = self._stack[1:]
            self._stack[-1] = shown[0]
        return self._stack.copy(), float(after.reward[0]), bool(after.terminated[0]), bool(after.truncated[0]), {}

    def render(self) -> Any:
        """The newest frame, as a picture."""
        return picture(self._stack[-1])

    def close(self) -> None:
        """Closes the emulator."""
        self._games.close()


def picture(frame: np.ndarray) -> np.ndarray:
    """A grey frame as a film shows it, enlarged: uint8[height, width, 3]."""
    return np.repeat(frame.repeat(ENLARGED, 0).repeat(ENLARGED, 1)[:, :, None], 3, 2)


def _atari(game: str, env_kwargs: Mapping[str, Any]) -> gym.Env:
    return AtariStacks(atari_frames(game, 1, 0, {"num_threads": 1, **env_kwargs}, trains=False))


def _gym(make_env: Callable[[], gym.Env]) -> gym.Env:
    return GymStacks(make_env())
