"""Environments by name: what a user registers works by its id, by its bare name and with its preset."""

import gymnasium as gym
import numpy as np
import pytest

from paramnoise.envs import AgentPreset, Preset, env_factory, env_id, env_source, preset, register_env, register_family
from paramnoise.envs.base import ENVS, FAMILIES, ReturnBounds, family_of, return_bounds
from paramnoise.loops.vector import vector_source
from paramnoise.runs.config import make_config


class Task(gym.Env):
    """Shows as many zeros as it is asked for."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, size: int = 2):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (size,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        return np.zeros(self.observation_space.shape, np.float32), 0.0, False, False, {}


@pytest.fixture(autouse=True)
def registries():
    """Forgets what a test registers."""
    before = [(registry, dict(registry)) for registry in (ENVS, FAMILIES, gym.registry)]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


def register_task(env="mine/Task-v3", **settings):
    register_env(env, **{"entry_point": Task, **settings})


def dqn_preset(**settings):
    return Preset(agents={"dqn": AgentPreset(settings=settings)}, run={"steps": 123})


def test_a_registered_environment_is_made_by_its_id_and_by_its_bare_name():
    register_task(max_episode_steps=7)
    for name in ("mine/Task-v3", "Task-v3", "Task"):
        assert env_id(name) == "mine/Task-v3"
        made = env_factory(name, {"size": 5})()
        assert made.observation_space.shape == (5,)
        assert made.spec.max_episode_steps == 7


def test_an_environment_that_gymnasium_knows_needs_no_entry_point():
    register_env("MountainCar-v0", preset=dqn_preset(gamma=0.5))
    assert env_id("MountainCar") == "MountainCar-v0"
    assert make_config("dqn", "MountainCar").agent.gamma == 0.5


def test_a_preset_applies_to_a_run_of_its_agent():
    register_task(preset=dqn_preset(gamma=0.5))
    config = make_config("dqn", "Task")
    assert (config.env, config.agent.gamma, config.steps) == ("mine/Task-v3", 0.5, 123)
    assert make_config("dqn", "Task", agent={"gamma": 0.6}, steps=4).agent.gamma == 0.6
    other = make_config("bootstrapped-dqn", "Task")
    assert (other.agent.gamma, other.steps) == (0.99, 123)


def test_a_preset_can_be_a_rule_of_the_environment_s_keywords():
    register_task(preset=lambda kwargs: dqn_preset(batch_size=10 * kwargs.get("size", 2)))
    assert make_config("dqn", "Task").agent.batch_size == 20
    assert make_config("dqn", "Task", {"size": 5}).agent.batch_size == 50


def test_settings_that_go_with_an_exploration_come_with_it_alone():
    own = AgentPreset(
        settings={"gamma": 0.5},
        settings_with={"parameter": {"policy_head": True, "gamma": 0.7}},
        explorations={"parameter": {"delta": 0.3}},
    )
    register_task(preset=Preset(agents={"dqn": own}))
    noisy, greedy = (make_config("dqn", "Task", exploration=kind) for kind in ("parameter", "epsilon-greedy"))
    assert (noisy.agent.policy_head, noisy.agent.gamma, noisy.exploration.delta) == (True, 0.7, 0.3)
    assert (greedy.agent.policy_head, greedy.agent.gamma) == (False, 0.5)


def test_another_version_has_the_preset_unless_it_has_its_own_and_another_namespace_has_none():
    register_task(preset=dqn_preset(gamma=0.5))
    register_task("mine/Task-v4", preset=dqn_preset(gamma=0.6))
    assert preset("mine/Task-v5", {}).for_agent("dqn").settings == {"gamma": 0.5}
    assert preset("mine/Task-v4", {}).for_agent("dqn").settings == {"gamma": 0.6}
    assert preset("theirs/Task-v3", {}) == Preset()


def test_help_and_group_are_kept_for_the_list_of_environments():
    register_task(help="two zeros", group="Mine")
    assert (ENVS["mine/Task-v3"].help, ENVS["mine/Task-v3"].group) == ("two zeros", "Mine")


def test_the_bounds_of_a_return_are_those_of_the_id_and_of_no_other_version():
    register_task(bounds=ReturnBounds(-1, 5, "made up"))
    assert return_bounds("mine/Task-v3") == (-1, 5, "made up")
    assert return_bounds("mine/Task-v4") is return_bounds("CartPole-v1") is None


def test_a_second_registration_of_an_id_takes_the_place_of_the_first():
    register_task(max_episode_steps=7)
    register_task(max_episode_steps=8, help="longer")
    assert env_factory("Task")().spec.max_episode_steps == 8
    assert ENVS["mine/Task-v3"].help == "longer"


def test_an_id_that_gymnasium_knows_is_not_overridden_in_silence():
    gym.register("theirs/Task-v0", entry_point=Task)
    with pytest.warns(UserWarning, match="Overriding environment theirs/Task-v0"):
        register_task("theirs/Task-v0")


def test_a_family_makes_the_environments_whose_names_it_knows_and_has_their_preset():
    asked = []

    def source(env, kwargs):
        asked.append((env, dict(kwargs)))
        return vector_source(Task)

    register_family(
        "toys",
        matches=lambda env: env.startswith("toy-"),
        source=source,
        preset=lambda kwargs: dqn_preset(batch_size=kwargs["size"]),
        group="Toys",
    )
    assert family_of("toy-1").name == "toys"
    assert family_of("other") is None
    assert env_id("toy-1") == "toy-1"
    assert env_source("toy-1", {"size": 3}).observation_space.shape == (2,)
    assert asked == [("toy-1", {"size": 3})]
    assert make_config("dqn", "toy-1", {"size": 64}).agent.batch_size == 64


def test_atari_games_are_a_family():
    assert family_of("ALE/Pong-v5").name == "atari"
    assert family_of("CartPole-v1") is None
