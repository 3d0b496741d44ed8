"""A film of several policies on the same episode, side by side: the clean one and some that are perturbed.

It shows what parameter noise is: every tile is a policy that is consistent with itself and differs from the others.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import equinox as eqx
import gymnasium as gym
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from paramnoise.networks.policies import Policy, noise_free_actions
from paramnoise.runs.video import DEFAULT_FPS, Frames, render, write_video

TILE_WIDTH = 320
"""Pixels of one policy's picture; its height follows from the environment's."""
BAR = 26
"""Pixels of the line of text above a picture."""
PAPER, INK, FADED = (255, 255, 255), (17, 17, 17), (190, 190, 190)


def record_side_by_side(
    make_env: Callable[[], gym.Env], policies: Mapping[str, Policy], path: Path, seed: int, max_steps: int
) -> list[float]:
    """Films one episode of each policy, all of the same seed, and returns their returns.

    An episode that has ended keeps its last picture, faded, until all have.

    Args:
        make_env: makes an environment that renders pictures, one for each policy.
        policies: by what the film calls them; of one structure.
        path: the file, which is replaced once the film is whole.
        seed: of all episodes.
        max_steps: steps after which an episode is cut.
    """
    returns = [0.0] * len(policies)
    with contextlib.ExitStack() as stack:
        envs = [stack.enter_context(contextlib.closing(make_env())) for _ in policies]
        episodes = [
            _episode(env, policy, seed, max_steps, returns, place)
            for place, (env, policy) in enumerate(zip(envs, policies.values(), strict=True))
        ]
        fps = float(envs[0].metadata.get("render_fps", DEFAULT_FPS))
        write_video(path, _grids(episodes, list(policies), returns), fps)
    return returns


def _episode(
    env: gym.Env, policy: Policy, seed: int, max_steps: int, returns: list[float], place: int
) -> Iterator[Image.Image]:
    dtype = env.observation_space.dtype
    obs, _ = env.reset(seed=seed)
    yield _tile(render(env))
    for _ in range(max_steps):
        (action,) = np.asarray(_actions(policy, np.asarray(obs, dtype)[None]))
        obs, reward, terminated, truncated, _ = env.step(action)
        returns[place] += float(reward)
        yield _tile(render(env))
        if terminated or truncated:
            return


_actions = eqx.filter_jit(noise_free_actions)


def _grids(episodes: list[Iterator[Image.Image]], labels: list[str], returns: list[float]) -> Frames:
    """The pictures of all episodes at each step, in rows of equal length, until the last episode has ended."""
    tiles = [next(episode) for episode in episodes]
    running = [True] * len(episodes)
    columns = math.ceil(math.sqrt(len(episodes)))
    while any(running):
        yield _grid([_named(*each) for each in zip(tiles, labels, returns, running, strict=True)], columns)
        for place, episode in enumerate(episodes):
            shown = next(episode, None)
            running[place] = shown is not None
            tiles[place] = shown or tiles[place]


def _tile(picture: np.ndarray) -> Image.Image:
    height, width, _ = picture.shape
    return Image.fromarray(picture).resize((TILE_WIDTH, round(height * TILE_WIDTH / width)), Image.Resampling.BOX)


def _named(tile: Image.Image, label: str, so_far: float, running: bool) -> Image.Image:
    """A tile below its policy's name and its return so far."""
    whole = Image.new("RGB", (tile.width, tile.height + BAR), PAPER)
    whole.paste(tile if running else Image.blend(tile, Image.new("RGB", tile.size, PAPER), 0.6), (0, BAR))
    draw = ImageDraw.Draw(whole)
    font = ImageFont.load_default(15)
    draw.text((6, BAR // 2), label if running else f"{label}: ended", INK if running else (110, 110, 110), font, "lm")
    draw.text((tile.width - 6, BAR // 2), f"return {so_far:,.1f}", INK, font, "rm")
    draw.rectangle((0, 0, whole.width - 1, whole.height - 1), outline=FADED)
    return whole


def _grid(tiles: list[Image.Image], columns: int) -> np.ndarray:
    width, height = tiles[0].size
    whole = Image.new("RGB", (columns * width, -(-len(tiles) // columns) * height), PAPER)
    for place, tile in enumerate(tiles):
        row, column = divmod(place, columns)
        whole.paste(tile, (column * width, row * height))
    return np.asarray(whole)
