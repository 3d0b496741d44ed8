"""Scores of noise-free games, on environments that show frames."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.envs.frames import STACK, FrameEnvs

Act = Callable[[Array, np.ndarray, np.ndarray], tuple[Any, Array]]
"""Stacks, the newest frames and where games begin with them -> actions, the stacks with these frames."""


def first_scores(
    act: Act,
    envs: FrameEnvs,
    shape: tuple[int, int],
    max_steps: int,
    watch: Callable[[np.ndarray], None] | None = None,
) -> np.ndarray:
    """The score of the first game, or of its first `max_steps` steps, in each environment.

    Args:
        act: chooses the actions.
        envs: the environments, before their first game.
        shape: seeds, and environments of each; of what `act` takes and of the scores.
        max_steps: steps after which a game is cut.
        watch: sees the frames of all games, until the first game of a seed ends.
    """
    frame, resets = envs.restart(), np.ones(shape, bool)
    stack = jnp.zeros((*shape, STACK, *envs.frame_shape), jnp.uint8)
    scores, running = np.zeros(shape), np.ones(shape, bool)
    for _ in range(max_steps):
        if watch is not None and running[:, 0].all():
            watch(frame)
        actions, stack = act(stack, frame.reshape(*shape, *envs.frame_shape), resets)
        after = envs.step(np.asarray(actions).reshape(-1))
        scores += np.where(running, after.reward.reshape(shape), 0.0)
        frame, resets = after.frame, after.resets.reshape(shape)
        running &= ~after.starts.reshape(shape)
        if not running.any():
            break
    return scores
