import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from paramnoise import UsageError
from paramnoise.agents import Spaces, es
from paramnoise.agents.es import ESConfig
from paramnoise.experience.returns import Returns, num_parameters
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.normaliser import Normaliser
from paramnoise.networks.policies import noise_free_actions

CONFIG = ESConfig(hidden_sizes=(3,), pairs=4, table_size=1_000)
NOTHING_SEEN = Normaliser(jnp.float32(5), jnp.ones(2), jnp.ones(2))


def learner(config=CONFIG, is_discrete=False):
    return es.make(config, Spaces(observation=(2,), actions=1, is_discrete=is_discrete))


def flat(state):
    return np.asarray(ravel_pytree(state.network)[0])


def batch_of(noise, returns, observed=NOTHING_SEEN):
    """What an update learns from."""
    return es.prepare(Returns(returns, noise, observed), number=0)


def generation(seed=0, pairs=4):
    """Noise and returns of a generation, no two returns equal."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((pairs, num_parameters(learner().init))).astype(np.float32)
    return noise, rng.permutation(2 * pairs).reshape(pairs, 2) * 1.5


@pytest.mark.parametrize(
    ("returns", "ranks"),
    [
        ([30.0, -1.0, 4.0, 1e9, 5.0], [0.25, -0.5, -0.25, 0.5, 0.0]),
        ([1.0, 1.0, 0.0], [0.25, 0.25, -0.5]),
        ([7.0, 7.0], [0.0, 0.0]),
        ([[2.0, 1.0], [4.0, 3.0]], [[-1 / 6, -0.5], [0.5, 1 / 6]]),
    ],
)
def test_ranks_are_centred_and_equal_returns_share_one(returns, ranks):
    np.testing.assert_allclose(es.centred_ranks(np.array(returns)), ranks)


def test_the_gradient_estimate_by_hand():
    noise = np.array([[1.0, 0.0], [2.0, -1.0]], np.float32)
    # Returns +10, -3 and +2, -7: ranks 0.5, -1/6 and 1/6, -0.5.
    weights = es.pair_weights(np.array([[10.0, -3.0], [2.0, -7.0]]))
    np.testing.assert_allclose(weights, [2 / 3, 2 / 3], rtol=1e-6)
    np.testing.assert_allclose(es.gradient_estimate(jnp.asarray(noise), jnp.asarray(weights)), [0.5, -1 / 6], rtol=1e-6)


def test_an_update_is_adam_s_step_along_the_estimate_less_weight_decay():
    agent = learner()
    state = agent.init(jax.random.key(0))
    theta, first, second = flat(state).astype(np.float64), 0.0, 0.0
    for time in range(1, 4):
        noise, returns = generation(time)
        ranks = np.argsort(np.argsort(returns.ravel())).reshape(4, 2) / 7 - 0.5
        ascent = (ranks[:, 0] - ranks[:, 1]) @ noise / 8 - 0.005 * theta
        first, second = 0.9 * first + 0.1 * ascent, 0.999 * second + 0.001 * ascent**2
        theta = theta + 0.01 * first / (1 - 0.9**time) / (np.sqrt(second / (1 - 0.999**time)) + 1e-8)
        state, report = jax.jit(agent.update)(state, batch_of(noise, returns))
        np.testing.assert_allclose(flat(state), theta, atol=2e-6)
    assert state.generation == 3
    assert report["parameter_norm"] == pytest.approx(np.linalg.norm(theta), rel=1e-5)


def test_updates_equal_those_of_evosax():
    algorithms = pytest.importorskip("evosax.algorithms")
    config = ESConfig(hidden_sizes=(3,), pairs=4, table_size=1_000, sigma=1.0, l2=0.003)
    agent = learner(config)
    state = agent.init(jax.random.key(0))
    optimizer = optax.chain(optax.add_decayed_weights(config.l2), optax.adam(config.learning_rate))
    oracle = algorithms.Open_ES(8, jnp.asarray(flat(state)), optimizer=optimizer)
    key, params = jax.random.key(1), oracle.default_params
    theirs = oracle.init(key, jnp.asarray(flat(state)), params)
    for time in range(3):
        population, theirs = oracle.ask(jax.random.fold_in(key, time), theirs, params)
        returns = np.array([0.0, 5.0, 2.0, 2.0, -1.0, 9.0, 3.0, 4.0]) + time * np.arange(8)
        noise = np.asarray(population[:4] - theirs.mean)
        state, _ = agent.update(state, batch_of(noise, np.stack([returns[:4], returns[4:]], axis=1)))
        theirs, _ = oracle.tell(key, population, -jnp.asarray(returns), theirs, params)  # evosax minimises
        np.testing.assert_allclose(flat(state), theirs.mean, atol=1e-5)


def test_a_generation_of_equal_returns_leaves_theta_and_adam_alone():
    agent = learner()
    noise, returns = generation()
    before, _ = agent.update(agent.init(jax.random.key(0)), batch_of(noise, returns))
    after, report = agent.update(before, batch_of(noise, np.zeros((4, 2))))
    jax.tree.map(np.testing.assert_array_equal, after[:2], before[:2])
    assert report["gradient_norm"] == 0
    assert (after.statistics.seen, after.generation) == (10, 2)


@pytest.mark.parametrize("normalises", [True, False])
def test_the_states_of_a_generation_are_merged_into_the_statistics_unless_unwanted(normalises):
    agent = learner(ESConfig(hidden_sizes=(3,), pairs=4, normalise_observations=normalises))
    state = agent.init(jax.random.key(0))
    data = np.random.default_rng(0).normal(2.0, 3.0, (40, 2)).astype(np.float32)
    noise, returns = generation()
    for states in np.split(data, 2):
        seen = normalisers.observe(normalisers.init(2), states)
        state, _ = agent.update(state, batch_of(noise, returns, seen))
    assert state.statistics.seen == (40 if normalises else 0)
    mean, std = (data.mean(0), data.std(0)) if normalises else (0.0, 1.0)
    expected = np.tanh(jax.vmap(state.network)((data - mean) / std))
    np.testing.assert_allclose(noise_free_actions(agent.policy(state), data), expected, atol=1e-5)


def test_the_discrete_policy_takes_the_action_of_the_highest_score():
    agent = es.make(CONFIG, Spaces(observation=(2,), actions=3, is_discrete=True))
    state = agent.init(jax.random.key(0))
    obs = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    actions = noise_free_actions(agent.policy(state), obs)
    np.testing.assert_array_equal(actions, np.argmax(jax.vmap(state.network)(obs), axis=1))
    assert len(set(actions.tolist())) > 1


def test_first_outputs_are_small_and_hidden_weights_are_not():
    network = learner().init(jax.random.key(0)).network
    np.testing.assert_allclose(jnp.linalg.norm(network.layers[0].weight, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(jnp.linalg.norm(network.layers[1].weight, axis=1), 0.01, rtol=1e-5)
    assert not network.layers[0].bias.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": 0}, "pairs must be at least 1, not 0"),
        ({"sigma": 0.0}, "sigma must be above 0, not 0.0"),
        ({"l2": -1.0}, "l2 must be at least 0, not -1.0"),
        ({"hidden_sizes": (0,)}, r"hidden_sizes must be all at least 1, not \(0,\)"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"table_size": 12}, "table_size must be at least the 13 parameters of the policy, not 12"),
    ],
)
def test_settings_outside_their_bounds_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        learner(ESConfig(**{"hidden_sizes": (3,), **settings}))
