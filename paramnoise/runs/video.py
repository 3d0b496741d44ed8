"""Videos of noise-free episodes: an MP4 through ffmpeg, from the extra `video`, or a GIF, which needs no extra."""

import contextlib
import itertools
import math
import os
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from paramnoise.envs import EnvLike, env_factory, env_name
from paramnoise.loops.frames import picture
from paramnoise.loops.host import HostLoop
from paramnoise.networks.policies import Policy, noise_free_actions
from paramnoise.validation import RunError, UsageError, require_extra

RENDER_MODE = "rgb_array"
DEFAULT_FPS = 30.0
"""Of an environment that names no rate."""
MOST_GIF_FPS = 50.0
"""Viewers slow a faster GIF down."""

FRAMES_FPS = 15.0
"""Of a film of games that are stepped every fourth frame of 60 a second."""

Frames = Iterator[np.ndarray]


def check_path(path: Path) -> None:
    """Raises UsageError if no video can be written there, before anything is rendered."""
    if path.suffix not in _WRITERS:
        raise UsageError(f"a video's name must end in {' or '.join(_WRITERS)}, not {path.name!r}")
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: {path.parent} is not a directory")
    if path.is_dir():
        raise UsageError(f"{path} is a directory, not a file for a video")
    if path.suffix == ".mp4":
        require_extra("imageio_ffmpeg", "video", "MP4 videos (but not .gif ones)")


def rendering_env(env: EnvLike, env_kwargs: Mapping[str, Any]) -> gym.Env:
    """The environment, made so that it renders pictures.

    Raises:
        UsageError: if it cannot.
    """
    make_plain = env_factory(env, env_kwargs if isinstance(env, str) else None)
    made = make_plain()
    if RENDER_MODE not in made.metadata.get("render_modes", ()):
        raise UsageError(f"{env_name(env)} cannot be filmed: it has no render mode {RENDER_MODE!r}")
    if isinstance(env, str):
        made.close()
        return _following(env_factory(env, {**env_kwargs, "render_mode": RENDER_MODE})())
    if made.render_mode != RENDER_MODE:
        raise UsageError(f"{env_name(env)} cannot be filmed: make it with render_mode={RENDER_MODE!r}")
    return made


def _following(env: gym.Env) -> gym.Env:
    """The environment, with the camera that its MuJoCo model follows what runs by: Gymnasium's own stands still."""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is not None and renderer.camera_id < 0:  # no camera was asked for
        import mujoco  # an extra

        renderer.camera_id = mujoco.mj_name2id(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    return env


def record(env: gym.Env, policy: Policy, path: Path, seeds: Sequence[int], max_steps: int) -> list[float]:
    """Films one noise-free episode per seed, one after the other, and returns their returns.

    Args:
        env: from `rendering_env`; it is closed at the end.
        policy: the clean policy.
        path: the file, which is replaced once the video is whole.
        seeds: one for each episode.
        max_steps: steps after which an episode is cut.
    """
    returns: list[float] = []
    try:
        frames = _frames(env, policy, seeds, max_steps, returns)
        write_video(path, frames, float(env.metadata.get("render_fps", DEFAULT_FPS)))
    finally:
        env.close()
    return returns


def record_frames(games: HostLoop, path: Path, episodes: int, seed: int) -> list[float]:
    """Films noise-free games as the agent sees them, grey and enlarged, one after the other; returns their scores."""
    films: list[list[np.ndarray]] = [[] for _ in range(episodes)]

    def watch(shown: np.ndarray, running: np.ndarray) -> None:
        for game in np.flatnonzero(running):
            films[game].append(shown[game].copy())

    scores = games.evaluate(episodes, seed, watch=watch).tolist()
    write_video(path, map(picture, itertools.chain.from_iterable(films)), FRAMES_FPS)
    return scores


def write_video(path: Path, frames: Frames, fps: float) -> None:
    """Writes pictures, uint8[height, width, 3], to a file, which is replaced once the video is whole."""
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        _WRITERS[path.suffix](temporary, frames, fps)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _frames(env: gym.Env, policy: Policy, seeds: Sequence[int], max_steps: int, returns: list[float]) -> Frames:
    dtype = env.observation_space.dtype
    for seed in seeds:
        returns.append(0.0)
        obs, _ = env.reset(seed=seed)
        yield render(env)
        for _ in range(max_steps):
            (action,) = np.asarray(noise_free_actions(policy, np.asarray(obs, dtype)[None]))
            obs, reward, terminated, truncated, _ = env.step(action)
            returns[-1] += float(reward)
            yield render(env)
            if terminated or truncated:
                break


def render(env: gym.Env) -> np.ndarray:
    """A picture of the environment, uint8[height, width, 3]; UsageError if it cannot be drawn here."""
    try:
        with warnings.catch_warnings(action="ignore"):
            picture: Any = env.render()
    except Exception as error:  # whatever a graphics library makes of a machine without a display
        reason = " ".join(str(error).split()) or type(error).__name__
        on_mujoco = type(getattr(env.unwrapped, "data", None)).__module__.startswith("mujoco")
        hint = " (without a display, set MUJOCO_GL=egl or MUJOCO_GL=osmesa)" if on_mujoco else ""
        raise UsageError(f"{env_name(env)} cannot be rendered: {reason}{hint}") from None
    return np.asarray(picture, np.uint8)  # [height, width, 3]


def _write_mp4(path: Path, frames: Frames, fps: float) -> None:
    from imageio_ffmpeg import get_ffmpeg_exe  # an extra

    even = (frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2] for frame in frames)  # as the codec needs
    first = next(even)
    height, width, _ = first.shape
    given = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps} -i -"
    wanted = "-c:v libx264 -pix_fmt yuv420p -movflags +faststart"
    command = [get_ffmpeg_exe(), "-y", "-loglevel", "error", *given.split(), *wanted.split(), str(path)]
    # A pipe that breaks is an ffmpeg that ended, and its status says more.
    with contextlib.suppress(BrokenPipeError), subprocess.Popen(command, stdin=subprocess.PIPE) as ffmpeg:
        assert ffmpeg.stdin is not None
        for frame in itertools.chain([first], even):
            ffmpeg.stdin.write(frame.tobytes())
    if ffmpeg.returncode != 0:
        raise RunError(f"ffmpeg could not write {path.name}: it ended with status {ffmpeg.returncode}")


def _write_gif(path: Path, frames: Frames, fps: float) -> None:
    from PIL import Image  # slow to import; matplotlib depends on it

    stride = math.ceil(fps / MOST_GIF_FPS)
    pictures = (Image.fromarray(frame) for frame in itertools.islice(frames, 0, None, stride))
    milliseconds = 10 * round(100 * stride / fps)  # a GIF counts in hundredths of a second
    next(pictures).save(path, save_all=True, append_images=pictures, duration=milliseconds, loop=0)


_WRITERS: dict[str, Callable[[Path, Frames, float], None]] = {".mp4": _write_mp4, ".gif": _write_gif}
