import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.agents import baseline

advantages, discounted_returns, fit = map(jax.jit, (baseline.advantages, baseline.discounted_returns, baseline.fit))

# One environment: an episode that terminates, one that is truncated, and one that the batch cuts.
REWARD = jnp.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
TERMINATED = jnp.array([[False, True, False, False, False, False]])
TRUNCATED = jnp.array([[False, False, False, True, False, False]])
VALUES = jnp.array([[10.0, 20.0, 30.0, 40.0, 50.0, 60.0]])
NEXT_VALUES = jnp.array([[20.0, 99.0, 40.0, 44.0, 60.0, 66.0]])  # 99 must not matter, 44 and 66 must


def test_returns_bootstrap_at_a_truncation_and_at_the_cut_and_not_at_a_termination():
    returns = discounted_returns(REWARD, TERMINATED, TRUNCATED, NEXT_VALUES, gamma=0.5)
    fourth, sixth = 4 + 0.5 * 44, 6 + 0.5 * 66
    np.testing.assert_allclose(returns, [[1 + 0.5 * 2, 2, 3 + 0.5 * fourth, fourth, 5 + 0.5 * sixth, sixth]])


def test_advantages_sum_the_errors_within_an_episode():
    estimates = advantages(REWARD, TERMINATED, TRUNCATED, VALUES, NEXT_VALUES, gamma=0.5, gae_lambda=0.2)
    errors = [1 + 10 - 10, 2 - 20, 3 + 20 - 30, 4 + 22 - 40, 5 + 30 - 50, 6 + 33 - 60]
    pairs = [[errors[i] + 0.1 * errors[i + 1], errors[i + 1]] for i in (0, 2, 4)]
    np.testing.assert_allclose(estimates, [np.concatenate(pairs)], rtol=1e-6)


def test_with_lambda_1_advantages_are_the_returns_less_the_values():
    estimates = advantages(REWARD, TERMINATED, TRUNCATED, VALUES, NEXT_VALUES, 0.9, 1.0)
    # Inside an episode the next value is that of the next row; then all but the ends cancels.
    returns = discounted_returns(REWARD, TERMINATED, TRUNCATED, NEXT_VALUES, 0.9)
    np.testing.assert_allclose(estimates, returns - VALUES, rtol=1e-5)


def test_environments_do_not_touch_each_other():
    both = [jnp.concatenate([x, 2 * x]) for x in (REWARD, VALUES, NEXT_VALUES)]
    ends = [jnp.concatenate([x, x]) for x in (TERMINATED, TRUNCATED)]
    estimates = advantages(both[0], *ends, both[1], both[2], 0.9, 0.8)
    alone = advantages(REWARD, TERMINATED, TRUNCATED, VALUES, NEXT_VALUES, 0.9, 0.8)
    np.testing.assert_allclose(estimates, jnp.concatenate([alone, 2 * alone]), rtol=1e-6)


def test_features_are_those_of_rllab():
    row = baseline.features(jnp.array([2.0, -30.0]), jnp.int32(50))
    np.testing.assert_allclose(row, [2, -10, 4, 100, 0.5, 0.25, 0.125, 1], rtol=1e-6)
    assert row.shape == (baseline.num_features(2),)


def test_the_fit_is_numpy_s_least_squares_with_a_ridge():
    rng = np.random.default_rng(0)
    obs, time = rng.normal(size=(3, 400, 4)).astype(np.float32), rng.integers(0, 900, (3, 400))
    returns = (obs @ [1.0, -2.0, 0.5, 3.0] + 0.01 * time + rng.normal(size=(3, 400))).astype(np.float32)
    weights = fit(jnp.asarray(obs), jnp.asarray(time), jnp.asarray(returns))
    design = np.asarray(baseline.features(jnp.asarray(obs), jnp.asarray(time)), np.float64).reshape(1200, -1)
    ridge = np.concatenate([design, np.sqrt(baseline.RIDGE) * np.eye(12)])
    expected, *_ = np.linalg.lstsq(ridge, np.append(returns.reshape(-1), np.zeros(12)))
    np.testing.assert_allclose(weights, expected, rtol=2e-3, atol=2e-3)
    predicted = baseline.predict(weights, jnp.asarray(obs), jnp.asarray(time)).reshape(-1)
    np.testing.assert_allclose(predicted, design @ expected, rtol=1e-3, atol=1e-3)


def test_observations_that_never_change_do_not_break_the_fit():
    obs = jnp.ones((1, 50, 3))  # columns that equal each other and the constant
    weights = fit(obs, jnp.arange(50)[None], jnp.full((1, 50), 7.0))
    np.testing.assert_allclose(baseline.predict(weights, obs, jnp.arange(50)[None]), 7.0, rtol=1e-3)


def test_explained_variance_is_1_for_a_perfect_and_0_for_a_constant_prediction():
    returns = jnp.array([1.0, 2.0, 4.0])
    assert baseline.explained_variance(returns, returns) == 1
    assert baseline.explained_variance(jnp.zeros(3), returns) == 0
    assert baseline.explained_variance(jnp.zeros(3), jnp.ones(3)) == 0
