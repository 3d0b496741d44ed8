"""gSDE: noise and variance by hand, weights that last, and the density that SAC learns with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.networks import gsde
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.gsde import StateNoiseActor
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


CASES = [(pn.StateNoise(sigma=0.3), deterministic()), (pn.StateDraws(), squashed())]


def begun(exploration, policy):
    return begin(exploration, KEY, exploration.init(policy, OBS), policy, jnp.ones(2, bool), jnp.int32(0))


def test_the_variance_is_what_is_computed_by_hand():
    # 4 * 0.25 + 0 + 1 * 0.04 and 4 * 1 + 0 + 1 * 4
    np.testing.assert_allclose(gsde.variance(FEATURES, np.log(STD)), [1.04, 8.0], rtol=1e-6)


def test_noise_has_that_variance_over_the_draws_of_its_weights():
    draw = jax.vmap(lambda key: gsde.draw_weights(key, jnp.log(STD)))
    noise = FEATURES @ np.asarray(draw(jax.random.split(KEY, 20_000)))
    np.testing.assert_allclose(noise.var(axis=0), [1.04, 8.0], rtol=0.05)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03


def test_an_actor_s_log_std_is_that_of_its_features_and_weights():
    actor = eqx.tree_at(lambda a: a.log_std, squashed().network.actor, jnp.log(jnp.arange(1.0, 9.0).reshape(4, 2)))
    features = np.asarray(actor.features(OBS[0]), np.float64)
    expected = np.log(np.sqrt(features**2 @ (np.arange(1.0, 9.0).reshape(4, 2) ** 2) + 1e-6))
    mean, log_std = SquashedGaussianPolicy(actor)(OBS[0])
    np.testing.assert_allclose(log_std, expected, rtol=1e-4)
    np.testing.assert_allclose(mean, actor.mlp(OBS[0]), rtol=1e-6)


@pytest.mark.parametrize(("exploration", "policy"), CASES, ids=["TD3", "SAC"])
def test_noise_is_a_function_of_the_state_until_the_next_episode(exploration, policy):
    state = begun(exploration, policy)
    after, first = act(exploration, jax.random.key(1), state, policy, OBS, jnp.int32(0))
    _, again = act(exploration, jax.random.key(2), after, policy, OBS, jnp.int32(50))
    np.testing.assert_array_equal(first, again)
    features = np.stack([policy.network.features(obs) for obs in OBS])
    noise = np.einsum("nf,nfd->nd", features, state.weights)
    if isinstance(policy, DeterministicPolicy):
        expected = np.clip(np.stack([policy(obs) for obs in OBS]) + noise, -1, 1)
    else:
        expected = np.tanh(np.stack([policy(obs)[0] for obs in OBS]) + noise)
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-6)
    later = begin(exploration, jax.random.key(3), state, policy, jnp.array([False, True]), jnp.int32(60))
    np.testing.assert_array_equal(later.weights[0], state.weights[0])
    assert (later.weights[1] != state.weights[1]).all()
    assert later.sampled_at.tolist() == [0, 60]


def test_weights_have_the_width_that_sigma_asks_for():
    exploration, policy = CASES[0]
    obs = jnp.ones((500, 2))
    state = begin(exploration, KEY, exploration.init(policy, obs), policy, jnp.ones(500, bool), jnp.int32(0))
    assert state.weights.std() == pytest.approx(0.3 / np.sqrt(4), rel=0.05)


def test_weights_are_drawn_anew_after_so_many_steps_of_an_environment():
    exploration, policy = pn.StateNoise(resample_every=3), CASES[0][1]
    state = begun(exploration, policy)._replace(sampled_at=jnp.array([4, 6]))  # 3 and 2 steps of each ago
    after, _ = act(exploration, jax.random.key(1), state, policy, OBS, jnp.int32(10))
    assert (after.weights[0] != state.weights[0]).all()
    np.testing.assert_array_equal(after.weights[1], state.weights[1])
    assert after.sampled_at.tolist() == [10, 6]


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


def test_standard_deviation_and_density_are_those_of_stable_baselines3():
    """Where Stable-Baselines3 and PyTorch are installed, as in the environment of the benchmarks."""
    torch = pytest.importorskip("torch")
    distributions = pytest.importorskip("stable_baselines3.common.distributions")
    rng = np.random.default_rng(0)
    features, log_std, mean, noise = (
        rng.normal(size=shape).astype(np.float32) for shape in ((5, 7), (7, 3), (5, 3), (5, 3))
    )
    peer = distributions.StateDependentNoiseDistribution(3, learn_features=True, squash_output=True)
    peer.proba_distribution_net(7, latent_sde_dim=7)
    peer.proba_distribution(*map(torch.tensor, (mean, log_std, features)))
    std = np.sqrt(np.asarray(gsde.variance(features, log_std)) + gsde.LEAST_VARIANCE)
    np.testing.assert_allclose(std, peer.distribution.stddev.numpy(), rtol=1e-5)
    values, policy = jnp.stack([mean, np.log(std)], axis=1), SquashedGaussianPolicy(None)
    narrow = 0.2 * noise  # near a bound the peer's log-density is rounded
    actions = torch.tensor(np.asarray(policy.squash(values, narrow)))
    np.testing.assert_allclose(policy.log_density(values, narrow), peer.log_prob(actions).numpy(), rtol=1e-2, atol=1e-2)
