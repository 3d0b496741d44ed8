import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.special import softmax
from scipy.stats import entropy

from paramnoise.noise import delta_from_epsilon, epsilon_from_delta, kl_distance, rms_distance

LOGITS = npst.arrays(np.float32, (5, 3), elements=st.floats(-10, 10, width=32))
HALVES, QUARTERS = np.log([0.5, 0.5]), np.log([0.25, 0.75])


def test_kl_of_two_actions_by_hand():
    # 0.5 log(0.5 / 0.25) + 0.5 log(0.5 / 0.75) = 0.5 log(4 / 3)
    assert kl_distance(HALVES, QUARTERS) == pytest.approx(0.5 * np.log(4 / 3), rel=1e-5)


def test_kl_is_taken_from_the_clean_to_the_perturbed_policy():
    # The other way round: 0.25 log(0.25 / 0.5) + 0.75 log(0.75 / 0.5)
    assert kl_distance(QUARTERS, HALVES) == pytest.approx(0.75 * np.log(3) - np.log(2), rel=1e-5)
    assert kl_distance(QUARTERS, HALVES) != pytest.approx(float(kl_distance(HALVES, QUARTERS)), rel=0.05)


def test_kl_is_the_mean_over_states():
    pair = np.stack([HALVES, HALVES]), np.stack([QUARTERS, HALVES])
    assert kl_distance(*pair) == pytest.approx(0.25 * np.log(4 / 3), rel=1e-5)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(LOGITS, LOGITS)
def test_kl_agrees_with_scipy(logits: np.ndarray, perturbed: np.ndarray):
    expected = entropy(softmax(logits.astype(float), axis=1), softmax(perturbed.astype(float), axis=1), axis=1).mean()
    assert kl_distance(logits, perturbed) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(LOGITS, LOGITS, npst.arrays(np.float32, (5, 1), elements=st.floats(-100, 100, width=32)))
def test_a_constant_added_to_all_values_of_a_state_changes_no_kl(
    logits: np.ndarray, perturbed: np.ndarray, shift: np.ndarray
):
    assert kl_distance(logits, perturbed + shift) == pytest.approx(float(kl_distance(logits, perturbed)), abs=1e-3)


def test_kl_of_equal_policies_is_zero():
    values = np.array([[3.0, -1.0, 40.0], [0.0, 0.0, 0.0]])
    assert kl_distance(values, values) == 0


def test_kl_of_very_different_values_stays_finite():
    # log(softmax) of (0, 1000) puts all on one action; the clean policy all on the other.
    assert kl_distance([1000.0, 0.0], [0.0, 1000.0]) == pytest.approx(1000.0)


def test_rms_by_hand():
    # Differences 3, 4, 0, 0: sqrt(25 / 4)
    assert rms_distance([[1.0, 1.0], [0.0, 2.0]], [[4.0, -3.0], [0.0, 2.0]]) == pytest.approx(2.5)


def test_rms_against_gaussian_action_noise_is_its_standard_deviation():
    actions = np.random.default_rng(0).uniform(-1, 1, (10_000, 4))
    shocks = np.random.default_rng(1).normal(0, 0.2, actions.shape)
    assert rms_distance(actions, actions + shocks) == pytest.approx(0.2, rel=4 / np.sqrt(2 * actions.size))


@pytest.mark.parametrize(
    ("epsilon", "num_actions", "delta"),
    [
        (0.0, 4, 0.0),
        (1.0, 2, np.log(2)),
        (1.0, 4, np.log(4)),
        (0.5, 2, -np.log(0.75)),
        (0.1, 18, -np.log(0.9 + 0.1 / 18)),
    ],
)
def test_delta_from_epsilon_by_hand(epsilon: float, num_actions: int, delta: float):
    assert delta_from_epsilon(epsilon, num_actions) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("num_actions", [2, 6])
def test_delta_is_the_kl_from_the_greedy_to_the_epsilon_greedy_policy(epsilon: float, num_actions: int):
    greedy = np.eye(num_actions)[0]
    exploring = (1 - epsilon) * greedy + epsilon / num_actions
    assert delta_from_epsilon(epsilon, num_actions) == pytest.approx(entropy(greedy, exploring), rel=1e-5)


def test_delta_follows_an_array_of_epsilons():
    delta = delta_from_epsilon(jnp.array([0.0, 1.0]), 2)
    np.testing.assert_allclose(delta, [0.0, np.log(2)], rtol=1e-6)


@pytest.mark.parametrize(
    ("delta", "num_actions", "epsilon"), [(0.0, 4, 0.0), (np.log(2), 3, 0.75), (np.log(18), 18, 1.0)]
)
def test_epsilon_from_delta_by_hand(delta: float, num_actions: int, epsilon: float):
    assert epsilon_from_delta(delta, num_actions) == pytest.approx(epsilon, abs=1e-6)


def test_epsilon_and_delta_are_each_other_s_opposite():
    for epsilon in (1e-3, 0.1, 0.9):
        assert epsilon_from_delta(delta_from_epsilon(epsilon, 6), 6) == pytest.approx(epsilon, rel=1e-4)
