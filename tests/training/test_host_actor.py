"""Acting in NumPy is acting by the policy itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.networks import normaliser as normalisation
from paramnoise.agents import DDPGConfig, ddpg
from paramnoise.noise import perturb_each
from paramnoise.networks.policies import GreedyPolicy, noise_free_actions
from paramnoise.loops.fast.host_actor import BLOCK, HostActor

OBS = np.random.default_rng(0).normal(1.0, 3.0, (2, 4)).astype(np.float32)
SEED = (3, 1)


def policy(layer_norm=True, seen=50):
    learner = ddpg.make(DDPGConfig(hidden_sizes=(16, 8), layer_norm=layer_norm), 4, 2)
    state = learner.init(jax.random.key(0))
    loud = lambda actor: actor.mlp.layers[-1].weight  # noqa: E731  # the first actions of an actor are near 0
    actor = eqx.tree_at(loud, state.networks.actor, replace_fn=lambda weight: 100 * weight)
    normaliser = normalisation.init(4)
    if seen:
        normaliser = normalisation.observe(normaliser, OBS[:1] + np.arange(seen)[:, None])
    return learner.policy(state._replace(networks=state.networks._replace(actor=actor), normaliser=normaliser))


def host(exploration, acting, explored=(), num_envs=2):
    actor = HostActor(exploration, SEED, num_envs)
    actor.load(*jax.tree.map(np.asarray, (acting, explored)))
    return actor


@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("seen", [0, 50])
def test_without_noise_the_actions_are_those_of_the_policy(layer_norm, seen):
    acting = policy(layer_norm, seen)
    actions = host(pn.NoNoise(), acting).act(OBS, 0)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, noise_free_actions(acting, OBS), rtol=1e-4, atol=1e-5)
    assert np.abs(actions).max() > 0.01


@pytest.mark.parametrize("num_envs", [1, 2])
def test_with_parameter_noise_each_environment_acts_by_its_own_policy(num_envs):
    acting, obs = policy(), np.repeat(OBS[:1], num_envs, axis=0)
    policies = perturb_each(jax.random.key(1), acting, 0.3, num_envs)
    exploration = pn.ParameterNoise()
    explored = exploration.init(acting, jnp.asarray(obs))._replace(policies=policies)
    actions = host(exploration, acting, explored, num_envs).act(obs, 0)
    expected = jax.vmap(lambda perturbed, o: perturbed(o))(policies, obs)
    np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)
    assert len(np.unique(actions[:, 0])) == num_envs


def test_gaussian_noise_has_its_sigma_is_clipped_and_is_new_at_each_step():
    acting = policy()
    actor = host(pn.Gaussian(sigma=0.1), acting)
    clean = np.asarray(noise_free_actions(acting, OBS))
    noise = np.array([actor.act(OBS, 2 * time) - clean for time in range(BLOCK + 500)])
    assert noise.std() == pytest.approx(0.1, rel=4 / np.sqrt(2 * noise.size))
    assert abs(noise.mean()) < 4 * 0.1 / np.sqrt(noise.size)
    assert len(np.unique(noise.round(6))) > 0.9 * noise.size  # other draws for every step, environment and dimension
    wild = np.array([host(pn.Gaussian(sigma=9.0), acting).act(OBS, 2 * time) for time in range(50)])
    assert (np.abs(wild) <= 1.0).all()
    assert {-1.0, 1.0} <= set(wild.ravel())


def test_noise_depends_on_the_seed_and_the_step_alone():
    acting, exploration = policy(), pn.Gaussian(sigma=0.1)
    late = host(exploration, acting).act(OBS, 2 * (BLOCK + 7))
    walked = host(exploration, acting)
    for time in range(BLOCK + 8):
        last = walked.act(OBS, 2 * time)
    np.testing.assert_array_equal(late, last)
    other = HostActor(exploration, (4, 1), 2)
    other.load(jax.tree.map(np.asarray, acting), ())
    assert not np.allclose(other.act(OBS, 2 * (BLOCK + 7)), late)


def test_what_needs_more_than_the_policy_and_the_step_stays_compiled():
    acting = policy()
    for fits in (pn.NoNoise(), pn.Gaussian(), pn.ParameterNoise()):
        assert HostActor.fits(fits, acting)
    for other in (pn.OrnsteinUhlenbeck(), pn.ParameterNoise(epsilon=0.1), pn.ParameterNoise(max_age=5)):
        assert not HostActor.fits(other, acting)
    assert not HostActor.fits(pn.NoNoise(), GreedyPolicy(jnp.tanh))
