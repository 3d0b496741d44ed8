"""SwimmerGather: its sensors by hand, its objects, its rules, and what an episode depends on."""

import copy
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from paramnoise.envs.swimmer_gather import SwimmerGatherEnv, readings

ACTIONS = np.random.default_rng(0).uniform(-50, 50, (40, 2)).astype(np.float32)
REST = np.zeros(2)


@pytest.fixture(autouse=True)
def _log_elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its warnings to a file in the working directory."""
    monkeypatch.chdir(tmp_path)


def at_rest(apples=(), bombs=(), *, x=0.0, y=0.0, heading=0.0, **kwargs) -> SwimmerGatherEnv:
    """A stretched swimmer at rest whose centre of mass is at (x, y), among the objects given."""
    env = SwimmerGatherEnv(**kwargs)
    env.reset(seed=0)
    env.data.qpos[:], env.data.qvel[:] = (x, y, heading, 0, 0), 0
    env.place(apples, bombs)
    return env


def seen(heading: float, *apples: tuple[float, float], bombs=()) -> np.ndarray:
    """The readings of apples and bombs at the origin (2, 10)."""
    objects = np.array([*apples, *bombs], float)
    return readings(np.zeros(2), heading, objects, np.repeat([0, 1], [len(apples), len(bombs)]))


def played(env: SwimmerGatherEnv, seed: int, actions: np.ndarray) -> np.ndarray:
    """The observations of an episode, each followed by its reward."""
    rows = [np.append(env.reset(seed=seed)[0], 0.0)]
    for action in actions:
        obs, reward, *_ = env.step(action)
        rows.append(np.append(obs, reward))
    return np.stack(rows)


def polar(distance: float, degrees: float) -> tuple[float, float]:
    return distance * math.cos(math.radians(degrees)), distance * math.sin(math.radians(degrees))


@pytest.mark.parametrize(
    ("apple", "place", "reading"),
    [
        (polar(3, 1), 5, 0.5),
        (polar(3, -1), 4, 0.5),
        (polar(1.5, 89), 9, 0.75),
        (polar(1.5, -89), 0, 0.75),
        (polar(4.5, 45), 7, 0.25),
        ((3, 0), 5, 0.5),
        ((0, 3), 9, 0.5),
    ],
)
def test_an_apple_shows_in_the_bin_of_its_direction_from_right_to_left(apple, place, reading):
    expected = np.zeros((2, 10))
    expected[0, place] = reading
    np.testing.assert_allclose(seen(0.0, apple), expected, atol=1e-12)


@pytest.mark.parametrize("apple", [(-3, 0), polar(2, 91), polar(2, -91), polar(2, 180), (6.01, 0)])
def test_what_is_behind_or_out_of_range_is_not_seen(apple):
    assert not seen(0.0, apple).any()


@pytest.mark.parametrize("turns", [-3, 0, 2])
def test_directions_are_from_the_heading_whatever_the_turns_made(turns):
    heading = math.pi / 2 + 2 * math.pi * turns
    shown = seen(heading, polar(3, 91), polar(1.5, 1), (0, -2))
    np.testing.assert_allclose(shown[0], [0.75, 0, 0, 0, 0, 0.5, 0, 0, 0, 0])


def test_of_two_apples_in_one_bin_the_nearer_is_seen_in_either_order():
    near, far = polar(1.5, 4), polar(4.5, 5)
    assert seen(0.0, near, far)[0, 5] == seen(0.0, far, near)[0, 5] == pytest.approx(0.75)


def test_bombs_have_readings_of_their_own_that_no_apple_hides():
    shown = seen(0.0, polar(1.5, 4), bombs=[polar(4.5, 5)])
    assert shown[:, 5].tolist() == pytest.approx([0.75, 0.25])
    assert np.count_nonzero(shown) == 2


def test_an_observation_is_positions_velocities_centre_apples_and_bombs():
    env = at_rest([polar(3, 1)], [polar(1.5, 89)], x=0, heading=0)
    obs, *_ = env.step(REST)
    assert obs.shape == (33,)
    assert obs.dtype == np.float64
    np.testing.assert_array_equal(obs[:5], env.data.qpos)
    np.testing.assert_array_equal(obs[5:10], env.data.qvel)
    np.testing.assert_allclose(obs[10:13], 0, atol=1e-9)
    assert np.flatnonzero(obs[13:]).tolist() == [5, 19]


def test_the_centre_of_mass_is_of_all_three_links_and_of_the_moment():
    env = at_rest(x=2, y=1, heading=math.pi / 2)
    env.data.qpos[3] = math.pi / 2
    env.data.qvel[:2] = 3, 0
    obs, *_ = env.step(REST)
    x, y, heading, front, back = obs[:5]
    joint = np.array([x, y]) + 0.5 * np.array([math.cos(heading), math.sin(heading)])
    mid, rear = (np.array([math.cos(a), math.sin(a)]) for a in (heading + front, heading + front + back))
    torso = 2 * joint - np.array([x, y])
    expected = (torso + (joint - 0.5 * mid) + (joint - mid - 0.5 * rear)) / 3
    np.testing.assert_allclose(obs[10:12], expected, atol=1e-12)


def test_objects_lie_on_distinct_even_places_away_from_the_swimmer():
    env = SwimmerGatherEnv()
    places = set()
    for seed in range(200):
        env.reset(seed=seed)
        assert len(env.apples) == len(env.bombs) == 8
        objects = {(x, y) for x, y in np.concatenate([env.apples, env.bombs])}
        assert len(objects) == 16
        assert all(math.hypot(x, y) >= 2 for x, y in objects)
        places |= objects
    even = range(-6, 5, 2)
    assert places == {(x, y) for x in even for y in even} - {(0, 0)}


def test_catching_removes_the_object_and_pays_once():
    env = at_rest([(0.9, 0), (0, 3)], [(0, -4)])
    assert env.step(REST)[1:3] == (1.0, False)
    assert env.apples.tolist() == [[0, 3]]
    assert env.step(REST)[1:3] == (0.0, False)


@pytest.mark.parametrize(
    ("apples", "bombs", "reward"),
    [([], [(0, 0.9)], -1), ([(0, 0.9)], [(-0.9, 0)], 0), ([(0, 0.9), (0.5, 0)], [], 2), ([(1.01, 0)], [], 0)],
)
def test_what_lies_within_1_is_caught_apples_for_1_and_bombs_for_minus_1(apples, bombs, reward):
    env = at_rest([*apples, (0, 5)], bombs)
    assert env.step(REST)[1] == reward


def test_the_episode_ends_only_when_all_objects_are_gone():
    env = at_rest([(0.5, 0), (0, 3)], [(0, -0.5)])
    assert not env.step(REST)[2]
    env.data.qpos[1] = 3
    obs, reward, terminated, truncated, _ = env.step(REST)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert not obs[13:].any()


@pytest.mark.parametrize(("solid", "passes"), [(True, False), (False, True)])
def test_walls_hold_the_swimmer_unless_they_are_only_drawn(solid, passes):
    env = at_rest([(0, 5)], x=4, solid_walls=solid)
    env.data.qvel[0] = 20
    tips = [env.step(REST)[0][0] + 1.6 for _ in range(40)]
    assert (max(tips) > 6.6) == passes


def test_actions_are_torques_of_at_most_50_and_clipped_to_it():
    env = SwimmerGatherEnv()
    assert env.action_space.low.tolist() == [-50, -50]
    assert env.action_space.high.tolist() == [50, 50]
    full = 50 * np.sign(ACTIONS)
    np.testing.assert_array_equal(played(env, 0, 1e12 * full), played(env, 0, full))


def test_an_episode_depends_on_its_seed_and_actions_and_not_on_what_was_played_before():
    fresh, used = SwimmerGatherEnv(), at_rest([(0.5, 0)], x=4)
    used.data.qvel[0] = 20
    for _ in range(20):
        used.step(ACTIONS[0])
    expected = played(fresh, 5, ACTIONS)
    np.testing.assert_array_equal(played(used, 5, ACTIONS), expected)
    assert (played(used, 6, ACTIONS) != expected).any()


def test_a_copy_plays_the_same_episodes():
    env = SwimmerGatherEnv(solid_walls=False)
    env.reset(seed=1)
    np.testing.assert_array_equal(played(copy.deepcopy(env), 5, ACTIONS), played(env, 5, ACTIONS))


@pytest.mark.filterwarnings("ignore:.*A Box observation space m:UserWarning")
@pytest.mark.filterwarnings("ignore:.*symmetric and normalized:UserWarning")
def test_gymnasium_finds_no_fault_with_it():
    check_env(SwimmerGatherEnv(), skip_render_check=True)


@pytest.fixture
def opengl(monkeypatch):
    """Chooses a backend that works on this machine, tried in a process of its own as a bad one may crash."""
    program = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>')).render()"
    for backend in [os.environ["MUJOCO_GL"]] if "MUJOCO_GL" in os.environ else ["egl", "osmesa", "glfw"]:
        environ = {**os.environ, "MUJOCO_GL": backend}
        tried = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, check=False)
        if tried.returncode == 0:
            monkeypatch.setenv("MUJOCO_GL", backend)
            return
    pytest.skip("MuJoCo finds no OpenGL backend here (EGL, OSMesa or GLFW)")


@pytest.mark.usefixtures("opengl")
def test_a_frame_shows_apples_green_and_bombs_red():
    env = at_rest([(4, 4)], [(-4, -4)], render_mode="rgb_array", width=190, height=190)
    env.step(REST)
    frame = env.render().astype(int)
    env.close()
    assert frame.shape == (190, 190, 3)
    red, green, _ = np.moveaxis(frame, -1, 0)
    for where, more, less in [(np.s_[:95, 95:], green, red), (np.s_[95:, :95], red, green)]:
        assert (more[where] > 2 * less[where] + 20).any()
        assert not (less[where] > 2 * more[where] + 20).any()
