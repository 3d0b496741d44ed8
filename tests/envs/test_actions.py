"""Actions in the units and the shape of the user's own space."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import paramnoise as pn
from paramnoise.envs import env_factory, environment_actions
from paramnoise.validation import UsageError

GRID = spaces.Box(np.array([[-1, 0, 0], [-4, 5, -1]], np.float32), np.array([[1, 2, 8], [0, 5, 1]], np.float32))
"""2 x 3 continuous actions, of which one has no choice."""


class Takes(gym.Env):
    """Notes the actions that it is given."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)

    def __init__(self, action_space):
        self.action_space, self.given = action_space, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        self.given.append(action)
        self.time += 1
        return np.zeros(3, np.float32), 1.0, False, self.time == 5, {}


def test_a_vector_reaches_the_environment_in_its_shape_and_its_bounds():
    env = env_factory(Takes(GRID))()
    assert env.action_space == spaces.Box(-1.0, 1.0, (6,), np.float32)
    env.reset()
    for unit in (-1.0, 0.0, 1.0, 0.5):
        env.step(np.full(6, unit, np.float32))
    low, middle, high, more = env.unwrapped.given
    np.testing.assert_array_equal(low, GRID.low)
    np.testing.assert_array_equal(high, GRID.high)
    np.testing.assert_array_equal(middle, [[0, 1, 4], [-2, 5, 0]])
    np.testing.assert_array_equal(more, [[0.5, 1.5, 6], [-1, 5, 0.5]])
    assert all(action.dtype == np.float32 and action in GRID for action in env.unwrapped.given)


def test_rounding_leads_no_action_out_of_its_space():
    bounds = np.random.default_rng(0).integers(-30, 31, (2, 300)) / 10
    odd = spaces.Box(bounds.min(0).astype(np.float32), bounds.max(0).astype(np.float32))
    env = env_factory(Takes(odd))()
    env.reset()
    for unit in (-1.0, 1.0):
        actions = np.full((1, 300), unit, np.float32)
        env.step(actions[0])
        assert env.unwrapped.given[-1] in odd
        assert environment_actions(odd, actions)[0] in odd
        np.testing.assert_allclose(env.unwrapped.given[-1], odd.low if unit < 0 else odd.high, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("space", "unit"),
    [(spaces.Box(0.1, 5, (2,), np.float16), np.float32([1, -1])), (spaces.Discrete(3, dtype=np.uint8), np.int32(2))],
)
def test_an_action_is_of_a_space_s_own_small_dtype(space, unit):
    env = env_factory(Takes(space))()
    env.reset()
    env.step(unit)
    assert env.unwrapped.given[-1] in space
    assert environment_actions(space, unit[None])[0] in space


def test_bounds_whose_distance_is_beyond_the_largest_float_are_bounds():
    vast = spaces.Box(-1.7e308, 1.7e308, (2,), np.float64)
    np.testing.assert_array_equal(environment_actions(vast, np.float32([[1, -0.5]])), [[1.7e308, -0.85e308]])


def test_a_batch_of_actions_is_what_the_environment_gets_one_by_one():
    env, actions = env_factory(Takes(GRID))(), np.random.default_rng(0).uniform(-1, 1, (4, 6)).astype(np.float32)
    env.reset()
    for action in actions:
        env.step(action)
    np.testing.assert_array_equal(environment_actions(GRID, actions), env.unwrapped.given)


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (spaces.Box(-np.inf, 1.0, (2,)), "(Box(-inf, 1.0, (2,), float32)) have no bounds"),
        (spaces.Box(0, 5, (2,), np.int64), "(Box(0, 5, (2,), int64)) are whole numbers"),
    ],
)
def test_a_box_that_cannot_be_rescaled_is_refused(space, named):
    with pytest.raises(UsageError) as caught:
        env_factory(Takes(space))()
    assert named in str(caught.value)


@pytest.mark.parametrize("space", [GRID, spaces.Box(-2.0, 2.0, (1,)), spaces.Dict({"a": spaces.Discrete(2)})])
def test_a_message_about_actions_shows_the_user_s_own_space(space):
    with pytest.raises(UsageError) as caught:
        pn.DQN(Takes(space))
    assert f"the action space of Takes is {' '.join(str(space).split())}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_continuous_agent_acts_in_the_shape_of_the_space():
    made = []
    agent = pn.DDPG(lambda: made.append(Takes(GRID)) or made[-1], hidden_sizes=(4, 4), exploration="gaussian")
    agent.learn(4, eval_every=4, eval_episodes=1, progress=False)
    assert [action.shape for env in made for action in env.given] == [(2, 3)] * (4 + 5)
    for obs in (np.zeros(3), np.zeros((7, 3))):
        action, _ = agent.predict(obs)
        assert action.shape == (*obs.shape[:-1], 2, 3)
        assert action.dtype == np.float32
        assert (GRID.low <= action).all()
        assert (action <= GRID.high).all()
