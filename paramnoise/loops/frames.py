"""Gymnasium environments that show images, as vectors of grey frames.

Environments hand out one frame a step. Who needs a stack of several keeps the earlier ones; `resets` says where they
are to be forgotten.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.experience.frames import STACK, push
from paramnoise.loops.environments import EnvStep
from paramnoise.loops.vector import VectorEnv
from paramnoise.validation import UsageError

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""What red, green and blue add to grey."""


class GymFrames(VectorEnv):
    """Any Gymnasium environments with discrete actions that show uint8 images, turned grey.

    Each episode is a game of its own; lives are not known here, so a user's own wrapper ends episodes at their loss.
    """

    def __init__(self, make_env: Callable[[], gym.Env], num_envs: int, seeds: Sequence[int]):
        """Makes `num_envs` environments of each seed; `restart` starts their first games.

        Args:
            make_env: makes one environment; `pixel_env_factory` gives such a function.
            num_envs: environments of each seed.
            seeds: those of the training seeds side by side.
        """
        super().__init__(lambda: GreyFrames(make_env()), num_envs, seeds)
        if not isinstance(self.action_space, gym.spaces.Discrete) or self.action_space.start != 0:
            raise UsageError(
                f"pixel agents need discrete actions from 0, not {self.action_space}: wrap the environment"
            )
        self.observation_space = stack_space(self._shape[1:])

    def recv(self) -> EnvStep:
        """Steps the environments and starts the next game where one ended."""
        after = super().recv()
        truncated = after.truncated & ~after.terminated
        return after._replace(truncated=truncated, next_obs=after.next_obs if truncated.any() else None)


class GreyFrames(gym.Wrapper):
    """Shows its images as grey frames."""

    def __init__(self, env: gym.Env):
        """Wraps an environment that shows images."""
        super().__init__(env)
        check_pixels(env)
        self.observation_space = gym.spaces.Box(0, 255, (env.observation_space.shape or ())[:2], np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts a game."""
        image, info = self.env.reset(seed=seed, options=options)
        return grey(image), info

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Steps the environment."""
        image, reward, terminated, truncated, info = self.env.step(action)
        return grey(image), float(reward), terminated, truncated, info


class FrameStack:
    """The newest images of an environment as agents see them: grey, the newest last, black before an episode's first.

    For who steps an environment that shows images and asks an agent's `predict` what to do. `num_envs` images together,
    as vectors of environments return them, become as many stacks.
    """

    def __init__(self, num_envs: int | None = None):
        """Begins with nothing; `num_envs` is None for one environment, whose images have no leading axis."""
        self._num_envs = num_envs
        self._stacks = np.zeros(0, np.uint8)

    def __call__(self, image: np.ndarray, starts: Any = False) -> np.ndarray:
        """Takes in an image, uint8 of (H, W), (H, W, 1) or (H, W, 3), or one of each environment.

        Args:
            image: what `reset` or `step` returned.
            starts: whether, or where, an episode starts with it: after `reset`.

        Returns:
            The stack, uint8[STACK, H, W], or those of the environments.
        """
        images = np.asarray(image)[None] if self._num_envs is None else np.asarray(image)
        if not _are_pixels(images.dtype, images.shape[1:]) or len(images) != (self._num_envs or 1):
            many = "" if self._num_envs is None else f", {self._num_envs} of them"
            raise UsageError(f"{_PIXELS}{many}, not {images.dtype} of shape {np.shape(image)}")
        frames = np.stack([grey(each) for each in images])
        if self._stacks.shape[2:] != frames.shape[1:]:
            self._stacks = np.zeros((len(frames), STACK, *frames.shape[1:]), np.uint8)
        self._stacks[np.broadcast_to(starts, len(frames))] = 0
        self._stacks = np.concatenate([self._stacks[:, 1:], frames[:, None]], axis=1)
        return self._stacks[0] if self._num_envs is None else self._stacks


class GymStacks(GreyFrames):
    """An environment that shows images, as one that shows the newest frames, uint8[STACK, H, W], zeros before them."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15.0}  # noqa: RUF012  # as Gymnasium declares it
    render_mode = "rgb_array"

    def __init__(self, env: gym.Env):
        """Wraps an environment that shows images."""
        super().__init__(env)
        self.observation_space = stack_space(self.observation_space.shape or ())
        self._stack = FrameStack()
        self._shown = np.zeros(0, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode, with nothing before its first frame."""
        frame, info = super().reset(seed=seed, options=options)
        self._shown = frame
        return self._stack(frame, starts=True), info

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Steps the environment."""
        frame, reward, terminated, truncated, info = super().step(action)
        self._shown = frame
        return self._stack(frame), reward, terminated, truncated, info

    def render(self) -> Any:
        """The newest frame, as a picture."""
        return picture(self._shown)


class Stacks:
    """The newest frames of environments, uint8[seeds, num_envs, STACK, H, W], on the device."""

    def __init__(self, shape: tuple[int, ...]):
        """Begins with black frames; `shape` is that of all the stacks."""
        self.array = jnp.zeros(shape, jnp.uint8)

    def see(self, frames: Any, resets: np.ndarray) -> Array:
        """Takes in a frame of each environment, [seeds, num_envs, H, W]; returns the stacks."""
        self.array = _push(self.array, frames, resets)
        return self.array


@functools.partial(jax.jit, donate_argnums=0)
def _push(stacks: Array, frames: Array, resets: Array) -> Array:
    return jax.vmap(push)(stacks, frames, resets)


def stack_space(frame_shape: Sequence[int]) -> gym.spaces.Box:
    """The space of stacks of frames of that height and width."""
    return gym.spaces.Box(0, 255, (STACK, *frame_shape), np.uint8)


def grey(image: np.ndarray) -> np.ndarray:
    """An image of (H, W), (H, W, 1) or (H, W, 3) as a grey one of its own, uint8[H, W]."""
    if image.ndim == 2 or image.shape[-1] == 1:
        return image.reshape(image.shape[:2]).copy()
    return np.rint(image @ LUMA).astype(np.uint8)


ENLARGED = 4
"""Pixels of a film for one of a frame, in each direction."""


def picture(frame: np.ndarray) -> np.ndarray:
    """A grey frame as a film shows it, enlarged: uint8[height, width, 3]."""
    return np.repeat(frame.repeat(ENLARGED, 0).repeat(ENLARGED, 1)[:, :, None], 3, 2)


def check_pixels(env: gym.Env) -> None:
    """Raises UsageError unless an environment shows images that can be turned grey."""
    space = env.observation_space
    if not (isinstance(space, gym.spaces.Box) and _are_pixels(space.dtype, space.shape)):
        raise UsageError(f"{_PIXELS}, not {space}")


_PIXELS = "pixels must be uint8 of shape (height, width), (height, width, 1) or (height, width, 3)"


def _are_pixels(dtype: Any, shape: tuple[int, ...]) -> bool:
    return bool(dtype == np.uint8) and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3)))
