"""What environments return is held to their spaces at every step, in every loop; what they raise is one line."""

import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from test_api import QUIET, tiny

import paramnoise as pn
from paramnoise.envs.checked import CheckedEnv
from paramnoise.envs.vectors import UserVectors
from paramnoise.validation import RunError

FIRST = (np.zeros(3, np.float32), {})
GOOD = (np.zeros(3, np.float32), 1.0, False, False, {})
PARTS = spaces.Dict({"place": spaces.Box(-1, 1, (3,), np.float32), "gear": spaces.Discrete(2)})


class Returns(gym.Env):
    """Returns what it was told to."""

    action_space = spaces.Discrete(2)
    observation_space: spaces.Space = spaces.Box(-1.0, 1.0, (3,), np.float32)

    def __init__(self, step=GOOD, reset=FIRST, space=None):
        self.returned, self.first = step, reset
        self.observation_space = space or self.observation_space

    def reset(self, *, seed=None, options=None):
        return self.first

    def step(self, action):
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned


def replaced(place: int, value) -> tuple:
    return (*GOOD[:place], value, *GOOD[place + 1 :])


def complaint(env: gym.Env) -> str:
    checked = CheckedEnv(env)
    with pytest.raises(RunError) as caught:
        checked.reset(seed=0) and checked.step(0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (replaced(0, np.zeros(1, np.float32)), "step of Returns returned an observation of shape (1,)"),
        (replaced(0, np.float32(0)), "an observation of shape ()"),
        (replaced(0, np.zeros(3, complex)), "dtype complex128"),
        (replaced(0, None), "an observation of None"),
        (replaced(1, np.zeros(1)), "the reward an array of shape (1,) and dtype float64, and not a number"),
        (replaced(1, None), "the reward None"),
        (replaced(1, "1"), "the reward '1' of type str"),
        (replaced(2, 0), "terminated as 0 of type int, and not True or False"),
        (replaced(3, None), "truncated as None"),
        (replaced(3, np.zeros(1, bool)), "truncated as an array of shape (1,)"),
        (GOOD[:4], "and not observation, reward, terminated, truncated and info"),
        (None, "returned None"),
        (KeyError("joint"), "step of Returns raised KeyError: 'joint'"),
    ],
)
def test_a_step_that_does_not_keep_to_the_spaces_is_named(step, named):
    assert named in complaint(Returns(step))


@pytest.mark.parametrize(
    ("reset", "named"),
    [
        (np.zeros(3, np.float32), "reset of Returns returned an array of shape (3,) and dtype float32, and not a pair"),
        ((np.zeros(1), {}), "an observation of shape (1,)"),
        ((np.full(3, np.nan), {}), "reset of Returns returned an observation that is not finite"),
    ],
)
def test_a_reset_is_held_to_the_same(reset, named):
    assert named in complaint(Returns(reset=reset))


@pytest.mark.parametrize(
    "step",
    [
        GOOD,
        replaced(0, np.zeros(3)),  # float64, which is cast
        replaced(0, [0, 0, 0]),
        replaced(1, np.float32(1)),
        replaced(1, np.array(1.0)),
        replaced(1, 1),
        replaced(2, np.bool_(True)),
        replaced(3, np.array(True)),
    ],
)
def test_what_fits_is_passed_on_as_it_is(step):
    env = CheckedEnv(Returns(step))
    env.reset(seed=0)
    assert all(got is given for got, given in zip(env.step(0), step, strict=True))


def test_parts_are_held_to_theirs_at_each_step():
    obs = {"place": np.zeros(3, np.float32), "gear": 1}
    env = Returns(space=PARTS, step=(obs, *GOOD[1:]), reset=(obs, {}))
    checked = CheckedEnv(env)
    checked.reset(seed=0)
    checked.step(0)
    env.returned = ({**obs, "gear": 2}, *GOOD[1:])
    with pytest.raises(RunError, match=r"the observation\['gear'\] 2"):
        checked.step(0)


class Turns(gym.Env):
    """Shows four numbers, as CartPole does, and after a while one, which NumPy would broadcast."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Discrete(2)
    time = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1 if self.time == 5 else 4, np.float32), 1.0, False, self.time % 3 == 0, {}


@pytest.mark.parametrize(
    "make", [lambda: tiny(Turns), lambda: pn.ES(Turns, hidden_sizes=(4,), pairs=2, table_size=500)]
)
def test_every_loop_checks(make):
    with pytest.raises(RunError, match=r"an observation of shape \(1,\)"):
        make().learn(40, eval_every=100, **QUIET)


class Vector(VectorEnv):
    """A vector of two that returns what it was told to."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    num_envs = 2
    single_observation_space, single_action_space = Returns.observation_space, Returns.action_space
    observation_space, action_space = spaces.Box(-1, 1, (2, 3), np.float32), spaces.MultiDiscrete([2, 2])
    nothing = (np.zeros((2, 3), np.float32), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), {})

    def __init__(self, place: int, value):
        self.returned = (*self.nothing[:place], value, *self.nothing[place + 1 :])

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 3), np.float32), {}

    def step(self, actions):
        return self.returned


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (0, np.zeros((1, 3), np.float32), r"an observation of shape \(1, 3\)"),
        (1, 1.0, r"reward as 1.0 of type float, and not as numbers of shape \(2,\)"),
        (2, np.zeros(2), r"terminated as an array .* and not as booleans"),
        (3, np.zeros(1, bool), "truncated as"),
    ],
)
def test_a_users_vector_is_held_to_its_spaces(place, value, named):
    envs = UserVectors([Vector(place, value)], 2, seed=0)
    envs.restart()
    with pytest.raises(RunError, match=named):
        envs.step(np.zeros(2, np.int32))


def test_the_check_of_a_step_takes_microseconds():
    env = Returns()
    checked = CheckedEnv(env)
    checked.reset(seed=0)

    def seconds(step) -> float:
        begin = time.perf_counter()
        for _ in range(2_000):
            step(0)
        return (time.perf_counter() - begin) / 2_000

    checks = [seconds(checked.step) - seconds(env.step) for _ in range(5)]
    assert min(checks) < 4e-6  # 2 % of a step of DDPG on HalfCheetah, 190 microseconds
