import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from paramnoise.networks import BootstrappedQNetwork
from paramnoise.networks.policies import (
    CategoricalPolicy,
    DeterministicPolicy,
    GaussianPolicy,
    GreedyPolicy,
    MultiCategoricalPolicy,
    SquashedGaussianPolicy,
    VotingPolicy,
    noise_free_actions,
)
from paramnoise.noise import kl_distance, rms_distance

KEY = jax.random.key(0)
LINEAR = eqx.nn.Linear(2, 3, key=KEY)


def test_greedy_takes_the_highest_value():
    policy = GreedyPolicy(LINEAR)
    assert policy.greedy(jnp.array([1.0, 3.0, 2.0])) == 1
    np.testing.assert_array_equal(policy(jnp.ones(2)), LINEAR(jnp.ones(2)))


@pytest.mark.parametrize(
    ("values", "action"),
    [
        ([[1, 0, 0], [1, 0, 0], [0, 0, 9]], 0),  # two votes against one, though action 2 has the highest mean
        ([[1, 0, 0], [0, 0, 2]], 2),  # one vote each: means 0.5, 0, 1
        ([[3, 0, 0], [0, 0, 2]], 0),  # one vote each: means 1.5, 0, 1
        ([[5, 4, 0], [0, 4, 5], [5, 4, 0], [0, 4, 5]], 0),  # the mean of action 1 is highest, but nobody votes for it
        ([[-3, -1, -2]], 1),
    ],
)
def test_heads_vote_and_the_mean_value_breaks_a_tie(values: list[list[float]], action: int):
    assert VotingPolicy(LINEAR).greedy(jnp.array(values, jnp.float32)) == action


def test_voting_counts_the_heads_of_its_network():
    policy = VotingPolicy(BootstrappedQNetwork([2, 4, 3], num_heads=7, key=KEY))
    assert policy.num_heads == 7
    assert policy(jnp.ones(2)).shape == (7, 3)


def test_a_deterministic_policy_acts_its_output():
    policy = DeterministicPolicy(LINEAR)
    np.testing.assert_array_equal(policy.greedy(policy(jnp.ones(2))), LINEAR(jnp.ones(2)))


@pytest.mark.parametrize(("kind", "shape"), [(GreedyPolicy, (10_000, 4)), (VotingPolicy, (10_000, 5, 4))])
def test_random_actions_are_uniform_over_all_actions(kind: type, shape: tuple[int, ...]):
    actions = kind(LINEAR).random(KEY, jnp.zeros(shape))
    assert actions.shape == (10_000,)
    counts = np.bincount(actions, minlength=4)
    assert counts.shape == (4,)
    assert stats.chisquare(counts).pvalue > 0.001


def test_random_continuous_actions_are_uniform_in_the_unit_box():
    actions = np.asarray(DeterministicPolicy(LINEAR).random(KEY, jnp.zeros((10_000, 2))))
    assert actions.shape == (10_000, 2)
    assert actions.min() >= -1
    assert actions.max() <= 1
    np.testing.assert_allclose(actions.mean(axis=0), 0, atol=4 / np.sqrt(3 * 10_000))
    np.testing.assert_allclose(actions.var(axis=0), 1 / 3, rtol=0.05)


def test_random_actions_differ_between_dimensions_and_rows():
    actions = np.asarray(DeterministicPolicy(LINEAR).random(KEY, jnp.zeros((3, 2))))
    assert len(np.unique(actions)) == 6


def test_discrete_policies_are_compared_by_kl_and_continuous_ones_by_rms():
    clean, perturbed = jnp.array([[0.0, 1.0]]), jnp.array([[0.5, -1.0]])
    assert GreedyPolicy(LINEAR).distance(clean, perturbed) == kl_distance(clean, perturbed)
    assert DeterministicPolicy(LINEAR).distance(clean, perturbed) == rms_distance(clean, perturbed)


def test_voting_policies_are_compared_by_the_mean_kl_of_their_heads():
    clean, perturbed = jnp.zeros((1, 2, 2)), jnp.log(jnp.array([[[0.25, 0.75], [0.5, 0.5]]]))
    assert VotingPolicy(LINEAR).distance(clean, perturbed) == pytest.approx(0.25 * np.log(4 / 3), rel=1e-5)


def test_noise_free_actions_act_on_each_row():
    identity = eqx.tree_at(lambda layer: (layer.weight, layer.bias), LINEAR, (jnp.eye(3), jnp.zeros(3)))
    obs = jnp.array([[1.0, 5.0, 2.0], [9.0, 0.0, 1.0], [0.0, 0.0, 1.0], [-2.0, -1.0, -3.0]])
    np.testing.assert_array_equal(noise_free_actions(GreedyPolicy(identity), obs), [1, 0, 2, 1])
    np.testing.assert_allclose(noise_free_actions(DeterministicPolicy(identity), obs), obs)


def test_noise_free_actions_of_an_ensemble_are_voted():
    policy = VotingPolicy(BootstrappedQNetwork([2, 4, 3], num_heads=5, key=KEY))
    obs = jax.random.normal(KEY, (6, 2))
    votes = [np.bincount(np.argmax(policy(o), axis=1), minlength=3) for o in obs]
    actions = np.asarray(noise_free_actions(policy, obs))
    assert all(vote[action] == vote.max() for vote, action in zip(votes, actions, strict=True))


GAUSSIAN = GaussianPolicy(eqx.nn.Linear(2, 3, key=KEY), jnp.log(jnp.array([0.5, 1.0, 2.0])))
CATEGORICAL = CategoricalPolicy(LINEAR)
MEANS = jnp.array([[0.3, -2.0, 1.5], [0.0, 0.1, 0.2]])
VALUES = jnp.stack([MEANS, jnp.broadcast_to(GAUSSIAN.log_std, (2, 3))], axis=1)  # [2, 2, 3]


def test_a_gaussian_policy_has_the_density_and_entropy_of_scipy_s():
    action = jnp.array([[0.1, -1.0, 3.0], [5.0, 0.0, 0.0]])
    normal = stats.norm(np.asarray(MEANS), [0.5, 1.0, 2.0])
    np.testing.assert_allclose(GAUSSIAN.log_probability(VALUES, action), normal.logpdf(action).sum(1), rtol=1e-5)
    np.testing.assert_allclose(GAUSSIAN.entropy(VALUES), normal.entropy().sum(1), rtol=1e-5)


def test_draws_of_a_gaussian_policy_have_its_moments_and_are_not_clipped():
    draws = np.asarray(GAUSSIAN.random(KEY, jnp.broadcast_to(VALUES[0], (20_000, 2, 3))))
    np.testing.assert_allclose(draws.mean(0), MEANS[0], atol=0.05)
    np.testing.assert_allclose(draws.std(0), [0.5, 1.0, 2.0], rtol=0.05)
    np.testing.assert_allclose(np.corrcoef(draws.T), np.eye(3), atol=0.05)


def test_the_noise_free_action_of_a_gaussian_policy_is_its_mean_within_bounds():
    np.testing.assert_allclose(GAUSSIAN.greedy(VALUES), np.clip(MEANS, -1, 1))
    assert noise_free_actions(GAUSSIAN, jnp.ones((4, 2))).shape == (4, 3)


def test_the_divergence_of_gaussians_is_the_mean_log_ratio_of_draws():
    others = VALUES.at[:, 0].add(0.5).at[:, 1].add(-0.3)
    draws = GAUSSIAN.random(KEY, jnp.broadcast_to(VALUES, (50_000, 2, 2, 3)))
    ratios = GAUSSIAN.log_probability(VALUES, draws) - GAUSSIAN.log_probability(others, draws)
    np.testing.assert_allclose(GAUSSIAN.divergence(VALUES, others), ratios.mean(0), rtol=0.03)
    np.testing.assert_allclose(GAUSSIAN.divergence(VALUES, VALUES), 0, atol=1e-6)


def test_a_categorical_policy_has_the_probabilities_of_the_softmax():
    logits = jnp.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    p, q = (np.asarray(jax.nn.softmax(x), np.float64) for x in (logits, logits[::-1]))
    np.testing.assert_allclose(
        CATEGORICAL.log_probability(logits, jnp.array([2, 1])), np.log([p[0, 2], p[1, 1]]), rtol=1e-5
    )
    np.testing.assert_allclose(CATEGORICAL.entropy(logits), stats.entropy(p, axis=1), rtol=1e-5)
    np.testing.assert_allclose(CATEGORICAL.divergence(logits, logits[::-1]), stats.entropy(p, q, axis=1), rtol=1e-5)
    np.testing.assert_array_equal(CATEGORICAL.greedy(logits), [2, 0])
    draws = np.asarray(CATEGORICAL.random(KEY, jnp.broadcast_to(logits[0], (20_000, 3))))
    assert stats.chisquare(np.bincount(draws, minlength=3), 20_000 * p[0] / p[0].sum()).pvalue > 0.001


def test_stochastic_policies_are_compared_by_the_kl_of_the_perturbed_one_to_the_clean_one():
    clean, perturbed = jnp.array([[0.0, 1.0, 2.0]]), jnp.array([[3.0, 0.0, 0.0]])
    assert CATEGORICAL.distance(clean, perturbed) == CATEGORICAL.divergence(perturbed, clean)[0]
    assert CATEGORICAL.distance(clean, perturbed) != CATEGORICAL.distance(perturbed, clean)


SEVERAL = MultiCategoricalPolicy(eqx.nn.Identity(), (3, 2))
"""A part of three choices and one of two; the logits are the observation."""
LOGITS = np.log(np.array([[0.2, 0.3, 0.5, 0.9, 0.1], [0.6, 0.3, 0.1, 0.25, 0.75]], np.float32)) + 1.0
TABLES = jax.vmap(SEVERAL)(jnp.asarray(LOGITS))  # [2 rows, 2 parts, 3 choices]


def test_the_probability_of_an_action_with_parts_is_the_product_over_its_parts():
    actions = jnp.array([[2, 1], [0, 0]])
    expected = np.log([0.5 * 0.1, 0.6 * 0.25])
    np.testing.assert_allclose(SEVERAL.log_probability(TABLES, actions), expected, rtol=1e-5)


def test_entropy_and_divergence_of_an_action_with_parts_are_sums_over_its_parts():
    (p, r), (q, s) = ((0.2, 0.3, 0.5), (0.9, 0.1)), ((0.6, 0.3, 0.1), (0.25, 0.75))
    np.testing.assert_allclose(
        SEVERAL.entropy(TABLES), [stats.entropy(p) + stats.entropy(r), stats.entropy(q) + stats.entropy(s)], rtol=1e-5
    )
    divergence = stats.entropy(p, q) + stats.entropy(r, s)
    np.testing.assert_allclose(SEVERAL.divergence(TABLES[:1], TABLES[1:]), [divergence], rtol=1e-5)


def test_the_noise_free_action_with_parts_is_the_likeliest_choice_of_each():
    np.testing.assert_array_equal(noise_free_actions(SEVERAL, jnp.asarray(LOGITS)), [[2, 0], [0, 1]])


def test_draws_of_an_action_with_parts_are_independent_and_never_a_choice_that_does_not_exist():
    draws = np.asarray(SEVERAL.random(KEY, jnp.broadcast_to(TABLES[0], (20_000, 2, 3))))
    counts = np.bincount(2 * draws[:, 0] + draws[:, 1], minlength=6)
    assert draws[:, 1].max() == 1
    assert stats.chisquare(counts, 20_000 * np.outer([0.2, 0.3, 0.5], [0.9, 0.1]).ravel()).pvalue > 0.001


def test_choices_that_do_not_exist_get_no_gradient_and_make_no_nan():
    def objective(logits):
        table = SEVERAL(logits)
        return SEVERAL.log_probability(table, jnp.array([1, 0])) + SEVERAL.entropy(table)

    logits = jnp.asarray(LOGITS[0])
    gradient, step = jax.grad(objective)(logits), 1e-2
    numerical = [(objective(logits + step * e) - objective(logits - step * e)) / (2 * step) for e in np.eye(5)]
    np.testing.assert_allclose(gradient, numerical, atol=2e-3)


def test_parts_of_two_choices_are_bernoullis():
    policy, chances = MultiCategoricalPolicy(eqx.nn.Identity(), (2, 2, 2)), np.array([0.1, 0.5, 0.8])
    table = policy(jnp.asarray(np.log(np.stack([1 - chances, chances], axis=1)).ravel(), jnp.float32))
    expected = stats.bernoulli(chances).logpmf([1, 0, 1]).sum()
    assert policy.log_probability(table, jnp.array([1, 0, 1])) == pytest.approx(expected, rel=1e-5)


SQUASHED = SquashedGaussianPolicy(eqx.nn.Linear(2, 4, key=KEY))


def test_a_squashed_gaussian_has_the_density_that_is_computed_by_hand():
    # mean (0.2, -1), std (0.5, 2), noise (1, 0.25): before tanh (0.7, -0.5).
    values = jnp.array([[0.2, -1.0], [np.log(0.5), np.log(2.0)]])
    noise, before = jnp.array([1.0, 0.25]), np.array([0.7, -0.5])
    np.testing.assert_allclose(SQUASHED.squash(values, noise), np.tanh(before), rtol=1e-6)
    density = stats.norm.pdf(before, [0.2, -1.0], [0.5, 2.0]) / (1 - np.tanh(before) ** 2)
    np.testing.assert_allclose(SQUASHED.log_density(values, noise), np.log(density).sum(), rtol=1e-5)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.5, 0.3), (-0.5, 2.0)])
def test_the_density_of_a_squashed_gaussian_integrates_to_one_over_the_actions(mean, std):
    before = np.linspace(mean - 8 * std, mean + 8 * std, 20_001)
    values = jnp.broadcast_to(jnp.array([[mean], [np.log(std)]]), (before.size, 2, 1))
    log_density = SQUASHED.log_density(values, jnp.asarray((before - mean) / std)[:, None])
    density = np.exp(np.asarray(log_density, np.float64))
    assert np.trapezoid(density, np.tanh(before)) == pytest.approx(1.0, abs=2e-3)


def test_the_density_of_a_squashed_gaussian_is_finite_where_an_action_rounds_to_a_bound():
    values = jnp.array([[30.0, -30.0], [0.0, 0.0]])
    assert np.abs(SQUASHED.squash(values, jnp.zeros(2))).tolist() == [1.0, 1.0]
    # log(1 - tanh^2 x) is log 4 - 2 |x| there.
    expected = 2 * (-0.5 * np.log(2 * np.pi) - (np.log(4.0) - 60.0))
    np.testing.assert_allclose(SQUASHED.log_density(values, jnp.zeros(2)), expected, rtol=1e-6)
    gradient = jax.grad(lambda v: SQUASHED.log_density(v, jnp.ones(2)))(values)
    assert np.isfinite(gradient).all()


def test_a_squashed_gaussian_acts_by_tanh_of_its_mean_and_its_log_std_is_bounded():
    wide = eqx.tree_at(lambda layer: layer.bias, SQUASHED.network, jnp.array([0.5, 9.0, 50.0, -50.0]))
    wide = eqx.tree_at(lambda layer: layer.weight, wide, jnp.zeros((4, 2)))
    values = SquashedGaussianPolicy(wide)(jnp.ones(2))
    np.testing.assert_array_equal(values, np.array([[0.5, 9.0], [2.0, -20.0]], np.float32))
    np.testing.assert_allclose(SQUASHED.greedy(values), np.tanh([0.5, 9.0]), rtol=1e-6)


def test_draws_of_a_squashed_gaussian_have_its_distribution():
    values = jnp.broadcast_to(jnp.array([[0.3], [-0.5]]), (5_000, 2, 1))
    before = np.arctanh(np.asarray(SQUASHED.random(KEY, values), np.float64))[:, 0]
    assert stats.kstest((before - 0.3) / np.exp(-0.5), "norm").pvalue > 0.001


def test_squashed_gaussians_are_compared_by_their_noise_free_actions():
    clean, perturbed = jnp.zeros((3, 2, 2)), jnp.zeros((3, 2, 2)).at[:, 0].set(0.4).at[:, 1].set(1.0)
    assert SQUASHED.distance(clean, perturbed) == pytest.approx(np.tanh(0.4), rel=1e-5)
