import functools

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from probes import NEXT, REWARD, TERMINATED, TIME_LIMIT, true_values
from rollouts import SEGMENTS, handmade
from scipy import stats

from paramnoise import OnPolicyParameterNoise, UsageError
from paramnoise.agents import PPOConfig, Spaces, on_policy, ppo
from paramnoise.experience.rollout import Rollout
from paramnoise.experience.segments import tables
from paramnoise.loops.host import HostLoop
from paramnoise.loops.vector import vector_source
from paramnoise.noise import displace

CONFIG = PPOConfig(hidden_sizes=(4,), batch_size=100, minibatch_size=30, epochs=2, entropy_coefficient=0.01)


@functools.cache
def learner(config=CONFIG, is_discrete=False):
    return ppo.make(config, Spaces(observation=(3,), actions=2, is_discrete=is_discrete))


def first_state(agent):
    return jax.jit(agent.init)(jax.random.key(0))


@functools.cache
def updated():
    """A state, a batch with noise, and what the update on it returns."""
    state = first_state(learner())
    batch = handmade(state.networks.policy)
    return state, batch, jax.jit(learner().update)(state, batch)


def samples_of(state, batch, old):
    """All steps of a batch, with advantages of any kind, and probabilities under old parameters; and the offsets."""
    rng = np.random.default_rng(1)
    flat = [np.asarray(x).reshape(100, *x.shape[2:]) for x in (batch.obs, batch.action)]
    numbers = rng.normal(size=100), rng.normal(size=100), np.zeros(100)
    as_own = lambda x: jnp.asarray(x, old.dtype if x.dtype == np.float32 else None)  # noqa: E731
    samples = jax.tree.map(as_own, ppo.Sample(*flat, SEGMENTS, *numbers))
    _, unflatten = ravel_pytree(state.networks.policy)

    @jax.jit
    def under(old, offsets):
        own = functools.partial(ppo.log_probability, unflatten(old), tables(unflatten(old), offsets))
        return samples._replace(log_probability=jax.vmap(own)(samples))

    offsets = jnp.asarray(batch.offsets, old.dtype)
    return under(old, offsets), offsets


def naive(state, samples, offsets, flat):
    """The loss row by row, each row by a policy of its own: that of its own episode's parameters."""
    policy, values = ravel_pytree(state.networks)[1](flat)
    perturbed = jax.vmap(lambda i: displace(policy, offsets[i]))(samples.segment)
    outputs = jax.vmap(lambda own, obs: own(obs))(perturbed, samples.obs)
    ratio = jnp.exp(policy.log_probability(outputs, samples.action)) / jnp.exp(samples.log_probability)
    advantage = (samples.advantage - samples.advantage.mean()) / (samples.advantage.std() + 1e-8)
    least = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
    squares = (jax.vmap(values)(samples.obs)[:, 0] - samples.returns) ** 2
    return -least.mean() + 0.5 * squares.mean() - 0.01 * policy.entropy(outputs).mean()


@pytest.mark.parametrize("is_discrete", [False, True])
def test_the_gradient_of_the_loss_under_noise_is_that_of_finite_differences(is_discrete):
    with jax.enable_x64(True):
        state = first_state(learner(is_discrete=is_discrete))
        state = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, state)
        batch = handmade(state.networks.policy)
        old = ravel_pytree(state.networks.policy)[0]
        samples, offsets = samples_of(state, batch, old)
        flat, unflatten = ravel_pytree(state.networks)
        flat = flat + 0.1 * jax.random.normal(jax.random.key(2), flat.shape)  # away from the old policy: some are cut
        assert flat.dtype == jnp.float64
        as_tables = functools.partial(tables, state.networks.policy)
        loss = lambda p, offsets: ppo.loss(CONFIG, unflatten(p), as_tables(offsets), samples)  # noqa: E731
        slope = jax.jit(jax.grad(loss, has_aux=True))
        gradient, terms = slope(flat, offsets)
        naively = jax.jit(jax.vmap(functools.partial(naive, state, samples, offsets)))
        step = 1e-6 * jnp.eye(flat.size)
        differences = (naively(flat + step) - naively(flat - step)) / 2e-6
        np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-8)
        of_policy = differences[: old.size]
        assert np.abs(of_policy).max() > 0.01
        assert 0 < terms["clipped"] < 1
        silent, _ = slope(flat, np.zeros_like(offsets))
        assert np.abs(silent[: old.size] - of_policy).max() > 0.01  # the noise matters


def test_a_ratio_beyond_the_range_is_paid_for_its_end_and_costs_in_full():
    state = first_state(learner())
    batch = handmade(state.networks.policy)
    samples, offsets = samples_of(state, batch, ravel_pytree(state.networks.policy)[0])
    two = jax.tree.map(lambda x: np.asarray(x)[:2], samples)
    two = two._replace(advantage=np.array([3.0, 1.0]), log_probability=two.log_probability - np.log(1.5))
    own = tables(state.networks.policy, offsets)
    _, terms = jax.jit(functools.partial(ppo.loss, CONFIG))(state.networks, own, two)
    np.testing.assert_allclose(terms["policy_loss"], -(1.2 - 1.5) / 2, rtol=1e-4)  # standardised: 1 and -1
    np.testing.assert_allclose(terms["kl"], 0.5 - np.log(1.5), rtol=1e-4)
    assert terms["clipped"] == 1


# One environment: an episode that terminates, one that is truncated, and one that the batch cuts. The other: one step.
VALUES = np.array([[10.0, 20.0, 30.0, 40.0, 50.0, 60.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]], np.float32)
NEXT_VALUES = np.array([[20.0, 99.0, 40.0, 44.0, 60.0, 66.0], [7.0, 7.0, 7.0, 7.0, 7.0, 7.0]], np.float32)
PAID = np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]], np.float32)
ENDS = np.array([[0, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], bool)
CUTS = np.array([[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]], bool)


def shown(reward):
    """A batch whose observations are their own values."""
    nothing = np.zeros_like(VALUES, np.int32)
    seen, after = VALUES[..., None], NEXT_VALUES[..., None]
    return Rollout(seen, nothing, reward, after, ENDS, CUTS, nothing, nothing, np.zeros((1, 1)))


estimate = jax.jit(functools.partial(on_policy.estimate, lambda obs: obs, gamma=0.5, gae_lambda=0.2))


def test_advantages_and_returns_bootstrap_at_a_time_limit_and_at_the_cut_and_not_at_a_termination():
    found = estimate(shown(PAID))
    errors = [1 + 10 - 10, 2 - 20, 3 + 20 - 30, 4 + 22 - 40, 5 + 30 - 50, 6 + 33 - 60]
    pairs = [[errors[i] + 0.1 * errors[i + 1], errors[i + 1]] for i in (0, 2, 4)]
    expected = np.array([np.concatenate(pairs), -np.ones(6)])
    np.testing.assert_array_equal(found.values, VALUES)
    np.testing.assert_allclose(found.advantages, expected, rtol=1e-6)
    np.testing.assert_allclose(found.returns, VALUES + expected, rtol=1e-6)


def test_without_any_reward_there_are_no_advantages_and_the_values_learn_on():
    found = estimate(shown(0 * PAID))
    assert not found.advantages.any()
    np.testing.assert_allclose(found.returns[0, 1::2], [0, 0.5 * 44, 0.5 * 66], rtol=1e-6)  # each episode's last step


def test_a_batch_without_reward_moves_no_policy():
    state, batch, (moved, _) = updated()
    after, _ = jax.jit(learner().update)(moved, batch._replace(reward=0 * batch.reward))
    for old, new in zip(jax.tree.leaves(moved.networks.policy), jax.tree.leaves(after.networks.policy), strict=True):
        np.testing.assert_array_equal(old, new)
    assert (moved.networks.values.layers[0].weight != after.networks.values.layers[0].weight).all()
    assert (state.networks.policy.network.layers[0].weight != moved.networks.policy.network.layers[0].weight).all()


def test_an_update_raises_what_was_paid_for_and_says_what_it_did():
    state, _, (after, report) = updated()
    obs = np.random.default_rng(2).normal(size=(50, 3)).astype(np.float32)
    means = [np.asarray(jax.vmap(s.networks.policy)(obs))[:, 0, 0].mean() for s in (state, after)]
    assert means[1] > means[0]
    assert set(report) == {"policy_loss", "value_loss", "entropy", "kl", "clipped", "explained_variance"}
    assert all(value.shape == () and np.isfinite(value) for value in report.values())
    assert report["kl"] > 0
    assert after.updates == 1


def test_each_epoch_has_every_row_once_and_leaves_out_what_fills_no_minibatch():
    order = on_policy.minibatches(jax.random.key(0), rows=25, size=10, epochs=3)
    assert order.shape == (6, 10)
    epochs = [np.sort(epoch.ravel()) for epoch in np.split(np.asarray(order), 3)]
    assert all(len(np.unique(epoch)) == 20 for epoch in epochs)
    assert (epochs[0] != epochs[1]).any()
    whole = on_policy.minibatches(jax.random.key(0), rows=25, size=30, epochs=1)
    np.testing.assert_array_equal(np.sort(whole[0]), np.arange(25))


@pytest.mark.parametrize("rows", [1, 2, 2_048, 2**16 + 1])
def test_an_order_of_rows_is_that_of_their_random_numbers_on_any_device(rows, monkeypatch):
    key = jax.random.PRNGKey(rows)
    order = on_policy.permutation(key, rows)
    np.testing.assert_array_equal(np.sort(order), np.arange(rows))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(on_policy.permutation(key, rows), order)


def test_every_order_of_rows_is_equally_likely():
    orders = jax.vmap(lambda key: on_policy.permutation(key, 3))(jax.random.split(jax.random.PRNGKey(0), 6_000))
    counts = np.unique(np.asarray(orders), axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize("below", [3, 2**16 + 5, 2**32 - 1])  # many that are equal, many with equal halves, few
def test_numbers_are_sorted_by_both_halves_and_equal_ones_stay_in_turn(below):
    numbers = np.random.default_rng(0).integers(0, below, 2_000, np.uint32)
    np.testing.assert_array_equal(on_policy.stable_order(jnp.array(numbers)), np.argsort(numbers, kind="stable"))


def test_the_first_networks_are_orthogonal_and_the_first_actions_near_0():
    state = first_state(learner(PPOConfig(hidden_sizes=(8, 8), initial_std=0.5)))
    for network, gain in ((state.networks.policy.network, 0.01), (state.networks.values, 1.0)):
        first, second, last = (np.asarray(layer.weight) for layer in network.layers)
        np.testing.assert_allclose(first.T @ first, 2 * np.eye(3), atol=1e-5)
        np.testing.assert_allclose(second @ second.T, 2 * np.eye(8), atol=1e-5)
        np.testing.assert_allclose(last @ last.T, gain**2 * np.eye(len(last)), atol=1e-6)
        assert not any(layer.bias.any() for layer in network.layers)
    np.testing.assert_allclose(jnp.exp(state.networks.policy.log_std), [0.5, 0.5], rtol=1e-6)


def test_a_factory_makes_both_networks():
    def linear(observation_shape, outputs, key):
        return eqx.nn.Linear(observation_shape[0], outputs, key=key)

    state = learner(PPOConfig(network=linear)).init(jax.random.key(0))
    assert state.networks.policy.network.module.weight.shape == (2, 3)
    assert state.networks.values.module.weight.shape == (1, 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"clip": 0.0},
        {"gae_lambda": 1.5},
        {"epochs": 0},
        {"minibatch_size": 4_096},
        {"entropy_coefficient": -1.0},
        {"max_grad_norm": 0.0},
        {"learning_rate": "linear:1e-3:0:10"},
    ],
)
def test_a_setting_out_of_range_is_named(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        PPOConfig(**settings)


class Probe(gym.Env):
    """The probe's tables as a Gymnasium environment that starts anywhere; the time limit truncates."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (3,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(3)), 0
        return self._obs(), {}

    def step(self, action):
        reward, terminated = REWARD[self.place, action], TERMINATED[self.place, action]
        self.place, self.time = NEXT[self.place, action], self.time + 1
        return self._obs(), float(reward), bool(terminated), self.time >= TIME_LIMIT, {}

    def _obs(self):
        return np.eye(3, dtype=np.float32)[self.place]


def test_ppo_learns_the_true_values_past_the_time_limit_and_acts_by_them():
    settings = {"hidden_sizes": (16,), "gamma": 0.6, "learning_rate": 0.01}
    config = PPOConfig(**settings, batch_size=256, minibatch_size=64, epochs=8)
    noise = OnPolicyParameterNoise(scaling="adaptive", delta=0.01, adapt_every=8, max_states=20)
    loop = HostLoop(ppo.make(config, Spaces((3,), 2, True)), noise, vector_source(Probe), num_envs=8)
    list(loop.run(256 * 16, eval_every=10_000, eval_episodes=1))
    networks = loop.state().learner.networks
    known = true_values(0.6)
    np.testing.assert_allclose(jax.vmap(networks.values)(jnp.eye(3))[:, 0], known.max(axis=1), atol=0.05)
    np.testing.assert_array_equal(jax.vmap(networks.policy)(jnp.eye(3))[:2].argmax(axis=1), known[:2].argmax(axis=1))
