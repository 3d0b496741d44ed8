"""Pixel environments stepped together: what the pixel loop asks of them, and Gymnasium's under that face.

Environments hand out one frame a step. Who needs a stack of several keeps the earlier ones; `resets` says where they
are to be forgotten.
"""

import abc
import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from paramnoise.envs.vector import VectorEnv
from paramnoise.validation import UsageError, require

STACK = 4
"""Frames that make an observation (app. A.1)."""
LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""What red, green and blue add to grey."""


class FrameStep(NamedTuple):
    """What one step of all environments returns."""

    frame: np.ndarray
    """uint8[n, H, W]: what each environment now shows, the first frame of a new game where one ended."""
    reward: np.ndarray
    """float32[n]: true rewards, never clipped."""
    terminated: np.ndarray
    """bool[n]: nothing follows; the game is over, or a life is lost where lives end episodes."""
    truncated: np.ndarray
    """bool[n]: cut by a time limit, after which there would have been more."""
    starts: np.ndarray
    """bool[n]: an episode starts with `frame`."""
    resets: np.ndarray
    """bool[n]: a game starts with `frame`, so the frames before it in a stack are zeros; not so after a lost life."""
    final_frame: np.ndarray | None
    """uint8[n, H, W]: what the last action led to where an episode was truncated; None if none was."""


class FrameEnvs(abc.ABC):
    """Several environments that show grey frames and take discrete actions.

    They may belong to several training seeds: `num_envs` counts them all, those of the first seed first.
    """

    name: str
    num_envs: int
    num_actions: int
    frame_shape: tuple[int, int]

    @abc.abstractmethod
    def restart(self) -> np.ndarray:
        """Starts the first game of every environment; returns the frames, uint8[n, H, W]."""

    @abc.abstractmethod
    def send(self, actions: np.ndarray) -> None:
        """Hands an action to every environment; `recv` must follow before anything else is asked."""

    @abc.abstractmethod
    def recv(self) -> FrameStep:
        """Waits for what the actions led to."""

    def step(self, actions: np.ndarray) -> FrameStep:
        """Steps every environment and starts the next game where one ended."""
        self.send(actions)
        return self.recv()

    @abc.abstractmethod
    def snapshot(self) -> dict[str, np.ndarray]:
        """What brings the environments back to where they are; never between `send` and `recv`."""

    @abc.abstractmethod
    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Brings every environment back to a snapshot; returns the newest frames, uint8[n, STACK, H, W]."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes every environment."""


class GymFrames(FrameEnvs):
    """Any Gymnasium environments with discrete actions that show uint8 images, turned grey.

    Each episode is a game of its own; lives are not known here, so a user's own wrapper ends episodes at their loss.
    """

    def __init__(self, make_env: Callable[[], gym.Env], num_envs: int, seed: int | Sequence[int]):
        """Makes the environments; `restart` starts their first games.

        Args:
            make_env: makes one environment; `pixel_env_factory` gives such a function.
            num_envs: environments of each seed.
            seed: the seed, or several for environments of several training seeds side by side.
        """
        self._shown: list[_Recent] = []
        seeds = as_seeds(seed)
        self._vectors = [VectorEnv(functools.partial(self._make, make_env), num_envs, each) for each in seeds]
        self.num_envs = num_envs * len(seeds)
        actions, shape = self._shown[0].action_space, self._shown[0].observation_space.shape
        if not isinstance(actions, gym.spaces.Discrete) or actions.start != 0:
            raise UsageError(f"pixel agents need discrete actions from 0, not {actions}: wrap the environment")
        self.name = type(self._shown[0].unwrapped).__name__
        self.num_actions = int(actions.n)
        self.frame_shape = (shape[0], shape[1]) if shape else (0, 0)
        self._actions = np.zeros(0, np.int64)

    def restart(self) -> np.ndarray:
        """Starts the first game of every environment; returns the frames."""
        return np.concatenate([vector.restart() for vector in self._vectors])

    def send(self, actions: np.ndarray) -> None:
        """Keeps the actions for `recv`: these environments run nowhere else."""
        self._actions = np.asarray(actions, np.int64)

    def recv(self) -> FrameStep:
        """Steps every environment by its action."""
        parts = np.split(self._actions, len(self._vectors))
        steps = [vector.step(part) for vector, part in zip(self._vectors, parts, strict=True)]
        final, reward, terminated, truncated, frame, starts = map(np.concatenate, zip(*steps, strict=True))
        truncated &= ~terminated
        return FrameStep(
            frame, reward, terminated, truncated, starts, starts.copy(), final if truncated.any() else None
        )

    def snapshot(self) -> dict[str, np.ndarray]:
        """The game's number and the actions so far of every environment."""
        return {f"{k}-{name}": part for k, v in enumerate(self._vectors) for name, part in v.snapshot().items()}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Brings every environment back to a snapshot by replaying its game; returns the stacks of frames."""
        for k, vector in enumerate(self._vectors):
            own = f"{k}-"
            vector.restore({name.removeprefix(own): part for name, part in snapshot.items() if name.startswith(own)})
        return np.stack([env.stack() for env in self._shown])

    def close(self) -> None:
        """Closes every environment."""
        for vector in self._vectors:
            vector.close()

    def _make(self, make_env: Callable[[], gym.Env]) -> gym.Env:
        self._shown.append(_Recent(make_env()))
        return self._shown[-1]


class _Recent(gym.Wrapper):
    """Shows its images as grey frames and remembers the newest of the current game."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        check_pixels(env)
        self.observation_space = gym.spaces.Box(0, 255, (env.observation_space.shape or ())[:2], np.uint8)
        self._frames: collections.deque[np.ndarray] = collections.deque(maxlen=STACK)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts a game, with nothing remembered."""
        image, info = self.env.reset(seed=seed, options=options)
        self._frames.clear()
        return self._show(image), info

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Steps the environment."""
        image, reward, terminated, truncated, info = self.env.step(action)
        return self._show(image), float(reward), terminated, truncated, info

    def stack(self) -> np.ndarray:
        """The newest frames, uint8[STACK, H, W], zeros before the game's start."""
        blank = np.zeros(self.observation_space.shape or (), np.uint8)
        return np.stack([blank] * (STACK - len(self._frames)) + list(self._frames))

    def _show(self, image: np.ndarray) -> np.ndarray:
        self._frames.append(grey(image))
        return self._frames[-1]


def grey(image: np.ndarray) -> np.ndarray:
    """An image of (H, W), (H, W, 1) or (H, W, 3) as a grey one of its own, uint8[H, W]."""
    if image.ndim == 2 or image.shape[-1] == 1:
        return image.reshape(image.shape[:2]).copy()
    return np.rint(image @ LUMA).astype(np.uint8)


def check_pixels(env: gym.Env) -> None:
    """Raises UsageError unless an environment shows images that can be turned grey."""
    space = env.observation_space
    shape = space.shape or ()
    shows = isinstance(space, gym.spaces.Box) and space.dtype == np.uint8
    if not (shows and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3)))):
        raise UsageError(
            f"pixels must be uint8 of shape (height, width), (height, width, 1) or (height, width, 3), not {space}"
        )


def as_seeds(seed: int | Sequence[int]) -> tuple[int, ...]:
    """One seed or several, as several."""
    seeds = (seed,) if isinstance(seed, int | np.integer) else tuple(seed)
    require(bool(seeds) and all(each >= 0 for each in seeds), "seed", seed, "at least 0, one or several")
    return tuple(int(each) for each in seeds)
