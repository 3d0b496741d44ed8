"""Environments that show stacks of frames, one by one."""

import pickle

import gymnasium as gym
import numpy as np
import pytest

from paramnoise.envs import env_source
from paramnoise.envs.atari_frames import AtariFrames
from paramnoise.validation import UsageError


class Counter(gym.Env):
    """Shows its time as one colour, three steps an episode; a seed brightens it."""

    observation_space = gym.spaces.Box(0, 255, (2, 3, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._shade = 10 * (seed or 0)
        return self._show(), {}

    def step(self, action):
        self._shade += 1
        return self._show(), 2.0 * action, self._shade % 10 == 3, False, {}

    def _show(self):
        return np.full((2, 3, 3), self._shade, np.uint8)


def shades(stack):
    assert stack.shape[1:] == (2, 3)
    return [int(frame[0, 0]) for frame in stack if (frame == frame[0, 0]).all()]


def test_a_stack_holds_the_newest_frames_of_the_episode_and_zeros_before():
    env = pickle.loads(pickle.dumps(env_source(Counter).make_env))()
    assert env.observation_space == gym.spaces.Box(0, 255, (4, 2, 3), np.uint8)
    assert shades(env.reset(seed=2)[0]) == [0, 0, 0, 20]
    env.step(0)
    stack, reward, terminated, truncated, _ = env.step(1)
    assert (shades(stack), reward, terminated, truncated) == ([0, 20, 21, 22], 2.0, False, False)
    assert env.step(0)[2]
    assert shades(env.reset(seed=3)[0]) == [0, 0, 0, 30]


def test_a_picture_is_the_newest_frame_enlarged():
    env = env_source(Counter).make_env()
    env.reset(seed=2)
    np.testing.assert_array_equal(env.render(), np.full((8, 12, 3), 20))


@pytest.fixture(scope="module")
def freeway():
    env = pickle.loads(pickle.dumps(env_source("Freeway", {"max_frames": 40}).make_env))()
    yield env
    env.close()


def test_a_game_is_that_of_its_seed_whatever_was_played_before(freeway):
    freeway.reset(seed=5)
    freeway.step(1)
    vector = AtariFrames("Freeway", 1, [9], max_frames=40)
    frames = [np.zeros((84, 84), np.uint8)] * 3 + [vector.restart()[0]]
    np.testing.assert_array_equal(freeway.reset(seed=9)[0], frames)
    for time in range(1, 11):
        stack, reward, terminated, truncated, _ = freeway.step(1)
        step = vector.step(np.array([1]))
        frames.append(step.obs[0] if time < 10 else step.next_obs[0])
        np.testing.assert_array_equal(stack, frames[-4:])
        assert (reward, terminated, truncated) == (step.reward[0], False, time == 10)
    vector.close()


def test_without_a_seed_the_next_game_is_drawn_from_the_last(freeway):
    def first_frames():
        freeway.reset(seed=1)
        return [freeway.reset()[0] for _ in range(2)]

    one, other = first_frames()
    assert (one != other).any()
    np.testing.assert_array_equal(first_frames(), [one, other])


def test_a_lost_life_does_not_end_a_game():
    env = env_source("Breakout", {"noop_max": 0, "fire_reset": True}).make_env()
    env.reset(seed=0)
    ends = []
    while True:
        ends.append(env.step(1)[2])  # FIRE, and never a move
        if ends[-1]:
            break
    env.close()
    assert len(ends) > 100  # a ball is lost within some 30 steps, and there are five


def test_a_setting_that_no_game_has_is_refused():
    with pytest.raises(UsageError, match="cannot make Freeway with"):
        env_source("Freeway", {"difficulty": 1})
