import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from rollouts import SEGMENTS, STEPS, handmade

from paramnoise import UsageError
from paramnoise.agents import Spaces, baseline, on_policy, trpo
from paramnoise.agents.trpo import TRPOConfig
from paramnoise.noise import displace

CONFIG = TRPOConfig(hidden_sizes=(4,), batch_size=100, fisher_fraction=0.5)


@functools.cache
def learner(config=CONFIG, is_discrete=False):
    return trpo.make(config, Spaces(observation=(3,), actions=2, is_discrete=is_discrete))


def first_state(agent):
    return jax.jit(agent.init)(jax.random.key(0))


def rollout(state, config=CONFIG, **how):
    """A batch, cut up."""
    return jax.tree.map(jnp.asarray, trpo.prepare(config, handmade(state.policy, **how), number=0))


def changed(batch, **fields):
    """The batch with other fields in its rollout."""
    return batch._replace(rollout=batch.rollout._replace(**fields))


def surrogate(state, batch, advantage, config=CONFIG):
    return trpo.make_surrogate(config, state.policy, batch, jnp.asarray(advantage))


def naive(state, batch, advantage, flat):
    """Gain and KL row by row, each with the parameters of its own episode."""
    policy, (obs, action) = state.policy, batch.rollout[:2]
    obs, action = obs.reshape(100, 3), action.reshape(100, *action.shape[2:])
    old_flat, unflatten = ravel_pytree(policy)
    offset = batch.rollout.offsets[SEGMENTS]
    values = lambda p: jax.vmap(lambda d, o: unflatten(p + d)(o))(offset, obs)  # noqa: E731
    new, old = values(flat), values(old_flat)
    ratio = jnp.exp(policy.log_probability(new, action) - policy.log_probability(old, action))
    return jnp.mean(advantage * (ratio - 1)), jnp.mean(policy.divergence(old, new))


@pytest.mark.parametrize("is_discrete", [False, True])
def test_the_gradient_of_the_surrogate_is_that_of_finite_differences(is_discrete):
    with jax.enable_x64(True):
        state = first_state(learner(is_discrete=is_discrete))
        state = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, state)
        batch = rollout(state)
        as_double = lambda x: x.astype(jnp.float64)  # noqa: E731
        batch = changed(batch, offsets=as_double(batch.rollout.offsets), obs=as_double(batch.rollout.obs))
        advantage = np.random.default_rng(1).normal(size=100)
        flat = ravel_pytree(state.policy)[0]
        assert flat.dtype == jnp.float64
        gradient, _, _ = jax.jit(surrogate(state, batch, advantage).linearise)(flat)
        gain = jax.jit(jax.vmap(lambda p: naive(state, batch, advantage, p)[0]))
        step = 1e-5 * jnp.eye(flat.size)
        differences = (gain(flat + step) - gain(flat - step)) / 2e-5
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-9)
        assert np.abs(differences).max() > 0.01


def test_gain_and_kl_are_measured_under_each_episode_s_own_noise():
    state = first_state(learner())
    batch, advantage = rollout(state), np.random.default_rng(1).normal(size=100).astype(np.float32)
    objective = surrogate(state, batch, advantage)
    flat = ravel_pytree(state.policy)[0]
    _, old, _ = jax.jit(objective.linearise)(flat)
    moved = flat + 0.1 * jax.random.normal(jax.random.key(1), flat.shape)
    gain, kl = jax.jit(objective.compare)(moved, old)
    np.testing.assert_allclose((gain, kl), jax.jit(naive)(state, batch, advantage, moved), rtol=1e-3)
    quiet = changed(batch, offsets=0 * batch.rollout.offsets)
    assert abs(kl - naive(state, quiet, advantage, moved)[1]) > 0.05 * kl  # the noise matters


def test_fisher_products_are_those_of_the_kl_s_hessian_on_the_subsample():
    state = first_state(learner())
    batch = rollout(state)
    seen = batch.rollout
    flat, unflatten = ravel_pytree(state.policy)
    obs, offset = seen.obs.reshape(100, 3)[::2], seen.offsets[SEGMENTS[::2]]
    values = lambda p: jax.vmap(lambda d, o: unflatten(p + d)(o))(offset, obs)  # noqa: E731
    old = values(flat)
    hessian = jax.jit(jax.hessian(lambda p: jnp.mean(state.policy.divergence(old, values(p)))))(flat)
    product = jax.jit(surrogate(state, batch, np.zeros(100)).fisher_product)
    vector = jax.random.normal(jax.random.key(2), flat.shape)
    np.testing.assert_allclose(product(flat, vector), hessian @ vector, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_an_update_improves_the_surrogate_within_the_trust_region(is_discrete):
    agent = learner(is_discrete=is_discrete)
    state = first_state(agent)
    batch = rollout(state)
    after, report = jax.jit(agent.update)(state, batch)
    assert report["accepted"] == 1
    assert report["improvement"] > 0
    assert 0.001 < report["kl"] <= CONFIG.delta_kl
    seen = batch.rollout
    values = baseline.predict(state.baseline, seen.obs, seen.time)
    ends = (seen.reward, seen.terminated, seen.truncated)
    advantage = baseline.standardise(baseline.advantages(*ends, values, values, 0.99, 1.0)).reshape(-1)
    gain, kl = naive(state, batch, advantage, ravel_pytree(after.policy)[0])
    np.testing.assert_allclose((report["improvement"], report["kl"]), (gain, kl), rtol=1e-3)


def test_the_baseline_is_fitted_after_the_update_on_the_returns_of_the_batch():
    agent = learner()
    state = first_state(agent)
    assert not state.baseline.any()
    batch = rollout(state)
    after, report = jax.jit(agent.update)(state, batch)
    assert report["explained_variance"] == 0  # by the baseline of before, which says 0
    seen = batch.rollout
    returns = baseline.discounted_returns(seen.reward, seen.terminated, seen.truncated, 0 * seen.reward, 0.99)
    np.testing.assert_allclose(after.baseline, baseline.fit(seen.obs, seen.time, returns), rtol=1e-3, atol=1e-3)


def test_a_network_of_values_takes_the_baseline_s_place_and_learns():
    values = {"value_learning_rate": 0.01, "value_minibatch_size": 30}
    config = dataclasses.replace(CONFIG, baseline="network", gae_lambda=0.9, **values)
    agent = learner(config)
    state = first_state(agent)
    batch = rollout(state, config)
    np.testing.assert_array_equal(ravel_pytree(state.policy)[0], ravel_pytree(first_state(learner()).policy)[0])
    update = jax.jit(agent.update)
    after, report = update(state, batch)
    seen = batch.rollout
    found = on_policy.estimate(state.baseline.network, seen, 0.99, 0.9)
    gain, kl = naive(state, batch, baseline.standardise(found.advantages).reshape(-1), ravel_pytree(after.policy)[0])
    np.testing.assert_allclose((report["improvement"], report["kl"]), (gain, kl), rtol=1e-3)
    assert 0 < kl <= config.delta_kl
    errors = [
        jnp.mean((on_policy.predict(values.network, seen.obs) - found.returns) ** 2)
        for values in (state.baseline, after.baseline)
    ]
    assert errors[1] < 0.95 * errors[0]
    quiet = changed(batch, reward=0 * seen.reward)
    stayed, report = update(after, quiet)
    assert_untouched(after, stayed, report)


def assert_untouched(state, after, report):
    assert report["accepted"] == 0
    assert report["kl"] == 0
    for old, new in zip(jax.tree.leaves(state.policy), jax.tree.leaves(after.policy), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_step_that_violates_the_trust_region_is_rejected_and_leaves_the_policy_untouched():
    config = dataclasses.replace(CONFIG, max_backtracks=1)
    agent = learner(config)
    state = first_state(agent)
    batch = rollout(state, config)
    # The Fisher matrix sees even rows alone, where the policy hardly depends on its weights: the step is too long.
    obs = np.where(np.arange(STEPS)[:, None] % 2 == 0, 0.01, 1.0) * batch.rollout.obs
    batch = changed(batch, obs=jnp.asarray(obs, jnp.float32))
    after, report = jax.jit(agent.update)(state, batch)
    assert report["backtracks"] == 1
    assert_untouched(state, after, report)
    _, accepted = jax.jit(learner().update)(state, batch)  # with more tries there is a shorter step
    assert accepted["accepted"] == 1
    assert 0 < accepted["kl"] <= config.delta_kl


def test_a_step_that_improves_nothing_is_rejected():
    agent = learner()
    state = first_state(agent)
    batch = rollout(state)
    after, report = jax.jit(agent.update)(state, changed(batch, reward=jnp.zeros_like(batch.rollout.reward)))
    assert report["backtracks"] == CONFIG.max_backtracks
    assert_untouched(state, after, report)


def test_a_batch_without_reward_moves_no_policy_and_leaves_no_baseline():
    agent = learner()
    state = agent.init(jax.random.key(0))
    batch = rollout(state)
    seen = batch.rollout
    learned = state._replace(baseline=jnp.linspace(-1, 1, state.baseline.size))  # as of an earlier, rewarded batch
    cut = changed(batch, reward=0 * seen.reward, terminated=seen.truncated, truncated=seen.terminated)
    after, report = jax.jit(agent.update)(learned, cut)
    assert_untouched(learned, after, report)
    assert not after.baseline.any()
    one_reward = changed(cut, reward=cut.rollout.reward.at[0, 0].set(1.0))
    after, report = jax.jit(agent.update)(learned, one_reward)
    assert report["accepted"] == 1
    assert after.baseline.any()


def test_an_offset_of_0_is_the_policy_itself():
    state = first_state(learner())
    flat = ravel_pytree(state.policy)[0]
    np.testing.assert_array_equal(ravel_pytree(displace(state.policy, jnp.zeros_like(flat)))[0], flat)


def test_the_first_policy_is_rllab_s():
    state = learner(TRPOConfig(hidden_sizes=(400,), initial_std=0.5)).init(jax.random.key(0))
    first, last = state.policy.network.layers
    assert not first.bias.any()
    np.testing.assert_allclose(jnp.abs(first.weight).max(), np.sqrt(6 / 403), rtol=0.05)
    np.testing.assert_allclose(jnp.abs(last.weight).max(), np.sqrt(6 / 402), rtol=0.05)
    np.testing.assert_allclose(jnp.exp(state.policy.log_std), [0.5, 0.5], rtol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"delta_kl": 0.0},
        {"fisher_fraction": 0.0},
        {"gae_lambda": 1.5},
        {"batch_size": 0},
        {"shrinkage": 1.0},
        {"baseline": "cubic"},
    ],
)
def test_a_setting_out_of_range_is_named(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        TRPOConfig(**settings)
