"""Networks and optimizers of the user's, and settings that follow a schedule: as good as ours, saved and loaded."""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_api import QUIET, TINY, assert_same_agent, tiny

import paramnoise as pn
from paramnoise.experience.segments import beside
from paramnoise.networks import MLP, own
from paramnoise.networks.own import OwnNetwork, has_layer_norm, make_network
from paramnoise.noise import displace, selected


def like_ours(observation_shape, outputs, key):
    """What DQN makes itself of the same key."""
    return MLP((*observation_shape, *TINY["hidden_sizes"], outputs), key=jax.random.split(key)[0])


def plain(observation_shape, outputs, key):
    """A module with leaves that are no arrays."""
    return eqx.nn.MLP(observation_shape[0], outputs, 8, 2, key=key)


class Critic(eqx.Module):
    """Of an observation and an action."""

    mlp: eqx.nn.MLP

    def __init__(self, observation_shape, action_size, key):
        self.mlp = eqx.nn.MLP(observation_shape[0] + action_size, 1, 8, 1, key=key)

    def __call__(self, obs, action):
        return self.mlp(jnp.concatenate([obs, action]))


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(own, "NETWORKS", {"like-ours": like_ours})
    monkeypatch.setattr(own, "OPTIMIZERS", {"adam": ADAM})


ADAM = optax.adam(3e-4)
PARTS = {"network": like_ours, "optimizer": ADAM, "max_grad_norm": 1e9, "learning_rate": "linear:1:1:5"}


@pytest.fixture(scope="module")
def learned():
    return tiny(**PARTS).learn(40, **QUIET)


def test_a_network_and_an_optimizer_like_ours_learn_what_ours_do(learned):
    ours = tiny().learn(40, **QUIET)
    for one, other in zip(learned.parameters.values(), ours.parameters.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    assert learned.history[-1]["q_loss"] == pytest.approx(ours.history[-1]["q_loss"], rel=1e-4)


def test_parts_that_are_given_again_learn_on(learned, tmp_path):
    learned.save(tmp_path)
    with pytest.raises(pn.UsageError, match="made with network=like_ours, which is not registered: pass network="):
        pn.load(tmp_path)
    assert_same_agent(pn.load(tmp_path, network=like_ours, optimizer=ADAM), learned)
    assert_same_agent(copy.deepcopy(learned), learned)


def test_registered_parts_are_found_by_name(learned, tmp_path, registered):
    agent = tiny(**{**PARTS, "network": "like-ours", "optimizer": "adam"}).learn(40, **QUIET)
    assert_same_agent(agent, learned)
    learned.save(tmp_path)  # what was given as an object is saved by its name
    assert_same_agent(pn.load(tmp_path), learned)
    with pytest.raises(pn.UsageError, match="critic_network= was given, and the agent was made without one"):
        pn.load(tmp_path, critic_network=Critic)


@pytest.mark.filterwarnings("ignore:parameter noise on a network without layer norm")
def test_ddpg_takes_an_actor_and_a_critic_and_its_delta_follows_a_schedule():
    agent = pn.DDPG(
        "Pendulum-v1",
        network=plain,
        critic_network=Critic,
        max_grad_norm=1.0,
        exploration=pn.ParameterNoise(delta=pn.schedules.linear(0.5, 0.1, 80)),
        batch_size=8,
        buffer_size=150,
        learning_starts=0,
        train_every=40,
        train_steps=3,
    )
    before = agent.parameters
    agent.learn(80, eval_every=40, **QUIET)
    assert [round(row["delta"], 4) for row in agent.history] == [0.3, 0.1]
    assert any(np.any(before[name] != array) for name, array in agent.parameters.items())
    assert np.abs(agent.predict(np.ones(3, np.float32))[0]) <= 2.0


def test_a_network_of_one_s_own_has_arrays_alone_as_leaves_and_its_linear_layers_are_perturbed():
    network = make_network(plain, (3,), 2, jax.random.PRNGKey(0))
    assert all(eqx.is_inexact_array(leaf) for leaf in jax.tree.leaves(network))
    assert all(jax.tree.leaves(selected(network)))
    obs = jnp.arange(3.0)
    np.testing.assert_allclose(jax.jit(lambda n, o: n(o))(network, obs), plain((3,), 2, jax.random.PRNGKey(0))(obs))


def test_offsets_beside_a_network_of_one_s_own_are_its_parameters_plus_the_offset():
    network = make_network(plain, (3,), 2, jax.random.PRNGKey(0))
    flat, unflatten = jax.flatten_util.ravel_pytree(network)
    offset, obs = 0.1 * jnp.sin(jnp.arange(flat.size)), jnp.arange(3.0)
    np.testing.assert_allclose(beside(network, unflatten(offset))(obs), displace(network, offset)(obs), rtol=1e-5)


def test_trpo_takes_a_network():
    agent = pn.TRPO("CartPole-v1", network=plain, exploration="none", num_envs=2, batch_size=40, fisher_fraction=1.0)
    before = agent.parameters
    agent.learn(40, **QUIET)
    assert agent.history[-1]["accepted"] == 1
    assert any(np.any(before[name] != array) for name, array in agent.parameters.items())


def test_a_network_without_layer_norm_under_parameter_noise_is_warned_of():
    with pytest.warns(UserWarning, match="parameter noise on a network without layer norm"):
        tiny(network=plain)
    assert has_layer_norm(OwnNetwork(like_ours((4,), 2, jax.random.PRNGKey(0))))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"network": 3}, "network must be a function of"),
        ({"network": "mine"}, "unknown network 'mine'"),
        ({"network": lambda shape, outputs, key: 3}, "returned int"),
        ({"network": lambda shape, outputs, key: eqx.nn.MLP(4, 7, 8, 1, key=key)}, r"to \(7,\), and not to \(2,\)"),
        ({"network": like_ours, "policy_head": True}, "policy_head must be off"),
        ({"optimizer": 3}, "optimizer must be a transformation of optax"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must be above 0"),
        ({"learning_rate": "linear:1"}, "is no schedule"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(settings, words):
    with pytest.raises(pn.UsageError, match=words):
        tiny(**settings)
