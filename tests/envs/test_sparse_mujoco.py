"""SparseHalfCheetah's rules, and the sizes of the paper's dense tasks."""

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from paramnoise.envs.sparse_mujoco import TARGET_DISTANCE, SparseHalfCheetahEnv

ACTIONS = np.random.default_rng(0).uniform(-1, 1, (100, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def _log_elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its warnings to a file in the working directory."""
    monkeypatch.chdir(tmp_path)


def played(env: gym.Env, seed: int, actions: np.ndarray) -> np.ndarray:
    """The observations of an episode, each followed by its reward."""
    rows = [np.append(env.reset(seed=seed)[0], 0.0)]
    for action in actions:
        obs, reward, *_ = env.step(action)
        rows.append(np.append(obs, reward))
    return np.stack(rows)


def moved_to(env: SparseHalfCheetahEnv, x: float, seed: int = 0) -> float:
    """The reward of a step in which nothing moves the cheetah, at rest `x` from its start."""
    env.reset(seed=seed)
    start = env.data.qpos[0]
    env.set_state(np.append(start + x, env.data.qpos[1:]), np.zeros(9))
    _, reward, *_ = env.step(np.zeros(6))
    assert env.data.qpos[0] == pytest.approx(start + x, abs=0.02)
    return reward


def test_it_has_the_sizes_of_the_paper_and_float_observations():
    env = SparseHalfCheetahEnv()
    assert env.observation_space.shape == (17,)
    assert env.action_space.shape == (6,)
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space
    assert obs.dtype == np.float64


@pytest.mark.parametrize(
    ("x", "expected"),
    [(0, 0), (TARGET_DISTANCE - 0.05, 0), (TARGET_DISTANCE + 0.05, 1), (50, 1), (-TARGET_DISTANCE - 0.05, 0)],
)
def test_the_reward_is_1_only_more_than_5_units_ahead_of_the_start(x, expected):
    assert moved_to(SparseHalfCheetahEnv(), x) == expected


def test_the_distance_is_from_where_the_episode_started():
    env = SparseHalfCheetahEnv()
    starts = [env.reset(seed=seed)[1]["x_position"] for seed in range(20)]
    for seed in (int(np.argmin(starts)), int(np.argmax(starts))):
        assert abs(starts[seed]) > 0.05
        assert moved_to(env, TARGET_DISTANCE - 0.05, seed) == 0
        assert moved_to(env, TARGET_DISTANCE + 0.05, seed) == 1


def test_the_reward_is_lost_on_the_way_back():
    env = SparseHalfCheetahEnv()
    assert moved_to(env, TARGET_DISTANCE + 1) == 1
    env.data.qpos[0] -= 2
    assert env.step(np.zeros(6))[1] == 0


def test_actions_cost_nothing_and_nothing_ends_the_episode():
    env = SparseHalfCheetahEnv()
    env.reset(seed=0)
    for _ in range(600):
        _, reward, terminated, truncated, _ = env.step(env.action_space.high)
        assert reward == float(env.data.qpos[0] - env._start > TARGET_DISTANCE)
        assert not terminated
        assert not truncated


def test_a_step_is_one_of_the_simulation_as_in_rllab():
    assert SparseHalfCheetahEnv().dt == pytest.approx(0.01)


@pytest.mark.parametrize("frame_skip", [1, 5])
def test_it_moves_as_half_cheetah_does(frame_skip):
    ours, theirs = (
        SparseHalfCheetahEnv(frame_skip=frame_skip),
        gym.make("HalfCheetah-v5", frame_skip=frame_skip),
    )
    np.testing.assert_array_equal(played(ours, 4, ACTIONS)[:, :-1], played(theirs, 4, ACTIONS)[:, :-1])


def test_actions_beyond_the_bounds_are_clipped():
    env = SparseHalfCheetahEnv()
    within = played(env, 0, np.sign(ACTIONS))
    np.testing.assert_array_equal(played(env, 0, 1e12 * np.sign(ACTIONS)), within)


def test_an_episode_depends_on_its_seed_and_actions_and_not_on_what_was_played_before():
    fresh, used = SparseHalfCheetahEnv(), SparseHalfCheetahEnv()
    played(used, 9, 1 - ACTIONS)
    expected = played(fresh, 5, ACTIONS)
    np.testing.assert_array_equal(played(used, 5, ACTIONS), expected)
    assert (played(used, 6, ACTIONS) != expected).any()


def test_a_copy_plays_the_same_episodes():
    env = SparseHalfCheetahEnv(frame_skip=3, width=64)
    env.reset(seed=1)
    copied = copy.deepcopy(env)
    assert (copied.frame_skip, copied.width) == (3, 64)
    np.testing.assert_array_equal(played(copied, 5, ACTIONS), played(env, 5, ACTIONS))


@pytest.mark.filterwarnings("ignore:.*A Box observation space m:UserWarning")
def test_gymnasium_finds_no_fault_with_it():
    check_env(SparseHalfCheetahEnv(), skip_render_check=True)


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize(
    ("env_id", "observations", "actions"),
    [
        ("HalfCheetah-v4", 17, 6),
        ("Hopper-v4", 11, 3),
        ("InvertedDoublePendulum-v4", 11, 1),
        ("InvertedPendulum-v4", 4, 1),
        ("Reacher-v4", 11, 2),
        ("Swimmer-v4", 8, 2),
        ("Walker2d-v4", 17, 6),
    ],
)
def test_the_dense_tasks_have_the_sizes_of_the_paper(env_id, observations, actions):
    env = gym.make(env_id)
    assert env.observation_space.shape == (observations,)
    assert env.action_space.shape == (actions,)
    assert env.reset(seed=0)[0].shape == (observations,)
