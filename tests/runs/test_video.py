"""Videos: the episodes of the evaluation, whole or not at all, and one line where there can be none."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image, ImageSequence

import paramnoise as pn
from paramnoise import commands
from paramnoise.cli import main
from paramnoise.runs import video
from paramnoise.validation import UsageError

TINY = {"hidden_sizes": (8,), "batch_size": 4, "buffer_size": 64}


@pytest.fixture(scope="module")
def agent() -> pn.DQN:
    return pn.DQN("CartPole-v1", **TINY)


def decoded(path: Path, height: int, width: int) -> np.ndarray:
    """The frames of a video, [frames, height, width, 3]."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-i", str(path)]
    raw = subprocess.run([*command, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True, check=True)
    return np.frombuffer(raw.stdout, np.uint8).reshape(-1, height, width, 3)


def test_an_mp4_shows_every_step_of_the_episodes_of_the_evaluation(agent, tmp_path):
    filmed = agent.record(tmp_path / "pole.mp4", episodes=2, seed=3)
    assert filmed.returns == agent.evaluate(episodes=2, seed=3).returns
    frames = decoded(tmp_path / "pole.mp4", 400, 600)
    assert len(frames) == sum(filmed.returns) + 2  # CartPole pays 1 a step; each episode has a first picture
    assert np.abs(frames[0].astype(int) - frames[int(filmed.returns[0])].astype(int)).max() > 50
    assert [file.name for file in tmp_path.iterdir()] == ["pole.mp4"]


def test_a_gif_needs_no_extra(agent, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    filmed = agent.record(str(tmp_path / "pole.gif"))
    with Image.open(tmp_path / "pole.gif") as gif:
        assert gif.size == (600, 400)
        shown = [frame.info["duration"] for frame in ImageSequence.Iterator(gif)]  # equal pictures are one, for longer
    assert sum(shown) == 20 * (filmed.mean + 1)  # 50 frames a second
    assert len(shown) > 1


def test_a_gif_of_a_fast_environment_skips_frames_and_keeps_the_pace(tmp_path):
    frames = (np.full((4, 6, 3), 20 * i, np.uint8) for i in range(12))
    video._write_gif(tmp_path / "fast.gif", frames, fps=125.0)
    with Image.open(tmp_path / "fast.gif") as gif:
        assert gif.n_frames == 4
        assert gif.info["duration"] == 20  # three frames of 8 ms, in hundredths of a second


def test_pictures_of_odd_size_lose_a_row(tmp_path):
    video._write_mp4(tmp_path / "odd.mp4", (np.full((33, 47, 3), 9, np.uint8) for _ in range(3)), fps=10.0)
    assert decoded(tmp_path / "odd.mp4", 32, 46).shape[0] == 3


def test_a_saved_agent_is_filmed_on_the_command_line(agent, tmp_path, capsys):
    agent.save(tmp_path / "agent")
    assert main(f"evaluate {tmp_path}/agent --episodes 2 --video {tmp_path}/pole.gif".split()) == 0
    assert f"{tmp_path}/pole.gif: the first episode" in capsys.readouterr().out
    assert (tmp_path / "pole.gif").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [("pole.avi", ".mp4 or .gif"), ("pole", ".mp4 or .gif"), ("no/pole.gif", "no is not a directory")],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_run_is_read(tmp_path, monkeypatch, capsys, name, says):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "nowhere", "--video", name]) == 2
    assert says in capsys.readouterr().err


def test_an_mp4_without_its_extra_names_the_command_that_installs_it(agent, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsageError, match=r"pip install 'paramnoise\[video\]'"):
        agent.record(tmp_path / "pole.mp4")


def test_an_environment_without_pictures_is_refused(tmp_path):
    chain = pn.DQN("paramnoise/Chain-v0", env_kwargs={"length": 5}, **TINY)
    with pytest.raises(UsageError, match="Chain-v0 cannot be filmed: it has no render mode 'rgb_array'"):
        chain.record(tmp_path / "chain.gif")


@pytest.mark.parametrize("mode", [None, "rgb_array"])
def test_an_environment_object_is_filmed_if_it_was_made_to_render(tmp_path, mode):
    agent = pn.DQN(lambda: gym.make("CartPole-v1", render_mode=mode), **TINY)
    if mode is None:
        with pytest.raises(UsageError, match="make it with render_mode='rgb_array'"):
            agent.record(tmp_path / "pole.gif")
    else:
        agent.record(tmp_path / "pole.gif")
    assert (tmp_path / "pole.gif").exists() == (mode is not None)


def test_a_failed_rendering_is_one_line_and_leaves_the_file_that_was_there(agent, tmp_path, monkeypatch):
    (tmp_path / "pole.gif").write_bytes(b"precious")
    pictures = iter([np.zeros((4, 6, 3), np.uint8)] * 3)

    def render(env):
        picture = next(pictures, None)
        if picture is None:
            raise RuntimeError("no display\nfound")
        return picture

    monkeypatch.setattr(gym.envs.classic_control.CartPoleEnv, "render", render)
    with pytest.raises(UsageError, match=r"^CartPole-v1 cannot be rendered: no display found$"):
        agent.record(tmp_path / "pole.gif")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"pole.gif": b"precious"}


@pytest.mark.parametrize(("env", "camera"), [("HalfCheetah-v5", 0), ("InvertedPendulum-v5", -1)])
def test_a_camera_follows_what_runs_if_the_model_has_one(env, camera):
    made = video.rendering_env(env, {})
    assert made.unwrapped.mujoco_renderer.camera_id == camera
    made.close()


def test_the_hint_for_machines_without_a_display_is_given_on_mujoco(tmp_path, monkeypatch):
    env = video.rendering_env("InvertedPendulum-v5", {})

    def render(env):
        raise RuntimeError("no OpenGL")

    monkeypatch.setattr(type(env.unwrapped), "render", render)
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"no OpenGL .*MUJOCO_GL=egl"):
        video.render(env)
    env.close()


def test_natural_steps_have_no_sigma_to_film_with(monkeypatch, tmp_path, capsys):
    agent = SimpleNamespace(config=SimpleNamespace(exploration=pn.OnPolicyParameterNoise()))
    monkeypatch.setattr(commands, "_load", lambda *given: agent)
    assert main(["film", "run", "--out", str(tmp_path / "film.gif")]) == 2
    assert "run explored by natural steps, which no one sigma describes" in capsys.readouterr().err


def test_perturbed_policies_are_filmed_beside_the_clean_one_on_the_same_episode(agent, tmp_path):
    filmed = agent.record(
        tmp_path / "pole.gif", seed=3, perturbed=2, sigma=0.0
    )  # no noise: all three are the clean one
    assert filmed.returns == agent.evaluate(episodes=1, seed=3).returns * 3
    with Image.open(tmp_path / "pole.gif") as gif:
        assert gif.size == (2 * 320, 2 * (213 + 26))
        first = np.asarray(gif.convert("RGB"))
    assert (first[26:239, 1:319] == first[26:239, 321:639]).all()
    assert (first[240:, 321:] == 255).all()  # three tiles in two rows


def test_films_of_perturbed_policies_differ(agent, tmp_path):
    agent.record(tmp_path / "pole.gif", seed=3, perturbed=1, sigma=3.0, max_steps=5)
    with Image.open(tmp_path / "pole.gif") as gif:
        gif.seek(gif.n_frames - 1)
        last = np.asarray(gif.convert("RGB"))
    assert (last[26:, 1:319] != last[26:, 321:639]).any()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"perturbed": 1}, "sigma must be a number"),
        ({"perturbed": -1, "sigma": 0.1}, "perturbed must be at least 0"),
        ({"perturbed": 1, "sigma": 0.1, "episodes": 2}, "episodes must be 1"),
        ({"max_steps": 5}, "max_steps must be used together with perturbed"),
    ],
)
def test_what_cannot_be_filmed_side_by_side_is_refused(agent, tmp_path, given, says):
    with pytest.raises(UsageError, match=says):
        agent.record(tmp_path / "pole.gif", **given)
    assert list(tmp_path.iterdir()) == []


def test_a_film_is_made_on_the_command_line_with_what_is_known_of_it(agent, tmp_path, capsys):
    agent.save(tmp_path / "agent")
    words = f"film {tmp_path}/agent --out {tmp_path}/pole.gif --perturbed 1 --max-steps 4".split()
    assert main(words) == 2
    assert "has no sigma in its progress" in capsys.readouterr().err
    assert main([*words, "--sigma", "0.5"]) == 0
    assert "perturbed with sigma 0.5" in capsys.readouterr().out
    facts = json.loads((tmp_path / "pole.json").read_text())
    assert (facts["env"], facts["sigma"], facts["returns"]) == ("CartPole-v1", 0.5, [4.0, 4.0])
