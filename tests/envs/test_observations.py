"""What `predict` takes: observations as the environment returns them, one or in batches."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import paramnoise as pn
from paramnoise.envs.observations import flatten_batch
from paramnoise.loops.frames import GymFrames, GymStacks, Stacks
from paramnoise.validation import UsageError

NESTED = spaces.Dict(
    {
        "place": spaces.Box(-1.0, 1.0, (2, 2), np.float32),
        "door": spaces.Discrete(3, start=-1),
        "both": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.MultiBinary((2, 1)))),
    }
)
EACH = [spaces.Box(-1.0, 1.0, (3,)), spaces.Box(-1, 1, ()), *NESTED.values(), spaces.MultiDiscrete([[2], [4]]), NESTED]


@pytest.mark.parametrize("space", EACH, ids=str)
def test_one_observation_is_flattened_as_gymnasium_flattens_it(space):
    space.seed(0)
    for _ in range(5):
        obs = space.sample()
        np.testing.assert_array_equal(flatten_batch(space, obs), gym.spaces.flatten(space, obs))


@pytest.mark.parametrize("space", EACH, ids=str)
@pytest.mark.parametrize("leading", [(4,), (1,), (2, 3)])
def test_a_batch_of_any_leading_axes_is_flattened_row_by_row(space, leading):
    batched = space
    for size in reversed(leading):
        batched = batch_space(batched, size)
    batched.seed(0)
    obs = batched.sample()
    flat = flatten_batch(space, obs)
    assert flat.shape == (*leading, gym.spaces.flatdim(space))
    rows = obs
    for _ in leading:
        rows = [row for each in ([rows] if rows is obs else rows) for row in unbatched(each)]
    expected = [gym.spaces.flatten(space, row) for row in rows]
    np.testing.assert_array_equal(flat.reshape(len(expected), -1), expected)


def unbatched(batch):
    """The rows of a batch, part by part."""
    if isinstance(batch, dict):
        return [dict(zip(batch, row, strict=True)) for row in zip(*map(unbatched, batch.values()), strict=True)]
    return list(zip(*map(unbatched, batch), strict=True)) if isinstance(batch, tuple) else list(batch)


def test_a_list_of_dicts_is_a_batch():
    NESTED.seed(0)
    rows = [NESTED.sample() for _ in range(3)]
    np.testing.assert_array_equal(flatten_batch(NESTED, rows), [gym.spaces.flatten(NESTED, row) for row in rows])


@pytest.mark.parametrize(
    ("obs", "named"),
    [
        (3, "observation 3 of type int: expected the parts ['both', 'door', 'place']"),
        ({"place": np.zeros((2, 2))}, "the parts ['place']: expected ['both', 'door', 'place']"),
        (
            {"place": np.zeros((2, 3)), "door": 0, "both": (np.zeros(2), np.zeros((2, 1)))},
            "of shape (2, 3): expected (2, 2)",
        ),
        (
            {"place": np.zeros((5, 2, 2)), "door": 0, "both": (np.zeros(2), np.zeros((2, 1)))},
            "batches of [(), (), (5,)]",
        ),
        ({"place": np.zeros((2, 2)), "door": 2, "both": (np.zeros(2), np.zeros((2, 1)))}, "numbers must be below 3"),
    ],
)
def test_an_observation_that_does_not_fit_gets_one_line(obs, named):
    with pytest.raises(UsageError) as caught:
        flatten_batch(NESTED, obs)
    assert named in str(caught.value)


class Rooms(gym.Env):
    """Shows a dict, without end."""

    observation_space, action_space = NESTED, spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}


def test_predict_takes_dicts_one_or_in_batches():
    agent = pn.DQN(Rooms, hidden_sizes=(8,))
    batched = batch_space(NESTED, 6)
    batched.seed(1)
    batch = batched.sample()
    actions, _ = agent.predict(batch)
    assert actions.shape == (6,)
    singles = [agent.predict(row)[0] for row in unbatched(batch)]
    assert all(action.shape == () for action in singles)
    assert [int(action) for action in singles] == actions.tolist()
    flat = flatten_batch(NESTED, batch)
    np.testing.assert_array_equal(agent.predict(batch)[0], [np.argmax(agent._loop.policy()(row)) for row in flat])


class Shades(gym.Env):
    """Shows a colour that its seed and its actions decide, for three steps."""

    observation_space, action_space = spaces.Box(0, 255, (12, 12, 3), np.uint8), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.shade = 0, self.np_random.integers(0, 99, 3)
        return self._image(), {}

    def step(self, action):
        self.time, self.shade = self.time + 1, self.shade + 10 * (1 + action)
        return self._image(), 1.0, self.time == 3, False, {}

    def _image(self):
        return np.broadcast_to(self.shade, (12, 12, 3)).astype(np.uint8)


def test_a_frame_stack_shows_what_the_agent_sees_in_training():
    envs, stacks = GymFrames(Shades, 2, [0]), Stacks((1, 2, 4, 12, 12))
    shown, resets = envs.restart(), np.ones(2, bool)
    frames, singles = pn.FrameStack(num_envs=2), [pn.FrameStack(), pn.FrameStack()]
    for actions in np.random.default_rng(0).integers(2, size=(7, 2)):
        seen = np.asarray(stacks.see(shown[None], resets[None]))[0]
        np.testing.assert_array_equal(frames(shown, starts=resets), seen)
        np.testing.assert_array_equal([s(f, starts=r) for s, f, r in zip(singles, shown, resets, strict=True)], seen)
        after = envs.step(actions)
        shown, resets = after.obs, after.resets


def test_a_frame_stack_of_raw_images_is_what_predict_takes():
    agent = pn.DQN(Shades, convolutions=((4, 4, 4),), hidden_sizes=(8,), buffer_size=1_000)
    env, stacked, frames = Shades(), GymStacks(Shades()), pn.FrameStack()
    image, stack = env.reset(seed=3)[0], stacked.reset(seed=3)[0]
    with pytest.raises(UsageError, match=r"shape \(12, 12, 3\).*FrameStack"):
        agent.predict(image)
    np.testing.assert_array_equal(frames(image, starts=True), stack)
    np.testing.assert_array_equal(frames(env.step(1)[0]), stacked.step(1)[0])
    action, _ = agent.predict(frames(env.step(0)[0]))
    assert action in (0, 1)


@pytest.mark.parametrize("image", [np.zeros((12, 12, 4), np.uint8), np.zeros((12, 12), np.float32)])
def test_what_is_no_image_is_refused(image):
    with pytest.raises(UsageError, match="pixels must be uint8"):
        pn.FrameStack()(image)
