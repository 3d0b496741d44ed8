import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from paramnoise.networks import BootstrappedQNetwork
from paramnoise.noise import kl_distance, rms_distance
from paramnoise.policies import DeterministicPolicy, GreedyPolicy, VotingPolicy, noise_free_actions

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
