"""PQN: the Q(lambda) returns it learns from, its train steps, and the loops that it learns in."""

import functools

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from probes import probe, true_values

import paramnoise as pn
from paramnoise import UsageError
from paramnoise.agents import PQNConfig, Spaces, find_agent, pqn
from paramnoise.experience.rollout import Rollout
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.loops.host import HostLoop
from paramnoise.loops.vector import vector_source

CONFIG = PQNConfig(hidden_sizes=(8,), rollout_steps=6, minibatches=2)


def shown(next_values, **fields):
    """A batch of one environment whose next observations are the best of two values."""
    best = np.array([next_values], np.float32)
    next_obs = np.stack([best - 1, best], axis=-1)
    blank = np.zeros(best.shape, bool)
    rows = {name: np.array([values]) for name, values in fields.items()}
    batch = {"terminated": blank, "truncated": blank, "action": blank.astype(np.int32), **rows}
    return Rollout(obs=next_obs, next_obs=next_obs, time=None, segment=None, offsets=None, **batch)


def found(q_lambda, batch):
    config = PQNConfig(gamma=0.5, q_lambda=q_lambda)
    return np.asarray(jax.jit(functools.partial(pqn.targets, config, lambda obs: obs))(batch))[0]


# Episodes of steps 0 and 1, which terminates; of 2 and 3, which a time limit cuts; of 4, which the batch's end cuts.
BATCH = shown(
    [4.0, 8.0, 2.0, 6.0, 10.0],
    reward=np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32),
    terminated=np.array([0, 1, 0, 0, 0], bool),
    truncated=np.array([0, 0, 0, 1, 0], bool),
)


def test_a_return_mixes_what_follows_with_the_best_value_there_and_only_a_termination_ends_it():
    by_hand = [
        1 + 0.5 * (0.5 * 4 + 0.5 * 2),
        2.0,  # terminated: the 8 there counts nothing
        3 + 0.5 * (0.5 * 2 + 0.5 * 7),
        4 + 0.5 * 6,  # a time limit: the value of what it showed last, and nothing of the next episode
        5 + 0.5 * 10,  # the batch's end
    ]
    np.testing.assert_allclose(found(0.5, BATCH), by_hand, rtol=1e-6)


def test_lambda_0_looks_one_step_ahead_and_lambda_1_as_far_as_there_are_rewards():
    np.testing.assert_allclose(found(0.0, BATCH), [1 + 2, 2, 3 + 1, 4 + 3, 5 + 5], rtol=1e-6)
    np.testing.assert_allclose(found(1.0, BATCH), [1 + 1, 2, 3 + 3.5, 7, 10], rtol=1e-6)


def test_a_train_step_is_one_of_rectified_adam_on_half_the_squared_error_to_fixed_targets():
    config = PQNConfig(hidden_sizes=(3,), minibatches=1, epochs=1, learning_rate=0.1, max_grad_norm=0.5)
    learner = pqn.make(config, Spaces((2,), 2, True))
    state = jax.jit(learner.init)(jax.random.key(0))
    batch = BATCH._replace(action=np.array([[0, 1, 1, 0, 1]], np.int32))
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.radam(0.1))

    @jax.jit
    def by_hand(network):
        wanted = pqn.targets(config, network, batch)[0]

        def error(network):
            values = jax.vmap(network)(batch.obs[0])
            return 0.5 * jnp.mean((values[jnp.arange(5), batch.action[0]] - wanted) ** 2)

        loss, gradient = jax.value_and_grad(error)(network)
        return loss, optimizer.update(gradient, optimizer.init(network), network)[0]

    loss, changes = by_hand(state.network)
    after, terms = jax.jit(learner.update)(state, batch)
    for new, old, change in zip(*map(jax.tree.leaves, (after.network, state.network, changes)), strict=True):
        np.testing.assert_allclose(new, old + change, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(terms["q_loss"], loss, rtol=1e-5)
    assert set(terms) == {"q_loss", "q_mean"}
    assert after.updates == 1


def test_it_learns_the_true_values_past_the_time_limit():
    settings = {"hidden_sizes": (16,), "gamma": 0.6, "q_lambda": 0.0, "learning_rate": 6e-3}
    learner = pqn.make(PQNConfig(**settings, rollout_steps=8, minibatches=4), Spaces((3,), 2, True))
    loop = CompiledLoop(learner, pn.EpsilonGreedy(epsilon_end=1.0), probe(), seeds=[0, 1], eval_every=4_000, num_envs=4)
    rows = loop.run(1)
    for seed in (0, 1):
        np.testing.assert_allclose(jax.vmap(loop.policy(seed))(jnp.eye(3)), true_values(0.6), atol=0.03)
    np.testing.assert_allclose(rows["eval_return_mean"], 1.0, atol=1e-6)
    assert (rows["step"] == 4_000 // 32 * 32).all()


def outside(exploration):
    source = vector_source(lambda: gym.make("CartPole-v1"))
    return HostLoop(pqn.make(CONFIG, Spaces((4,), 2, True)), exploration, source, num_envs=2, log_every=12)


def run(loop, steps):
    return [row for (row,) in loop.run(steps, eval_every=24, eval_episodes=1)]


def test_a_loop_on_a_gymnasium_environment_that_is_restored_within_a_batch_goes_on_exactly():
    exploration = pn.ParameterNoise(delta=0.1, adapt_every=5)
    whole = outside(exploration)
    rows = run(whole, 48)
    first = outside(exploration)
    before = run(first, 28)
    again = outside(exploration)
    again.restore(*first.snapshot())
    after = run(again, 48)
    np.testing.assert_equal(before[:2] + after, rows)
    for one, other in zip(jax.tree.leaves(whole.state()), jax.tree.leaves(again.state()), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(whole.state().learner.updates) == 4


def test_parameter_noise_is_adapted_on_every_batch_as_often_as_is_due():
    rows = run(outside(pn.ParameterNoise(delta=0.1, adapt_every=5)), 48)
    assert [row["adaptations"] for row in rows] == [12 // 5, 24 // 5, 36 // 5, 48 // 5]
    assert rows[-1]["distance"] >= 0


def test_noisy_layers_are_not_its_own_and_its_explorations_are():
    entry = find_agent("pqn")
    assert entry.explorations == ["none", "epsilon-greedy", "parameter"]
    with pytest.raises(UsageError, match="'gaussian' does not fit pqn, whose actions are discrete: choose from none"):
        entry.check_exploration(pn.Gaussian())


@pytest.mark.parametrize(
    "settings",
    [
        {"q_lambda": 1.5},
        {"gamma": -0.1},
        {"rollout_steps": 0},
        {"minibatches": 0},
        {"epochs": 0},
        {"max_grad_norm": 0.0},
        {"hidden_sizes": (0,)},
        {"learning_rate": "linear:1e-3:0:10"},
    ],
)
def test_a_setting_out_of_range_is_named(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        PQNConfig(**settings)
