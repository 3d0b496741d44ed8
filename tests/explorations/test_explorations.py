import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import stats

import paramnoise as pn
from paramnoise.explorations.parameter import ParameterNoiseState
from paramnoise.networks import MLP, BootstrappedQNetwork
from paramnoise.networks.heads import NormalisedActor
from paramnoise.networks.noisy import draw_noise, with_noisy_layers
from paramnoise.networks.normaliser import Normaliser
from paramnoise.networks.policies import (
    DeterministicPolicy,
    GreedyPolicy,
    Policy,
    SquashedGaussianPolicy,
    VotingPolicy,
)
from paramnoise.noise import initial_scale, perturb

KEY = jax.random.key(0)
MANY = jnp.ones((10_000, 3))  # observations of many environments at once, to measure frequencies


@jax.jit
def policies(key: Array) -> tuple[GreedyPolicy, DeterministicPolicy, VotingPolicy]:
    discrete, continuous = (MLP([3, 8, actions], key=key) for actions in (4, 2))
    ensemble = BootstrappedQNetwork([3, 8, 4], num_heads=5, key=key)
    return GreedyPolicy(discrete), DeterministicPolicy(continuous), VotingPolicy(ensemble)


DISCRETE, CONTINUOUS, ENSEMBLE = policies(jax.random.key(1))
NOISY = with_noisy_layers(DISCRETE, 0.5)
SILENT = DeterministicPolicy(jax.tree.map(jnp.zeros_like, CONTINUOUS.network))  # what acts is the noise
NOISE = pn.ParameterNoise(sigma=0.5, delta=0.1)
INVALID = {
    pn.EpsilonGreedy: {"epsilon_start": 1.5, "epsilon_end": -0.1, "anneal_steps": 0},
    pn.Gaussian: {"sigma": -0.1},
    pn.OrnsteinUhlenbeck: {"sigma": -0.1, "theta": -1.0, "dt": 0.0},
    pn.ParameterNoise: {
        "delta": 0.0,
        "sigma": 0.0,
        "alpha": 0.99,
        "adapt_every": 0,
        "epsilon": 1.1,
        "max_age": 0,
        "num_policies": 0,
        "pool": 3,
    },
}
EVERY_STRATEGY = pytest.mark.parametrize(
    ("exploration", "policy"),
    [
        (pn.NoNoise(), ENSEMBLE),
        (pn.EpsilonGreedy(), DISCRETE),
        (pn.EpsilonGreedy(), ENSEMBLE),
        (pn.Gaussian(), CONTINUOUS),
        (pn.OrnsteinUhlenbeck(), CONTINUOUS),
        (pn.BootstrapHead(), ENSEMBLE),
        (pn.NoisyNet(), NOISY),
        (pn.ParameterNoise(), DISCRETE),
        (pn.ParameterNoise(max_age=1, epsilon=0.1), CONTINUOUS),
        (pn.ParameterNoise(pool=2), DISCRETE),
        (pn.ParameterNoise(half_precision=True), DISCRETE),
    ],
    ids=lambda value: getattr(value, "kind", type(value).__name__),
)
begin_episode = eqx.filter_jit(lambda exploration, *inputs: exploration.begin_episode(*inputs))
act = eqx.filter_jit(lambda exploration, *inputs: exploration.act(*inputs))
adapt = eqx.filter_jit(lambda exploration, *inputs: exploration.adapt(*inputs))


@eqx.filter_jit
def episode(exploration: pn.Exploration, policy: Policy, key: Array) -> tuple[list[object], list[Array]]:
    """The states and actions of two environments: both begin, act, adapt, act."""
    keys, obs, steps = jax.random.split(key, 4), jnp.ones((2, 3)), jnp.arange(2)
    states = [exploration.init(policy, obs)]
    states.append(exploration.begin_episode(keys[0], states[0], policy, jnp.array([True, True]), steps[0]))
    state, first = exploration.act(keys[1], states[1], policy, obs, steps[0])
    states += [state, exploration.adapt(keys[2], state, policy, jnp.ones((5, 3)), steps[1])]
    state, second = exploration.act(keys[3], states[3], policy, obs, steps[1])
    return [*states, state], [first, second]


@eqx.filter_jit
def begun(exploration: pn.ParameterNoise, policy: Policy, num_envs: int) -> ParameterNoiseState:
    state = exploration.init(policy, jnp.ones((num_envs, 3)))
    return exploration.begin_episode(KEY, state, policy, jnp.ones(num_envs, bool), 0)


def same_rows(before: object, after: object) -> list[bool]:
    """For each environment, whether all arrays of its policy are bit-equal."""
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return np.all([np.all(np.asarray(a == b).reshape(len(a), -1), axis=1) for a, b in pairs], axis=0).tolist()


@EVERY_STRATEGY
def test_states_keep_their_shapes_under_jit_so_that_a_scan_can_carry_them(exploration: pn.Exploration, policy: Policy):
    states, actions = episode(exploration, policy, KEY)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) for state in states]
    assert all(shape == shapes[0] for shape in shapes)
    expected = (2, 2) if isinstance(policy, DeterministicPolicy) else (2,)
    assert [action.shape for action in actions] == [expected, expected]


@EVERY_STRATEGY
def test_the_same_key_gives_the_same_behaviour(exploration: pn.Exploration, policy: Policy):
    first, second = (jax.tree.leaves(episode(exploration, policy, KEY)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@EVERY_STRATEGY
def test_the_clean_policy_is_never_changed(exploration: pn.Exploration, policy: Policy):
    before = jax.tree.map(np.array, policy)
    episode(exploration, policy, KEY)
    for old, now in zip(jax.tree.leaves(before), jax.tree.leaves(policy), strict=True):
        np.testing.assert_array_equal(old, now)


@pytest.mark.parametrize("exploration", [pn.NoNoise(), pn.EpsilonGreedy(epsilon_start=0.0, epsilon_end=0.0)])
def test_no_noise_and_epsilon_zero_are_greedy(exploration: pn.Exploration):
    obs = jax.random.normal(KEY, (50, 3))
    _, actions = act(exploration, KEY, (), DISCRETE, obs, 0)
    np.testing.assert_array_equal(actions, np.argmax(jax.vmap(DISCRETE)(obs), axis=1))


def test_epsilon_one_is_uniform():
    _, actions = act(pn.EpsilonGreedy(epsilon_start=1.0), KEY, (), DISCRETE, MANY, 0)
    assert stats.chisquare(np.bincount(actions, minlength=4)).pvalue > 0.001


@pytest.mark.parametrize(("step", "epsilon"), [(0, 1.0), (25, 0.8), (50, 0.6), (100, 0.2), (5000, 0.2)])
def test_epsilon_is_annealed_linearly_and_is_the_rate_of_random_actions(step: int, epsilon: float):
    exploration = pn.EpsilonGreedy(epsilon_start=1.0, epsilon_end=0.2, anneal_steps=100)
    assert exploration.report((), step)["epsilon"] == pytest.approx(epsilon, rel=1e-6)
    _, actions = act(exploration, KEY, (), DISCRETE, MANY, jnp.asarray(step))
    rate = 0.75 * epsilon  # a quarter of the random actions is the greedy one
    others = np.mean(actions != np.argmax(DISCRETE(MANY[0])))
    assert others == pytest.approx(rate, abs=4 * np.sqrt(rate * (1 - rate) / len(MANY)))


def test_gaussian_noise_on_the_policy_has_standard_deviation_sigma_and_no_correlation():
    _, actions = act(pn.Gaussian(sigma=0.2), KEY, (), CONTINUOUS, MANY, 0)
    noise = np.asarray(actions - CONTINUOUS(MANY[0]))
    assert noise.std() == pytest.approx(0.2, rel=4 / np.sqrt(2 * noise.size))
    assert abs(noise.mean()) < 4 * 0.2 / np.sqrt(noise.size)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 4 / np.sqrt(len(noise))


@pytest.mark.parametrize("exploration", [pn.Gaussian(sigma=5.0), pn.OrnsteinUhlenbeck(sigma=50.0)])
def test_noisy_actions_are_clipped_to_the_action_range(exploration: pn.Exploration):
    _, actions = act(exploration, KEY, exploration.init(SILENT, MANY), SILENT, MANY, 0)
    assert (float(actions.min()), float(actions.max())) == (-1.0, 1.0)


def test_ornstein_uhlenbeck_noise_has_the_variance_and_correlation_of_its_closed_form():
    exploration = pn.OrnsteinUhlenbeck(sigma=0.3, theta=5.0, dt=0.1)  # x <- 0.5 x + 0.3 sqrt(0.1) N(0, 1)
    states = [exploration.init(SILENT, MANY)]
    for key in jax.random.split(KEY, 4):
        state, actions = act(exploration, key, states[-1], SILENT, MANY, 0)
        states.append(state)
    variances = [0.009 * (1 - 0.25**k) / 0.75 for k in range(5)]
    np.testing.assert_allclose([np.var(s) for s in states], variances, rtol=4 * np.sqrt(2 / MANY.shape[0] / 2))
    lag_one = np.corrcoef(np.ravel(states[3]), np.ravel(states[4]))[0, 1]
    assert lag_one == pytest.approx(0.5 * np.sqrt(variances[3] / variances[4]), abs=4 / np.sqrt(states[4].size))
    np.testing.assert_array_equal(actions, states[4])


def test_ornstein_uhlenbeck_noise_moves_by_a_tenth_of_sigma_a_step_by_default():
    state, _ = act(pn.OrnsteinUhlenbeck(), KEY, jnp.zeros((10_000, 2)), SILENT, MANY, 0)
    assert np.std(state) == pytest.approx(0.02, rel=4 / np.sqrt(2 * state.size))


def test_ornstein_uhlenbeck_noise_is_reset_only_where_an_episode_starts():
    state = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    after = begin_episode(pn.OrnsteinUhlenbeck(), KEY, state, SILENT, jnp.array([False, True, False]), 0)
    np.testing.assert_array_equal(after, [[1.0, 2.0], [0.0, 0.0], [5.0, 6.0]])


def test_a_bootstrap_head_is_drawn_uniformly_at_starts_and_kept_within_an_episode():
    exploration = pn.BootstrapHead()
    heads = begin_episode(exploration, KEY, jnp.full(10_000, 9), ENSEMBLE, jnp.ones(10_000, bool), 0)
    assert stats.chisquare(np.bincount(heads, minlength=5)).pvalue > 0.001
    np.testing.assert_array_equal(act(exploration, KEY, heads, ENSEMBLE, MANY, 0)[0], heads)
    starts = jnp.arange(10_000) < 5_000
    after = begin_episode(exploration, jax.random.key(2), heads, ENSEMBLE, starts, 0)
    np.testing.assert_array_equal(after[5_000:], heads[5_000:])
    assert np.any(after[:5_000] != heads[:5_000])


def test_the_drawn_head_acts_greedily():
    favourites = jnp.eye(4)[jnp.array([0, 1, 2, 3, 0])]  # of heads 0 to 4
    policy = eqx.tree_at(lambda p: p.network.heads.bias, ENSEMBLE, 100 * favourites)
    _, actions = act(pn.BootstrapHead(), KEY, jnp.array([2, 0, 3, 4, 1]), policy, jnp.ones((5, 3)), 0)
    np.testing.assert_array_equal(actions, [2, 0, 3, 0, 1])


def test_the_acting_policy_stays_as_sampled_while_the_clean_policy_learns():
    state, learned = begun(NOISE, CONTINUOUS, 3), jax.tree.map(lambda leaf: leaf + 1.0, CONTINUOUS)
    before, after = (act(NOISE, KEY, state, policy, jnp.ones((3, 3)), 0)[1] for policy in (CONTINUOUS, learned))
    np.testing.assert_array_equal(before, after)
    assert len(np.unique(before)) == before.size  # a policy of its own for each environment


def test_environments_act_differently_on_the_same_observation():
    _, actions = act(NOISE, KEY, begun(NOISE, DISCRETE, 50), DISCRETE, jnp.ones((50, 3)), 0)
    assert len(np.unique(actions)) > 1


def test_a_start_in_one_environment_leaves_the_policies_of_the_others_alone():
    state = begun(NOISE, CONTINUOUS, 3)._replace(sampled_at=jnp.array([4, 5, 6]))
    after = begin_episode(NOISE, jax.random.key(2), state, CONTINUOUS, jnp.array([False, True, False]), 9)
    assert same_rows(state.policies, after.policies) == [True, False, True]
    np.testing.assert_array_equal(after.sampled_at, [4, 9, 6])


def test_an_episode_is_perturbed_with_the_sigma_of_now():
    state = NOISE.init(SILENT, jnp.ones((200, 3)))._replace(scale=initial_scale(3.0))
    policies = begin_episode(NOISE, KEY, state, SILENT, jnp.ones(200, bool), 0).policies
    draws = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(policies.network.layers)])
    assert draws.std() == pytest.approx(3.0, rel=4 / np.sqrt(2 * draws.size))


@pytest.mark.parametrize(("num_policies", "shared"), [(1, [0, 0, 0, 0, 0]), (2, [0, 1, 0, 1, 0]), (9, [0, 1, 2, 3, 4])])
def test_environments_that_start_together_share_so_many_policies(num_policies: int, shared: list[int]):
    exploration = pn.ParameterNoise(sigma=0.5, num_policies=num_policies)
    state = begun(exploration, CONTINUOUS, 5)
    rows = np.concatenate([np.reshape(leaf, (5, -1)) for leaf in jax.tree.leaves(state.policies)], axis=1)
    assert np.unique(rows, axis=0, return_index=True)[1].size == len(set(shared))
    assert all(np.array_equal(row, rows[first]) for row, first in zip(rows, shared, strict=True))
    after = begin_episode(exploration, jax.random.key(2), state, CONTINUOUS, jnp.array([True] + 4 * [False]), 9)
    assert same_rows(state.policies, after.policies) == [False, True, True, True, True]


def test_a_pool_acts_on_the_host_as_it_acts_in_a_program():
    exploration = pn.ParameterNoise(sigma=0.5, pool=2)
    state, starts = begun(exploration, CONTINUOUS, 2), jnp.array([True, False])
    state = begin_episode(exploration, jax.random.key(2), state, CONTINUOUS, starts, 9)
    obs = jnp.ones((2, 3))
    _, actions = act(exploration, KEY, state, CONTINUOUS, obs, 0)
    policies, has_axis = exploration.acting_policy(jax.tree.map(np.asarray, state), CONTINUOUS)
    assert has_axis
    np.testing.assert_allclose(eqx.filter_vmap(lambda policy, o: policy(o))(policies, obs), actions, rtol=1e-5)
    assert not np.allclose(actions[0], actions[1])


@pytest.mark.parametrize(
    ("settings", "obs", "message"),
    [
        ({"pool": 4}, jnp.ones((3, 3)), "pool must be twice a number that divides num_envs, which is 3"),
        ({"pool": 2}, jnp.ones((2, 4, 8, 8)), "on frames each has a policy of its own"),
    ],
)
def test_a_pool_that_environments_cannot_share_is_refused(settings: dict, obs: Array, message: str):
    with pytest.raises(pn.UsageError, match=message):
        pn.ParameterNoise(**settings).init(DISCRETE, obs)


@pytest.mark.parametrize("num_envs", [5, 64])  # those of few are drawn together, those of many where they are needed
def test_half_precision_keeps_the_same_draws_with_fewer_digits(num_envs: int):
    whole, half = (pn.ParameterNoise(sigma=0.5, half_precision=halved) for halved in (False, True))
    states = [begun(exploration, CONTINUOUS, num_envs) for exploration in (whole, half)]
    exact, kept = (jax.tree.leaves(state.policies) for state in states)
    assert all(leaf.dtype == jnp.float16 for leaf in kept)
    for leaf, short in zip(exact, kept, strict=True):
        np.testing.assert_array_equal(short, leaf.astype(jnp.float16))
    obs = jax.random.normal(KEY, (num_envs, 3))
    actions = [
        act(exploration, KEY, state, CONTINUOUS, obs, 0)[1]
        for exploration, state in zip((whole, half), states, strict=True)
    ]
    assert actions[1].dtype == jnp.float32
    assert 0 < np.abs(actions[0] - actions[1]).max() < 0.01
    policies, _ = half.acting_policy(states[1], CONTINUOUS)
    np.testing.assert_allclose(eqx.filter_vmap(lambda policy, o: policy(o))(policies, obs), actions[1], rtol=1e-5)


def test_half_precision_is_for_layers_and_not_for_what_a_normaliser_has_seen():
    statistics = Normaliser(jnp.float32(1e6), jnp.ones(3), jnp.full(3, 4e6))  # a std of 2
    policy = DeterministicPolicy(NormalisedActor(statistics, CONTINUOUS.network))
    state = begun(pn.ParameterNoise(half_precision=True), policy, 5)
    kept = state.policies.network
    assert jax.tree.leaves(kept.actor)[0].dtype == jnp.float16
    np.testing.assert_array_equal(kept.normaliser.seen, np.full(5, 1e6, np.float32))
    np.testing.assert_array_equal(kept.normaliser.squares, np.full((5, 3), 4e6, np.float32))


def test_a_pool_is_kept_in_whole_precision():
    with pytest.raises(pn.UsageError, match="half_precision must be false with a pool"):
        pn.ParameterNoise(pool=2, half_precision=True)


def test_a_pool_says_how_many_policies_there_are():
    with pytest.raises(pn.UsageError, match="num_policies must be unset with a pool"):
        pn.ParameterNoise(pool=2, num_policies=1)


def test_noisy_layers_act_with_noise_of_their_own_for_each_environment_and_step():
    _, actions = act(pn.NoisyNet(), KEY, (), NOISY, MANY, 0)
    own = jax.vmap(lambda key: draw_noise(key, NOISY)(MANY[0]))(jax.random.split(KEY, len(MANY)))
    np.testing.assert_array_equal(actions, np.argmax(own, axis=1))
    assert len(np.unique(actions)) > 1
    _, others = act(pn.NoisyNet(), jax.random.key(2), (), NOISY, MANY, 0)
    assert 0.05 < np.mean(actions != others) < 0.95


def test_exploration_by_noisy_layers_needs_some():
    with pytest.raises(pn.UsageError, match="'noisy' needs noisy layers: give the agent a noisy_sigma"):
        pn.NoisyNet().init(DISCRETE, MANY)


@pytest.mark.parametrize(("delta", "factor", "alpha"), [(100.0, 1.5, 1.5), (1e-9, 1 / 1.5, 1.5), (1e-9, 1, 1)])
def test_adapting_moves_sigma_by_alpha_and_never_touches_the_acting_policies(delta: float, factor: float, alpha: float):
    state, exploration = begun(NOISE, DISCRETE, 2), pn.ParameterNoise(sigma=0.5, delta=delta, alpha=alpha)
    after = adapt(exploration, KEY, state, DISCRETE, jnp.ones((5, 3)), 0)
    assert same_rows(state.policies, after.policies) == [True, True]
    assert after.scale.sigma == pytest.approx(0.5 * factor)
    assert after.scale.adaptations == 1


def test_the_distance_is_measured_from_the_clean_policy_to_a_probe():
    after = adapt(NOISE, KEY, begun(NOISE, DISCRETE, 1), DISCRETE, jnp.eye(3), 0)
    clean, probe = (jax.vmap(policy)(jnp.eye(3)) for policy in (DISCRETE, perturb(KEY, DISCRETE, 0.5)))
    assert after.distance == pytest.approx(float(DISCRETE.distance(clean, probe)), rel=1e-5)
    assert after.distance != pytest.approx(float(DISCRETE.distance(probe, clean)), rel=1e-2)


def test_epsilon_on_top_of_the_noise_is_the_rate_of_random_actions():
    exploration = pn.ParameterNoise(sigma=1e-6, epsilon=0.4)
    _, actions = act(exploration, KEY, begun(exploration, DISCRETE, len(MANY)), DISCRETE, MANY, 0)
    others = np.mean(actions != np.argmax(DISCRETE(MANY[0])))
    assert others == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / len(MANY)))


@pytest.mark.parametrize(("max_age", "kept"), [(2, [True, False]), (None, [True, True])])
def test_a_policy_is_sampled_anew_after_its_maximum_age_and_never_without_one(max_age: int | None, kept: list[bool]):
    exploration = pn.ParameterNoise(sigma=0.5, max_age=max_age)
    state = begun(exploration, CONTINUOUS, 2)._replace(sampled_at=jnp.array([8, 6]))  # 1 and 2 steps of each ago
    after, _ = act(exploration, KEY, state, CONTINUOUS, jnp.ones((2, 3)), 10)
    assert same_rows(state.policies, after.policies) == kept
    np.testing.assert_array_equal(after.sampled_at, [8, 6 if kept[1] else 10])


def test_delta_is_as_given_or_a_fifth_on_continuous_actions():
    assert NOISE.threshold(DISCRETE, 4, 0) == np.float32(0.1)
    assert pn.ParameterNoise().threshold(CONTINUOUS, 2, 0) == np.float32(0.2)
    squashed = SquashedGaussianPolicy(DISCRETE.network)
    assert pn.ParameterNoise().threshold(squashed, 2, 0) == np.float32(0.2)
    assert pn.ParameterNoise().init(squashed, jnp.ones((1, 3))).scale.sigma == np.float32(0.2)


def test_a_perturbed_policy_with_randomness_of_its_own_draws_from_its_own_distribution():
    policy, exploration = SquashedGaussianPolicy(DISCRETE.network), pn.ParameterNoise(sigma=0.1)
    state = begun(exploration, policy, 2)
    state = state._replace(policies=jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], len(MANY), 0), state.policies))
    actions = np.asarray(act(exploration, KEY, state, policy, MANY, 0)[1], np.float64)
    perturbed = SquashedGaussianPolicy(jax.tree.map(lambda leaf: leaf[0], state.policies.network))
    mean, log_std = np.asarray(perturbed(MANY[0]))
    before = np.arctanh(actions)
    np.testing.assert_allclose(before.mean(axis=0), mean, atol=5 * np.exp(log_std).max() / 100)
    np.testing.assert_allclose(before.std(axis=0), np.exp(log_std), rtol=0.05)
    assert np.abs(mean - np.asarray(policy(MANY[0]))[0]).max() > 0.05


@pytest.mark.parametrize(("step", "kept"), [(0, 0.25), (50, 0.4 + 0.6 / 4), (1000, 0.8 + 0.2 / 4)])
def test_without_a_delta_it_follows_the_annealed_epsilon(step: int, kept: float):
    exploration = pn.ParameterNoise(epsilon_start=1.0, epsilon_end=0.2, anneal_steps=100)
    state = adapt(exploration, KEY, begun(exploration, DISCRETE, 1), DISCRETE, jnp.ones((5, 3)), jnp.asarray(step))
    assert exploration.report(state, step)["delta"] == pytest.approx(-np.log(kept), rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "field", "value"), [(kind, *setting) for kind in INVALID for setting in INVALID[kind].items()]
)
def test_an_invalid_setting_is_an_error_that_names_it(kind: type[pn.Exploration], field: str, value: float):
    with pytest.raises(pn.UsageError, match=f"^{field} must be .* not {value}"):
        kind(**{field: value})
