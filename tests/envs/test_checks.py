"""What is checked of an environment when an agent is made, and the one line that says what is wrong."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import paramnoise as pn
from paramnoise.envs import env_source
from paramnoise.envs.checks import misfit
from paramnoise.validation import UsageError

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
NESTED = spaces.Dict({"place": BOX, "both": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2)))})


class Shows(gym.Env):
    """Returns what it was told to from `reset`."""

    action_space = spaces.Discrete(2)

    def __init__(self, returned, observation_space=BOX):
        self.returned, self.observation_space = returned, observation_space
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned


def complaint(env, make=env_source) -> str:
    with pytest.raises(UsageError) as caught:
        make(env)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (np.zeros(3, np.float32), "must return a pair, observation and info, not an array of shape (3,)"),
        (None, "not None"),
        ((np.zeros(3), {}, {}), "must return a pair"),
        ((np.zeros(3), 0.0), "must return a pair"),
        ((np.zeros(4, np.float32), {}), "shape (4,) and dtype float32, but its space is Box(-1.0, 1.0, (3,), float32)"),
        ((np.zeros(3, complex), {}), "dtype complex128"),
        (([[0.0], [0.0, 1.0]], {}), "[[0.0], [0.0, 1.0]] of type list"),
        ((None, {}), "None"),
        (RuntimeError("no\nlicence"), "reset(seed=0) of Shows failed: RuntimeError: no licence"),
    ],
)
def test_a_reset_that_does_not_keep_to_the_space_is_refused_with_what_it_returned(returned, named):
    assert named in complaint(Shows(returned))


def test_the_check_comes_with_the_agent_and_costs_one_reset_of_the_environment_that_is_made_anyway():
    made = []
    assert "shape (4,)" in complaint(lambda: made.append(Shows((np.zeros(4), {}))) or made[-1], make=pn.DQN)
    assert [env.resets for env in made] == [1]


def test_a_space_that_is_missing_is_named():
    class NoActions(Shows):
        action_space = None

    assert "the action_space of NoActions must be a Gymnasium space, not None" in complaint(
        NoActions((np.zeros(3), {}))
    )


@pytest.mark.parametrize(
    ("space", "obs", "problem"),
    [
        (BOX, np.zeros(3), ""),  # float64, which is cast
        (BOX, [0, 0, 1], ""),
        (spaces.Box(0, 9, (2,), np.int64), np.zeros(2), "dtype float64"),
        (spaces.Box(0, 255, (2, 2), np.uint8), np.zeros((2, 2), np.float32), "dtype float32"),
        (spaces.Discrete(3), 2, ""),
        (spaces.Discrete(3), 3, "the observation 3 of type int"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), ""),
        (NESTED, {"place": np.zeros(3), "both": (1, np.ones(2, np.int8))}, ""),
        (NESTED, {"place": np.zeros(3)}, "with the parts 'place'"),
        (NESTED, np.zeros(3), "an array of shape (3,)"),
        (NESTED, {"place": np.zeros(2), "both": (1, np.ones(2, np.int8))}, "an observation['place'] of shape (2,)"),
        (NESTED, {"place": np.zeros(3), "both": (2, np.ones(2, np.int8))}, "the observation['both'][0] 2 of type int"),
    ],
)
def test_an_observation_fits_its_space_part_by_part(space, obs, problem):
    found = misfit(space, obs)
    assert problem in found
    assert bool(problem) == bool(found)


@pytest.mark.parametrize("env", [None, 3, ["CartPole-v1"], {"id": "CartPole-v1"}])
def test_what_is_no_environment_gets_one_line(env):
    assert "an id, an environment or a function that makes one" in complaint(env, make=pn.DQN)


def test_a_function_that_makes_something_else_gets_one_line():
    assert "must make a Gymnasium environment, not 'CartPole-v1' of type str" in complaint(lambda: "CartPole-v1")


def test_an_environment_that_cannot_be_copied_gets_the_remedy():
    env = Shows((np.zeros(3), {}))
    env.generator = (number for number in range(3))
    assert "pass a function that makes it" in complaint(env)


@pytest.mark.parametrize(
    ("wrapper", "remedy"),
    [
        (gym.wrappers.NormalizeObservation, "ddpg, td3, sac and es normalise observations inside the agent"),
        (gym.wrappers.NormalizeReward, "TransformReward"),
    ],
)
def test_a_wrapper_with_statistics_of_its_own_gets_a_warning_with_the_remedy(wrapper, remedy):
    with pytest.warns(UserWarning, match=f"{wrapper.__name__} keeps statistics of its own.*not saved.*{remedy}"):
        env_source(lambda: gym.wrappers.TimeLimit(wrapper(gym.make("CartPole-v1")), 10))


def test_fixed_statistics_get_no_warning():
    def frozen():
        env = gym.wrappers.NormalizeObservation(gym.make("CartPole-v1"))
        env.update_running_mean = False
        return env

    with warnings.catch_warnings(action="error"):
        env_source(frozen)
