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

from paramnoise.loops.frames import picture
from paramnoise.loops.host import HostLoop
from paramnoise.networks.policies import Policy, noise_free_actions
from paramnoise.runs.video import DEFAULT_FPS, FRAMES_FPS, Frames, render, write_video

TILE_WIDTH = 320
"""Pixels of one policy's picture; its height follows from the environment's."""
BAR = 26
"""Pixels of the line of text above a picture."""
Shown = Iterator[tuple[Image.Image, str]]
"""An episode's pictures, each with what is to be said of its return."""
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
        write_video(path, _grids(episodes, list(policies)), fps)
    return returns


def record_games_side_by_side(
    games: HostLoop, policies: Mapping[str, Policy], path: Path, seed: int, max_steps: int
) -> list[float]:
    """As `record_side_by_side`, of games as agents see them, grey and enlarged; returns the scores of whole games.

    Args:
        games: plays them.
        policies: by what the film calls them; of one structure.
        path: the file, which is replaced once the film is whole.
        seed: of all games.
        max_steps: steps after which the film of a game is cut.
    """
    played = [_play(games, policy, seed) for policy in policies.values()]
    episodes = [_game(frames[:max_steps], score) for frames, score in played]
    write_video(path, _grids(episodes, list(policies)), FRAMES_FPS)
    return [score for _, score in played]


def _play(games: HostLoop, policy: Policy, seed: int) -> tuple[list[np.ndarray], float]:
    """The frames of a game, and its score."""
    frames: list[np.ndarray] = []

    def watch(shown: np.ndarray, running: np.ndarray) -> None:
        frames.append(shown[0].copy())

    (score,) = games.evaluate(1, seed, watch=watch, policy=policy)
    return frames, float(score)


def _game(frames: list[np.ndarray], score: float) -> Shown:
    for frame in frames:
        yield _tile(picture(frame)), f"{score:,.0f} in the end"


def _episode(env: gym.Env, policy: Policy, seed: int, max_steps: int, returns: list[float], place: int) -> Shown:
    dtype = env.observation_space.dtype
    obs, _ = env.reset(seed=seed)
    yield _tile(render(env)), _so_far(returns[place])
    for _ in range(max_steps):
        (action,) = np.asarray(_actions(policy, np.asarray(obs, dtype)[None]))
        obs, reward, terminated, truncated, _ = env.step(action)
        returns[place] += float(reward)
        yield _tile(render(env)), _so_far(returns[place])
        if terminated or truncated:
            return


def _so_far(value: float) -> str:
    return f"return {value:,.1f}"


_actions = eqx.filter_jit(noise_free_actions)


def _grids(episodes: list[Shown], labels: list[str]) -> Frames:
    """The pictures of all episodes at each step, in rows of equal length, until the last episode has ended."""
    shown = [next(episode) for episode in episodes]
    running = [True] * len(episodes)
    columns = math.ceil(math.sqrt(len(episodes)))
    while any(running):
        named = [_named(*each, label, goes_on) for each, label, goes_on in zip(shown, labels, running, strict=True)]
        yield _grid(named, columns)
        for place, episode in enumerate(episodes):
            later = next(episode, None)
            running[place] = later is not None
            shown[place] = later or shown[place]


def _tile(pixels: np.ndarray) -> Image.Image:
    height, width, _ = pixels.shape
    return Image.fromarray(pixels).resize((TILE_WIDTH, round(height * TILE_WIDTH / width)), Image.Resampling.BOX)


def _named(tile: Image.Image, score: str, label: str, running: bool) -> Image.Image:
    """A tile below its policy's name and its return."""
    whole = Image.new("RGB", (tile.width, tile.height + BAR), PAPER)
    whole.paste(tile if running else Image.blend(tile, Image.new("RGB", tile.size, PAPER), 0.6), (0, BAR))
    draw = ImageDraw.Draw(whole)
    font = ImageFont.load_default(15)
    draw.text((6, BAR // 2), label if running else f"{label}: ended", INK if running else (110, 110, 110), font, "lm")
    draw.text((tile.width - 6, BAR // 2), score, INK, font, "rm")
    draw.rectangle((0, 0, whole.width - 1, whole.height - 1), outline=FADED)
    return whole


def _grid(tiles: list[Image.Image], columns: int) -> np.ndarray:
    width, height = tiles[0].size
    whole = Image.new("RGB", (columns * width, -(-len(tiles) // columns) * height), PAPER)
    for place, tile in enumerate(tiles):
        row, column = divmod(place, columns)
        whole.paste(tile, (column * width, row * height))
    return np.asarray(whole)
