"""Explorations by name: registered where they are defined, found by the type of policy that they act on."""

import dataclasses

import pytest

import paramnoise as pn
from paramnoise.explorations import base
from paramnoise.explorations.base import (
    explorations_for,
    find_exploration,
    has_twin,
    is_fixed_by_episode,
    register_exploration,
)
from paramnoise.networks.policies import (
    DeterministicPolicy,
    GreedyPolicy,
    SquashedGaussianPolicy,
    StochasticPolicy,
    VotingPolicy,
)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """A registry of its own for each test, with all that the package registers."""
    ours = {name: [cls for cls in known if _is_ours(cls)] for name, known in base._REGISTERED.items()}
    monkeypatch.setattr(base, "_REGISTERED", {name: classes for name, classes in ours.items() if classes})


def _is_ours(cls):
    return cls.__module__.startswith("paramnoise.")


def exploration(name, *policies):
    """A new class, registered by that name for those types of policy."""
    return register_exploration(name)(type("Mine", (pn.Exploration,), {"policies": policies}))


@pytest.mark.parametrize(
    ("name", "policy", "found"),
    [
        ("none", GreedyPolicy, pn.NoNoise),
        ("none", StochasticPolicy, pn.NoNoise),
        ("epsilon-greedy", VotingPolicy, pn.EpsilonGreedy),
        ("gaussian", DeterministicPolicy, pn.Gaussian),
        ("ou", DeterministicPolicy, pn.OrnsteinUhlenbeck),
        ("bootstrap", VotingPolicy, pn.BootstrapHead),
        ("noisy", GreedyPolicy, pn.NoisyNet),
        ("parameter", DeterministicPolicy, pn.ParameterNoise),
        ("gsde", DeterministicPolicy, pn.StateNoise),
        ("gsde", SquashedGaussianPolicy, pn.StateDraws),
        ("gsde", StochasticPolicy, pn.StateDraws),
        ("pink", DeterministicPolicy, pn.ColouredNoise),
        ("pink", SquashedGaussianPolicy, pn.ColouredDraws),
        ("none", SquashedGaussianPolicy, pn.NoNoise),
        ("parameter", SquashedGaussianPolicy, pn.ParameterNoise),
        ("parameter", StochasticPolicy, pn.OnPolicyParameterNoise),
    ],
)
def test_a_name_means_the_exploration_that_acts_on_the_type_of_policy(name, policy, found):
    assert find_exploration(name, policy) is found
    assert found.kind == name
    assert name in explorations_for(policy)


def test_names_that_fit_a_type_of_policy_are_listed():
    assert explorations_for(GreedyPolicy) == ["none", "epsilon-greedy", "noisy", "parameter"]
    assert explorations_for(StochasticPolicy) == ["none", "gsde", "parameter"]


def test_a_user_s_own_is_found_beside_ours():
    mine = exploration("mine", GreedyPolicy)
    assert mine.kind == "mine"
    assert find_exploration("mine", GreedyPolicy) is mine
    assert explorations_for(GreedyPolicy)[-1] == "mine"
    assert "mine" not in explorations_for(VotingPolicy)


def test_a_name_for_a_type_of_policy_that_has_it_already_is_refused():
    with pytest.raises(pn.UsageError, match=r"'parameter' is .* already for VotingPolicy, D.*, by .*ParameterNoise"):
        exploration("parameter", VotingPolicy, DeterministicPolicy)
    assert find_exploration("parameter", DeterministicPolicy) is pn.ParameterNoise


def test_a_name_is_shared_by_explorations_for_different_types_of_policy():
    mine = exploration("gaussian", StochasticPolicy)
    assert find_exploration("gaussian", StochasticPolicy) is mine
    assert find_exploration("gaussian", DeterministicPolicy) is pn.Gaussian


def test_a_class_that_is_defined_anew_takes_the_place_of_the_one_before():
    first, second = exploration("mine", GreedyPolicy), exploration("mine", GreedyPolicy, VotingPolicy)
    assert find_exploration("mine", GreedyPolicy) is second is not first


def test_a_class_of_the_same_name_in_another_module_is_another():
    exploration("mine", GreedyPolicy)
    other = type("Mine", (pn.Exploration,), {"policies": (GreedyPolicy,), "__module__": "elsewhere"})
    with pytest.raises(pn.UsageError, match=r"registered already for GreedyPolicy, by .*\.Mine: choose another name"):
        register_exploration("mine")(other)


@pytest.mark.parametrize(
    ("name", "hint"), [("paramter", "did you mean parameter"), ("gausian", "did you mean gaussian"), ("x", "choose")]
)
def test_an_unknown_name_is_answered_with_the_nearest_and_all(name, hint):
    with pytest.raises(pn.UsageError, match=f"unknown exploration '{name}': {hint}.*none, .*bootstrap"):
        find_exploration(name, GreedyPolicy)


def test_a_name_that_fits_no_such_policy_is_still_found_so_that_the_agent_can_say_what_does():
    assert find_exploration("gaussian", GreedyPolicy) is pn.Gaussian


def test_a_subclass_that_is_not_registered_does_not_pass_for_its_parent():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Louder(pn.ParameterNoise):
        sigma: float = 9.0

    assert Louder.kind == "Louder"
    assert pn.ParameterNoise.kind == "parameter"


@pytest.mark.parametrize("overridden", [(), ("act",), ("act_on_host",), ("act", "act_on_host"), ("begin_episode",)])
def test_the_numpy_twin_is_used_unless_one_of_the_pair_is_overridden_alone(overridden):
    methods = {name: lambda self, *arguments: arguments for name in overridden}
    own = type("Own", (pn.Gaussian,), methods)
    assert has_twin(own()) == (len({"act", "act_on_host"} & set(overridden)) != 1)


def test_settings_can_rule_the_numpy_twin_out():
    assert has_twin(pn.ParameterNoise())
    assert not has_twin(pn.ParameterNoise(epsilon=0.1))


@pytest.mark.parametrize(
    ("own", "is_fixed"),
    [({}, True), ({"act": pn.Exploration.act}, False), ({"act": pn.Exploration.act, "fixes_episodes": True}, True)],
)
def test_what_is_said_of_a_fixed_episode_is_not_said_of_another_act(own, is_fixed):
    assert is_fixed_by_episode(type("Own", (pn.ParameterNoise,), own)()) == is_fixed
