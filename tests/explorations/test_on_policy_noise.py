import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.agents.trpo import TRPOConfig
from paramnoise.networks import MLP
from paramnoise.networks.policies import GaussianPolicy

POLICY = GaussianPolicy(MLP((2, 6, 1), key=jax.random.key(0), layer_norm=True, activation=jnp.tanh), jnp.zeros(1))
OBS = jax.random.normal(jax.random.key(1), (300, 2))
DELTA = 0.01
NOISE = {
    scaling: pn.OnPolicyParameterNoise(scaling=scaling, delta=DELTA) for scaling in ("boundary", "shrink", "adaptive")
}


def after_a_batch(exploration, num_envs=3, policy=POLICY):
    """The state after the first batch: episodes without noise go on in every environment."""
    state = exploration.init(policy, jnp.zeros((num_envs, 2)))
    return jax.jit(exploration.adapt)(jax.random.key(2), state, policy, OBS, 0)


def begin(exploration, state, starts, key=3):
    return jax.jit(exploration.begin_episode)(jax.random.key(key), state, POLICY, jnp.array(starts), 0)


@pytest.mark.parametrize("scaling", NOISE)
def test_noise_starts_where_an_episode_starts_and_nowhere_else(scaling):
    exploration = NOISE[scaling]
    first = begin(exploration, after_a_batch(exploration), [True, True, False])
    offsets = np.asarray(exploration.offsets(first))
    np.testing.assert_array_equal(offsets.any(axis=1), [True, True, False])
    assert (offsets[0] != offsets[1]).any()
    second = np.asarray(exploration.offsets(begin(exploration, first, [False, True, False], key=4)))
    np.testing.assert_array_equal((offsets != second).any(axis=1), [False, True, False])
    assert (first.sampled, first.failed) == (2, 0)


def test_by_default_the_noise_has_ten_times_the_kl_of_the_policy_s_step():
    exploration = pn.OnPolicyParameterNoise()
    state = begin(exploration, after_a_batch(exploration), [True, True, True])
    bound = 10 * TRPOConfig().delta_kl
    assert bound / 2 < state.distance <= bound


def test_without_a_batch_before_there_is_no_noise():
    exploration = NOISE["boundary"]
    state = begin(exploration, exploration.init(POLICY, jnp.zeros((3, 2))), [True, True, True])
    assert not state.offsets.any()
    assert state.sampled == 0


@pytest.mark.parametrize("scaling", ["boundary", "shrink"])
def test_natural_noise_is_within_the_bound_on_the_states_of_the_batch(scaling):
    exploration = NOISE[scaling]
    state = begin(exploration, after_a_batch(exploration), [True, True, True])
    clean = jax.vmap(POLICY)(state.obs)
    kls = [
        POLICY.distance(clean, jax.vmap(pn.noise.displace(POLICY, offset))(state.obs))
        for offset in exploration.offsets(state)
    ]
    assert max(kls) <= DELTA * (1 + 1e-3)
    assert min(kls) > 0.001
    np.testing.assert_allclose(state.distance, kls[-1], rtol=1e-2)


def test_sigma_is_adapted_as_often_as_steps_passed_until_the_kl_is_delta():
    exploration = pn.OnPolicyParameterNoise(scaling="adaptive", adapt_every=1, delta=DELTA)
    state = after_a_batch(exploration)
    assert state.scale.adaptations == 300
    assert state.scale.sigma > 0.02  # it grows, as noise of 0.01 is far too small
    for key in range(4):
        state = jax.jit(exploration.adapt)(jax.random.key(key), state, POLICY, OBS, 0)
    clean = jax.vmap(POLICY)(OBS)

    def kl(key):
        probe = pn.noise.displace(POLICY, pn.noise.spherical_noise(key, POLICY, state.scale.sigma))
        return POLICY.distance(clean, jax.vmap(probe)(OBS))

    kls = jax.jit(jax.vmap(kl))(jax.random.split(jax.random.key(9), 400))
    assert 0.25 < (kls <= DELTA).mean() < 0.75  # at equilibrium sigma grows as often as it shrinks


@pytest.mark.parametrize("scaling", NOISE)
def test_delta_may_follow_a_schedule_over_environment_steps(scaling):
    exploration = pn.OnPolicyParameterNoise(scaling=scaling, delta="linear:0.1:0.001:1000", adapt_every=1)
    state, key = after_a_batch(exploration), jax.random.key(5)
    adapt, start = jax.jit(exploration.adapt), jax.jit(exploration.begin_episode)
    everywhere, seen = jnp.ones(3, bool), []
    for step in (0, 500, 2_000):
        for _ in range(6):  # of 300 adaptations each, where sigma is adapted
            state = adapt(key, state, POLICY, OBS, step)
        seen.append(float(start(key, state, POLICY, everywhere, step).distance))
    deltas = np.array([0.1, 0.0505, 0.001], np.float32)
    np.testing.assert_allclose([exploration.report(state, step)["delta"] for step in (0, 500, 2_000)], deltas)
    np.testing.assert_array_less(seen, 3 * deltas)  # the last probe of adapted noise may be beyond
    np.testing.assert_array_less(deltas / 5 if scaling != "shrink" else 0 * deltas, seen)


@pytest.mark.parametrize("perturb_log_std", [False, True])
def test_noise_goes_to_the_linear_layers_and_to_the_log_std_on_request(perturb_log_std):
    exploration = pn.OnPolicyParameterNoise(perturb_log_std=perturb_log_std)
    state = begin(exploration, after_a_batch(exploration), [True, False, False])
    perturbed = pn.noise.displace(POLICY, state.offsets[0])
    difference = jax.tree.map(lambda one, clean: np.asarray(one != clean), perturbed, POLICY)
    assert all(layer.weight.all() and layer.bias.all() for layer in difference.network.layers)
    assert not any(norm.weight.any() or norm.bias.any() for norm in difference.network.norms)
    assert difference.log_std.all() == perturb_log_std


@pytest.mark.parametrize("exploration", [pn.NoNoise(), NOISE["boundary"]])
def test_actions_are_draws_from_the_policy_of_each_environment(exploration):
    many = 4_000
    state = exploration.init(POLICY, jnp.zeros((many, 2)))
    _, actions = jax.jit(exploration.act)(jax.random.key(0), state, POLICY, jnp.ones((many, 2)), 0)
    np.testing.assert_allclose(np.mean(actions), POLICY(jnp.ones(2))[0], atol=0.06)
    np.testing.assert_allclose(np.std(actions), 1.0, rtol=0.06)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scaling", "none"),
        ("delta", 0.0),
        ("delta", "linear:0.1:0:100"),
        ("sigma", -1.0),
        ("max_states", 0),
        ("shrinkage", 1.0),
        ("alpha", 0.99),
    ],
)
def test_a_setting_out_of_range_is_named(name, value):
    with pytest.raises(pn.UsageError, match=name):
        pn.OnPolicyParameterNoise(**{name: value})


def test_an_adapted_sigma_cannot_start_at_0():
    with pytest.raises(pn.UsageError, match="sigma must be above 0 with adaptive scaling"):
        pn.OnPolicyParameterNoise(scaling="adaptive", sigma=0.0)
