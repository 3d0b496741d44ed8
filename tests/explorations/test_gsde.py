"""gSDE: noise and variance by hand, weights that last, and the density that SAC learns with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.explorations.gsde import StateNoiseState, noise_at
from paramnoise.networks import MLP, gsde
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.gsde import StateGaussianPolicy, StateNoiseActor
from paramnoise.networks.heads import Actor, NormalisedActor, quiet_mlp
from paramnoise.networks.own import OwnActor, OwnNetwork
from paramnoise.networks.policies import DeterministicPolicy, SquashedGaussianPolicy

KEY = jax.random.key(0)
FEATURES = np.array([2.0, 0.0, -1.0])
STD = np.array([[0.5, 1.0], [3.0, 3.0], [0.2, 2.0]])
OBS = jnp.array([[1.0, -2.0], [0.5, 0.5]])
begin = eqx.filter_jit(lambda exploration, *inputs: exploration.begin_episode(*inputs))
act = eqx.filter_jit(lambda exploration, *inputs: exploration.act(*inputs))


def deterministic():
    return DeterministicPolicy(NormalisedActor(normalisers.init(2), Actor(2, (8, 4), 2, key=KEY)))


def squashed():
    actor = StateNoiseActor(quiet_mlp((2, 8, 4, 2), key=KEY, layer_norm=True))
    return SquashedGaussianPolicy(NormalisedActor(normalisers.init(2), actor))


def gaussian():
    log_std = jnp.log(jnp.arange(1.0, 9.0).reshape(4, 2))
    return StateGaussianPolicy(MLP((2, 8, 4, 2), key=KEY, layer_norm=False, activation=jnp.tanh), log_std)


CASES = [(pn.StateNoise(sigma=0.3), deterministic()), (pn.StateDraws(), squashed()), (pn.StateDraws(), gaussian())]


def begun(exploration, policy):
    return begin(exploration, KEY, exploration.init(policy, OBS), policy, jnp.ones(2, bool), jnp.int32(0))


def test_the_variance_is_what_is_computed_by_hand():
    # 4 * 0.25 + 0 + 1 * 0.04 and 4 * 1 + 0 + 1 * 4
    np.testing.assert_allclose(gsde.variance(FEATURES, np.log(STD)), [1.04, 8.0], rtol=1e-6)


def test_noise_has_that_variance_over_the_draws_of_its_weights():
    state = StateNoiseState(jax.random.normal(KEY, (20_000, 3, 2)), jnp.zeros(20_000))
    noise = np.asarray(noise_at(state, jnp.tile(FEATURES, (20_000, 1)), STD))
    np.testing.assert_allclose(noise.var(axis=0), [1.04, 8.0], rtol=0.05)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03


def test_an_actor_s_log_std_is_that_of_its_features_and_weights():
    actor = eqx.tree_at(lambda a: a.log_std, squashed().network.actor, jnp.log(jnp.arange(1.0, 9.0).reshape(4, 2)))
    features = np.asarray(actor.features(OBS[0]), np.float64)
    expected = np.log(np.sqrt(features**2 @ (np.arange(1.0, 9.0).reshape(4, 2) ** 2) + 1e-6))
    mean, log_std = SquashedGaussianPolicy(actor)(OBS[0])
    np.testing.assert_allclose(log_std, expected, rtol=1e-4)
    np.testing.assert_allclose(mean, actor.mlp(OBS[0]), rtol=1e-6)


def test_a_gaussian_policy_s_log_std_and_density_are_those_of_its_features_and_weights():
    policy = gaussian()
    features = np.asarray(policy.network.features(OBS[0]), np.float64)
    std = np.sqrt(features**2 @ (np.arange(1.0, 9.0).reshape(4, 2) ** 2) + 1e-6)
    mean, log_std = values = policy(OBS[0])
    np.testing.assert_allclose(log_std, np.log(std), rtol=1e-4)
    np.testing.assert_allclose(mean, policy.network(OBS[0]), rtol=1e-6)
    action = np.array([0.3, -0.7])
    expected = np.sum(-0.5 * ((action - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi))
    np.testing.assert_allclose(policy.log_probability(values, action), expected, rtol=1e-4)


def test_a_gaussian_policy_s_features_learn_from_the_means_alone():
    policy = gaussian()
    both = jax.jit(jax.jacrev(lambda p: jnp.sum(p(OBS[0]), axis=1)))(policy)
    of_mean, of_std = (jax.tree.map(lambda leaf, row=row: leaf[row], both) for row in (0, 1))
    assert np.abs(of_std.log_std).min() > 0
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(of_std.network))
    assert not of_mean.log_std.any()
    assert np.abs(of_mean.network.layers[0].weight).max() > 0


@pytest.mark.parametrize(("exploration", "policy"), CASES, ids=["TD3", "SAC", "PPO"])
def test_noise_is_a_function_of_the_state_until_the_next_episode(exploration, policy):
    state = begun(exploration, policy)
    after, first = act(exploration, jax.random.key(1), state, policy, OBS, jnp.int32(0))
    _, again = act(exploration, jax.random.key(2), after, policy, OBS, jnp.int32(50))
    np.testing.assert_array_equal(first, again)
    features, outputs = (np.stack([f(obs) for obs in OBS]) for f in (policy.network.features, policy))
    if isinstance(policy, DeterministicPolicy):
        expected = np.clip(outputs + 0.3 / np.sqrt(4) * np.einsum("nf,nfd->nd", features, state.draws), -1, 1)
    else:
        log_std = policy.log_std if isinstance(policy, StateGaussianPolicy) else policy.network.actor.log_std
        expected = outputs[:, 0] + np.einsum("nf,nfd->nd", features, np.exp(log_std) * state.draws)
        expected = np.tanh(expected) if isinstance(policy, SquashedGaussianPolicy) else expected
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-6)
    later = begin(exploration, jax.random.key(3), state, policy, jnp.array([False, True]), jnp.int32(60))
    np.testing.assert_array_equal(later.draws[0], state.draws[0])
    assert (later.draws[1] != state.draws[1]).all()
    assert later.drawn_at.tolist() == [0, 60]


def test_draws_are_standard_normal_and_the_weights_follow_what_is_learned():
    exploration, policy = CASES[2]
    obs = jnp.ones((500, 2))
    state = begin(exploration, KEY, exploration.init(policy, obs), policy, jnp.ones(500, bool), jnp.int32(0))
    assert state.draws.std() == pytest.approx(1.0, rel=0.05)
    wider = eqx.tree_at(lambda p: p.log_std, policy, policy.log_std + np.log(2.0))
    noise = [
        np.asarray(act(exploration, KEY, state, each, obs, jnp.int32(0))[1]) - np.asarray(policy(obs[0])[0])
        for each in (policy, wider)
    ]
    np.testing.assert_allclose(noise[1], 2 * noise[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(noise[0].std(axis=0), np.exp(policy(obs[0])[1]), rtol=0.15)


def test_weights_are_drawn_anew_after_so_many_steps_of_an_environment():
    exploration, policy = pn.StateNoise(resample_every=3), CASES[0][1]
    state = begun(exploration, policy)._replace(drawn_at=jnp.array([4, 6]))  # 3 and 2 steps of each ago
    after, _ = act(exploration, jax.random.key(1), state, policy, OBS, jnp.int32(10))
    assert (after.draws[0] != state.draws[0]).all()
    np.testing.assert_array_equal(after.draws[1], state.draws[1])
    assert after.drawn_at.tolist() == [10, 6]


def test_what_has_no_such_features_is_refused_with_the_remedy():
    own = DeterministicPolicy(NormalisedActor(normalisers.init(2), OwnActor(OwnNetwork(eqx.nn.Linear(2, 2, key=KEY)))))
    with pytest.raises(pn.UsageError, match="leave network= out"):
        pn.StateNoise().init(own, OBS)
    with pytest.raises(pn.UsageError, match="std_from_features=True"):
        pn.SAC("Pendulum-v1", exploration=pn.StateDraws(), std_from_features=False)
    with pytest.raises(pn.UsageError, match="std_from_features"):
        pn.SAC("Pendulum-v1", network=lambda shape, outputs, key: None, std_from_features=True)


@pytest.mark.parametrize("settings", [{"sigma": 0.0}, {"resample_every": 0}])
def test_a_setting_out_of_range_is_named(settings):
    with pytest.raises(pn.UsageError, match=next(iter(settings))):
        pn.StateNoise(**settings)
