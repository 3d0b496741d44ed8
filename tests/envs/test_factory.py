"""Environments from an id, an instance or a function, and what is refused."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from paramnoise.envs import env_factory, env_name, env_source
from paramnoise.validation import UsageError


class Pixels(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)


class Grid(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2, 3), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.arange(6, dtype=np.float32).reshape(2, 3) / 6, {}


def flattened_lake() -> gym.Env:
    return gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1"))


def complaint(env, env_kwargs=None) -> str:
    with pytest.raises(UsageError) as caught:
        env_factory(env, env_kwargs)()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_id_makes_a_new_environment_at_each_call():
    make = env_factory("CartPole-v1")
    one, other = make(), make()
    assert one.spec.id == "CartPole-v1"
    assert one.unwrapped is not other.unwrapped


def test_keywords_reach_an_environment_that_is_made_by_id():
    assert env_factory("paramnoise/Chain-v0", {"length": 7})().observation_space.shape == (7,)


def test_an_instance_is_copied_and_left_alone():
    given = gym.make("CartPole-v1")
    given.reset(seed=0)
    before = given.unwrapped.state
    copies = [env_factory(given)() for _ in range(2)]
    for copy in copies:
        copy.reset(seed=1)
        copy.step(0)
    assert len({id(env.unwrapped) for env in (given, *copies)}) == 3
    np.testing.assert_array_equal(given.unwrapped.state, before)


def test_a_function_is_called_each_time():
    made = []

    def make() -> gym.Env:
        made.append(gym.make("CartPole-v1"))
        return made[-1]

    build = env_factory(make)
    assert [build().env, build().env] == made


def test_a_vector_observation_is_left_as_it_is():
    env = env_factory("CartPole-v1")()
    assert env.observation_space == gym.make("CartPole-v1").observation_space
    assert not isinstance(env, gym.wrappers.FlattenObservation)


def test_a_discrete_observation_becomes_one_hot():
    env = env_factory("FrozenLake-v1", {"is_slippery": False})()
    assert env.observation_space.shape == (16,)
    env.reset(seed=0)
    obs, *_ = env.step(2)  # from the corner to the right
    assert obs.tolist() == np.eye(16)[1].tolist()


def test_a_matrix_of_features_becomes_a_vector():
    env = env_factory(Grid)()
    assert env.observation_space.shape == (6,)
    np.testing.assert_array_equal(env.reset()[0], np.arange(6, dtype=np.float32) / 6)


@pytest.mark.parametrize(
    "env_id", ["NoSuchTask-v0", "CartPole-v99", "nowhere/Task-v0", "no_such_module:Task-v0", "a b"]
)
def test_an_unknown_id_is_named(env_id):
    assert repr(env_id) in complaint(env_id)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "named"),
    [
        ("CartPole-v1", {"bogus": 1}, "bogus"),
        ("paramnoise/Chain-v0", {"length": 2}, "at least 3, not 2"),
        ("FrozenLake-v1", {"map_name": "bogus"}, "bogus"),
    ],
)
def test_keywords_that_an_environment_refuses_are_named(env_id, kwargs, named):
    assert named in complaint(env_id, kwargs)


def test_keywords_go_with_an_id_alone():
    assert "function" in complaint(Grid, {"size": 3})


def test_pixels_are_refused():
    assert "pixels" in complaint(Pixels)


def showing(space: gym.Space) -> gym.Env:
    env = Grid()
    env.observation_space = space
    return env


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (
            spaces.Dict({"speed": spaces.Discrete(2), "camera": Pixels.observation_space}),
            "['camera']: Box(0, 255, (8, 8, 3)",
        ),
        (spaces.Tuple((spaces.Dict({"eye": Pixels.observation_space}),)), "[0]['eye']: Box"),
        (spaces.Sequence(spaces.Discrete(3)), "Sequence(Discrete(3), stack=False), which is no vector of fixed length"),
        (spaces.Dict({"words": spaces.Text(5)}), "['words']: Text(1, 5"),
        (spaces.Graph(spaces.Discrete(2), None), "Graph("),
        (spaces.OneOf((spaces.Discrete(2), spaces.MultiBinary(3))), "OneOf("),
    ],
)
def test_what_cannot_become_a_vector_is_refused_with_its_place_and_its_space(space, named):
    assert named in complaint(showing(space))


def test_an_environment_is_named_by_its_id_its_class_or_its_function():
    assert env_name("CartPole-v1") == "CartPole-v1"
    assert env_name(gym.make("CartPole-v1")) == "CartPole-v1"
    assert env_name(Grid()) == "Grid"
    assert env_name(flattened_lake) == "flattened_lake"


@pytest.mark.parametrize(
    ("env", "space"),
    [
        ("FrozenLake-v1", gym.spaces.Discrete(16)),
        ("CartPole-v1", gym.make("CartPole-v1").observation_space),
        (Grid, Grid.observation_space),
        (flattened_lake, flattened_lake().observation_space),
    ],
)
def test_the_space_before_flattening_is_the_one_that_the_user_s_environment_has(env, space):
    assert env_source(env).own_observation_space == space
