"""The face of pixel environments over Gymnasium's, on one whose every frame is known."""

import itertools
from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import pytest

from paramnoise.envs.factory import pixel_env_factory
from paramnoise.experience.frames import STACK
from paramnoise.loops.frames import GymFrames, grey
from paramnoise.validation import UsageError

ACTIONS = np.random.default_rng(0).integers(3, size=(11, 4))


class Counting(gym.Env):
    """Shows 10 times its start, drawn from its seed, plus the actions so far; ends after 2 or 3 steps."""

    action_space = gym.spaces.Discrete(3)

    def __init__(self, length: int = 3, terminates: bool = True, shape: tuple[int, ...] = (2, 3)):
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.length, self.terminates = length, terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.shown = 0, 10 * int(self.np_random.integers(1, 20))
        return self._image(), {}

    def step(self, action):
        self.time += 1
        self.shown += int(action)
        ended = self.time >= self.length
        return self._image(), float(action), ended and self.terminates, ended and not self.terminates, {}

    def _image(self):
        return np.full(self.observation_space.shape, self.shown, np.uint8)


def two_kinds(seeds: Sequence[int] = (0,), num_envs: int = 2) -> GymFrames:
    """Environments that terminate after 2 steps and are cut after 3, in turn."""
    kinds = itertools.cycle([{"length": 2, "terminates": True}, {"length": 3, "terminates": False}])
    return GymFrames(lambda: Counting(**next(kinds)), num_envs, seeds)


def values(frames: np.ndarray) -> list[int]:
    """The one number that each frame is made of."""
    assert frames.dtype == np.uint8
    assert (frames == frames[..., :1, :1]).all()
    return frames[..., 0, 0].tolist()


def test_steps_show_rewards_ends_and_the_frames_on_both_sides_of_an_end():
    envs = two_kinds()
    one, other = values(envs.restart())
    steps = [envs.step(np.array(actions)) for actions in [(1, 2), (2, 0), (0, 1)]]
    assert values(steps[0].obs) == [one + 1, other + 2]
    assert [step.reward.tolist() for step in steps] == [[1, 2], [2, 0], [0, 1]]
    assert [step.terminated.tolist() for step in steps] == [[False, False], [True, False], [False, False]]
    assert [step.truncated.tolist() for step in steps] == [[False, False], [False, False], [False, True]]
    for step in steps:
        assert step.starts.tolist() == step.resets.tolist() == (step.terminated | step.truncated).tolist()
    again = values(steps[1].obs)[0]
    assert again % 10 == 0  # a start, and the second environment is where its actions led
    assert values(steps[1].obs)[1] == other + 2
    assert steps[0].next_obs is steps[1].next_obs is None
    assert values(steps[2].next_obs) == [again, other + 3]
    assert values(steps[2].obs)[1] % 10 == 0


def test_an_end_that_is_also_the_time_limit_is_an_end():
    class Both(Counting):
        def step(self, action):
            frame, reward, ended, *_ = super().step(action)
            return frame, reward, ended, ended, {}

    envs = GymFrames(lambda: Both(1), 1, [0])
    envs.restart()
    step = envs.step(np.array([0]))
    assert (step.terminated.item(), step.truncated.item(), step.next_obs) == (True, False, None)


def test_nothing_moves_before_what_was_sent_is_received():
    envs, twin = two_kinds(), two_kinds()
    first = envs.restart()
    twin.restart()
    envs.send(np.array([1, 1]))
    assert values(first) == [value - 1 for value in values(envs.recv().obs)]
    assert values(twin.step(np.array([1, 1])).obs) == [value + 1 for value in values(first)]


def test_environments_of_several_seeds_are_those_of_each_alone():
    together, alone = two_kinds([3, 8]), [two_kinds([3]), two_kinds([8])]
    assert together.num_envs == 4
    assert values(together.restart()) == [value for envs in alone for value in values(envs.restart())]
    for actions in ACTIONS:
        step = together.step(actions)
        parts = [envs.step(half) for envs, half in zip(alone, np.split(actions, 2), strict=True)]
        for name in ("obs", "reward", "terminated", "truncated", "starts", "resets"):
            expected = np.concatenate([getattr(part, name) for part in parts])
            np.testing.assert_array_equal(getattr(step, name), expected, err_msg=name)


@pytest.mark.parametrize("stopped_at", [0, 1, 5, 8])
def test_a_restored_vector_shows_its_newest_frames_and_goes_on_as_its_twin(stopped_at):
    twin, restored = two_kinds([3, 8]), two_kinds([3, 8])
    restored.restart()
    restored.step(ACTIONS[-1])  # of no matter
    frames = twin.restart()
    for actions in ACTIONS[:stopped_at]:
        frames = twin.step(actions).obs
    np.testing.assert_array_equal(restored.restore(twin.snapshot()), frames)
    for actions in ACTIONS[stopped_at:]:
        for field, same in zip(twin.step(actions), restored.step(actions), strict=True):
            np.testing.assert_array_equal(field, same)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 3, 3)])
def test_images_of_every_usual_shape_become_frames(shape):
    envs = GymFrames(lambda: Counting(shape=shape), 1, [0])
    assert envs.observation_space.shape == (STACK, 2, 3)
    assert envs.action_space.n == 3
    assert envs.restart().shape == (1, 2, 3)


def test_colours_are_weighed_by_how_bright_they_look():
    image = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [200, 100, 50]]], np.uint8)
    assert grey(image).tolist() == [[76, 150, 29, 124]]


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (2, 3, 3, 3)])
def test_what_is_no_image_is_refused(shape):
    with pytest.raises(UsageError, match="pixels must be uint8"):
        GymFrames(lambda: Counting(shape=shape), 1, [0])


@pytest.mark.parametrize("space", [gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3, start=1)])
def test_actions_that_are_not_numbered_from_0_are_refused(space):
    class Other(Counting):
        action_space = space

    with pytest.raises(UsageError, match="discrete actions from 0"):
        GymFrames(Other, 1, [0])


@pytest.mark.parametrize("seeds", [[-1], [], [0, -2]])
def test_seeds_that_are_not_numbers_from_0_are_refused(seeds):
    with pytest.raises(UsageError, match="seeds must be"):
        two_kinds(seeds)


def test_a_pixel_environment_is_made_by_the_factory_as_it_is():
    assert pixel_env_factory(Counting)().observation_space.shape == (2, 3)
    given = Counting(5)
    assert pixel_env_factory(given)() is not given
    assert pixel_env_factory("CartPole-v1", {"max_episode_steps": 7})().spec.max_episode_steps == 7
    with pytest.raises(UsageError, match="function"):
        pixel_env_factory(Counting, {"length": 2})
