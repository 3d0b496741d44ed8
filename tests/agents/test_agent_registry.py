"""Agents by name: what registration says of an agent is what everything else goes by."""

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

import paramnoise as pn
from paramnoise import agents
from paramnoise.agents import AGENTS, Learner, Spaces, TRPOConfig, find_agent, register_agent
from paramnoise.networks.policies import GreedyPolicy
from paramnoise.validation import UsageError

# A plug-in that another test imports may add more.
OURS = ("dqn", "bootstrapped-dqn", "ddpg", "td3", "sac", "ppo", "pqn", "trpo", "es")
VECTOR, FRAMES = gym.spaces.Box(-1.0, 1.0, (3,), np.float32), gym.spaces.Box(0, 255, (4, 36, 36), np.uint8)
TWO, TORQUES = gym.spaces.Discrete(2), gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    size: int = 3


@pytest.fixture(autouse=True)
def registry():
    """Forgets what a test registers."""
    before = dict(AGENTS)
    yield
    AGENTS.clear()
    AGENTS.update(before)


def register_mine(name="mine", **needs):
    """Registers an agent for vectors and discrete actions that does nothing."""
    fields = {"config": Config, "experience": "rollout", "policy": GreedyPolicy, "actions": ("discrete",)}

    @register_agent(name, **{**fields, "default_exploration": "none", **needs})
    def make(config, spaces):
        return Learner(config, spaces, init=dict, update=lambda state, batch: (state, {}), policy=lambda state: state)

    return make


def test_every_agent_of_ours_is_registered_with_its_config_and_experience():
    known = {name: (entry.config, entry.experience) for name, entry in AGENTS.items()}
    assert {name: known[name] for name in OURS} == {
        "dqn": (agents.DQNConfig, "replay"),
        "bootstrapped-dqn": (agents.BootstrappedDQNConfig, "replay"),
        "ddpg": (agents.DDPGConfig, "replay"),
        "td3": (agents.TD3Config, "replay"),
        "sac": (agents.SACConfig, "replay"),
        "ppo": (agents.PPOConfig, "rollout"),
        "pqn": (agents.PQNConfig, "rollout"),
        "trpo": (agents.TRPOConfig, "rollout"),
        "es": (agents.ESConfig, "returns"),
    }
    for entry in map(find_agent, OURS):
        assert entry.default_exploration in entry.explorations
        assert entry.config() == entry.config()  # a default for every field


def test_a_user_s_own_is_found_by_name_with_what_it_needs():
    register_mine(title="Mine", observations=("vectors", "frames"))
    entry = find_agent("mine")
    assert (entry.title, entry.config, entry.observations) == ("Mine", Config, ("vectors", "frames"))
    assert entry.explorations == [name for name in find_agent("dqn").explorations if name != "noisy"]
    with pytest.raises(
        UsageError, match="'noisy' does not fit mine, whose settings lack noisy_sigma: choose from none"
    ):
        entry.check_exploration(pn.NoisyNet())
    assert entry.exploration_type("parameter") is pn.ParameterNoise


def test_registration_tells_the_learner_its_experience():
    make = register_mine()
    learner = find_agent("mine").build(Config(size=7), "Task-v0", VECTOR, TWO)
    assert learner.experience == make(Config(), learner.spaces).experience == "rollout"
    assert (learner.config.size, learner.spaces) == (7, Spaces((3,), 2, True))


def test_a_name_that_another_agent_has_is_refused_and_a_definition_anew_is_not():
    ours = find_agent("dqn")
    with pytest.raises(UsageError, match=r"agent 'dqn' is registered already, by paramnoise\.agents\.dqn\.make"):
        register_mine("dqn")
    assert find_agent("dqn") is ours
    register_mine()
    register_mine(title="again")
    assert find_agent("mine").title == "again"


@pytest.mark.parametrize(("name", "hint"), [("ddgp", "did you mean ddpg"), ("x", "choose from bootstrapped-dqn")])
def test_an_unknown_name_is_answered_with_the_nearest_and_all(name, hint):
    with pytest.raises(UsageError, match=f"unknown agent '{name}': {hint}.*es, .*trpo"):
        find_agent(name)


@pytest.mark.parametrize(
    ("agent", "exploration", "message"),
    [
        ("dqn", pn.Gaussian(), "'gaussian' does not fit dqn, whose actions are discrete: choose from none, epsilon"),
        ("ddpg", pn.EpsilonGreedy(), "whose actions are continuous: choose from none, gaussian, ou, gsde, parameter"),
        ("trpo", pn.ParameterNoise(), "policy is stochastic: its 'parameter' is OnPolicyParameterNoise, not Param"),
        ("trpo", pn.StateDraws(), "trpo, whose settings lack std_from_features: choose from none, parameter"),
        ("es", pn.ParameterNoise(), "'parameter' does not fit es, whose own perturbations explore: choose from none"),
    ],
)
def test_an_exploration_that_does_not_fit_is_answered_with_those_that_do(agent, exploration, message):
    with pytest.raises(UsageError, match=message):
        find_agent(agent).check_exploration(exploration)


@pytest.mark.parametrize("agent", OURS)
def test_the_explorations_that_an_agent_lists_fit_it(agent):
    entry = find_agent(agent)
    for kind in entry.explorations:
        entry.check_exploration(entry.exploration_type(kind)())


@pytest.mark.parametrize(
    ("agent", "observations", "actions", "message"),
    [
        ("ddpg", VECTOR, TWO, "ddpg needs continuous actions, but the action space of Task-v0 is Discrete"),
        ("dqn", VECTOR, TORQUES, "dqn needs discrete actions, but the action space of Task-v0 is Box"),
        ("es", VECTOR, gym.spaces.MultiBinary(2), "es needs discrete or continuous actions"),
        ("trpo", VECTOR, gym.spaces.Text(2), "trpo needs discrete or multi-discrete or continuous actions"),
        ("trpo", VECTOR, gym.spaces.MultiDiscrete([2, 3], start=[0, 1]), "trpo needs actions from 0"),
        ("dqn", VECTOR, gym.spaces.Discrete(3, start=1), "dqn needs actions from 0"),
        ("trpo", FRAMES, TWO, "Task-v0 shows pixels, which trpo does not take: only dqn and es do"),
    ],
)
def test_an_environment_that_does_not_fit_is_refused_with_the_reason(agent, observations, actions, message):
    entry = find_agent(agent)
    with pytest.raises(UsageError, match=message):
        entry.build(entry.config(), "Task-v0", observations, actions)


@pytest.mark.parametrize(
    ("space", "spaces", "shape"),
    [
        (TWO, Spaces((3,), 2, True), ()),
        (gym.spaces.Box(-1.0, 1.0, (2, 3)), Spaces((3,), 6, False), (6,)),
        (gym.spaces.MultiDiscrete([[2, 3], [4, 5]]), Spaces((3,), 14, True, (2, 3, 4, 5)), (4,)),
        (gym.spaces.MultiBinary((3, 1)), Spaces((3,), 6, True, (2, 2, 2)), (3,)),
    ],
)
def test_a_space_of_actions_becomes_the_sizes_that_an_agent_needs(space, spaces, shape):
    learner = find_agent("trpo").build(TRPOConfig(), "Task-v0", VECTOR, space)
    assert learner.spaces == spaces
    assert learner.spaces.action_shape == shape
