import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import aim_for_ever

from paramnoise import UsageError
from paramnoise.agents import Spaces, td3
from paramnoise.agents.actor_critic import values_of
from paramnoise.agents.td3 import TD3Config
from paramnoise.experience.replay import Transition
from paramnoise.explorations import Gaussian
from paramnoise.loops.compiled import CompiledLoop

SPACES = Spaces(observation=(3,), actions=2, is_discrete=False)


def sum_of_actions(shape, outputs, key):
    """A critic of the user's: Q(s, a) is a factor of its own times the sum of a."""

    class Sum(eqx.Module):
        factor: jax.Array

        def __call__(self, obs, action):
            return self.factor * jnp.sum(action)

    return Sum(jax.random.uniform(key, (), minval=1.0, maxval=2.0))


CONFIG = TD3Config(hidden_sizes=(8,), gamma=0.5, batch_size=2, normalise_observations=False)
LEARNER = td3.make(CONFIG, SPACES)
UPDATE = jax.jit(LEARNER.update)
TD_ERRORS = jax.jit(functools.partial(td3.td_errors, CONFIG))


def batch(terminated=(False, True)):
    keys = jax.random.split(jax.random.key(1), 2)
    return Transition(
        obs=jax.random.normal(keys[0], (2, 3)),
        action=jnp.array([[0.5, -0.5], [0.0, 1.0]]),
        reward=jnp.array([1.0, 2.0]),
        next_obs=jax.random.normal(keys[1], (2, 3)),
        terminated=jnp.array(terminated),
    )


def row(i):
    return jax.tree.map(lambda part: part[i], batch())


def constant(critic, value):
    """The critic with `value` for its answer, whatever the question."""
    place = lambda c: (c.layers[-1].weight, c.layers[-1].bias)  # noqa: E731
    return eqx.tree_at(place, critic, (jnp.zeros((1, 8)), jnp.array([value])))


@pytest.fixture(scope="module")
def state():
    return jax.jit(LEARNER.init)(jax.random.key(0))


def test_the_two_critics_are_different_and_see_the_action_from_the_first_layer_on(state):
    first, second = state.networks.critics
    assert [layer.weight.shape for layer in first.layers] == [(8, 3 + 2), (1, 8)]
    assert not eqx.tree_equal(first, second)
    assert first(jnp.ones(3), jnp.array([1.0, 0.0])) != first(jnp.ones(3), jnp.array([0.0, 1.0]))


@pytest.mark.parametrize("low_first", [True, False])
def test_both_critics_learn_toward_the_lower_of_the_targets_unless_terminated(state, low_first):
    first, second = state.networks.critics
    low, high = constant(first, 4.0), constant(second, 7.0)
    critics = (low, high) if low_first else (high, low)
    targets = state.targets._replace(critics=critics)
    errors = [TD_ERRORS(critics, targets, row(i), jnp.zeros(2)) for i in range(2)]
    said = np.array([4.0, 7.0]) if low_first else np.array([7.0, 4.0])
    np.testing.assert_allclose(errors[0], said - (1.0 + 0.5 * 4.0), rtol=1e-6)
    np.testing.assert_allclose(errors[1], said - 2.0, rtol=1e-6)


def test_the_target_is_smoothed_over_actions_that_stay_within_bounds():
    config = TD3Config(hidden_sizes=(8,), gamma=0.5, critic_network=sum_of_actions)
    state = td3.make(config, SPACES).init(jax.random.key(0))
    factors = np.array([critic.network.module.factor for critic in state.targets.critics])
    action = state.targets.actor(row(0).next_obs)  # near 0
    for noise in (jnp.zeros(2), jnp.array([0.3, 0.2]), jnp.array([0.4, 3.0])):
        errors = td3.td_errors(config, state.networks.critics, state.targets, row(0), noise)
        target = 1.0 + 0.5 * min(factors * np.sum(np.clip(action + noise, -1.0, 1.0)))
        np.testing.assert_allclose(errors, 0.0 - target, rtol=1e-5)  # the action of the transition adds up to 0


def test_the_noise_of_the_target_has_its_width_and_is_clipped():
    noise = np.asarray(td3.target_noise(TD3Config(target_noise=0.2), jax.random.key(0), (5_000, 2)))
    assert np.abs(noise).max() == 0.5  # 2.5 sigma, which some of 10,000 draws exceed
    assert noise.std() == pytest.approx(0.2 * 0.986, rel=0.03)  # a normal clipped at 2.5 sigma
    other = td3.target_noise(TD3Config(target_noise=9.0, target_noise_clip=0.1), jax.random.key(0), (50, 2))
    assert np.abs(other).max() == np.float32(0.1)


def test_the_noise_of_the_target_is_new_at_every_update(state):
    config = TD3Config(hidden_sizes=(8,), critic_network=sum_of_actions, critic_learning_rate=1e-9, policy_delay=50)
    learner = td3.make(config, SPACES)
    update, losses, now = jax.jit(learner.update), [], learner.init(jax.random.key(0))
    for _ in range(3):
        now, terms = update(now, batch())
        losses.append(float(terms["critic_loss"]))
    assert len(set(losses)) == 3


def test_the_actor_and_the_targets_learn_at_every_second_update_and_the_critics_at_each(state):
    changed, now = [], state
    for _ in range(4):
        after, terms = UPDATE(now, batch())
        parts = [(now.networks.critics, after.networks.critics), (now.networks.actor, after.networks.actor)]
        parts += [(now.targets.critics, after.targets.critics), (now.targets.actor, after.targets.actor)]
        changed.append([not eqx.tree_equal(*pair) for pair in parts])
        assert float(terms["actor_loss"]) == float(after.actor_loss)
        now = after
    assert changed == [[True, False, False, False], [True, True, True, True]] * 2
    assert now.updates == 4


def test_targets_move_by_tau_toward_the_networks_of_after(state):
    before, _ = UPDATE(state, batch())
    after, _ = UPDATE(before, batch())
    for old, new, target in zip(*map(jax.tree.leaves, (before.targets, after.networks, after.targets)), strict=True):
        np.testing.assert_allclose(target, 0.995 * old + 0.005 * new, rtol=1e-5, atol=1e-7)


def test_the_actor_climbs_the_first_critic_as_it_is_after_its_own_step(state):
    before, _ = UPDATE(state, batch())
    after, terms = UPDATE(before, batch())
    obs = batch().obs
    loss = jax.jit(jax.value_and_grad(functools.partial(td3.actor_loss, CONFIG)))
    value, gradient = loss(before.networks.actor, after.networks.critics, obs)
    np.testing.assert_allclose(terms["actor_loss"], value, rtol=1e-5)
    first, second = after.networks.critics
    assert (
        loss(before.networks.actor, (first, first), obs)[0]
        == value
        != loss(before.networks.actor, (second, first), obs)[0]
    )
    moves = jax.tree.map(
        lambda old, new: np.asarray(new) - np.asarray(old), before.networks.actor, after.networks.actor
    )
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(moves), strict=True)
    assert sum(np.vdot(slope, move) for slope, move in pairs) < 0


def test_the_actor_may_climb_the_lesser_of_both_critics_at_each_observation(state):
    actor, obs = state.networks.actor, batch().obs
    first, second = state.networks.critics
    second = constant(second, np.mean([first(o, actor(o)) for o in obs]))
    values = np.array([[critic(o, actor(o)) for o in obs] for critic in (first, second)])
    assert set(values.argmin(axis=0)) == {0, 1}  # neither is the lesser one everywhere
    least = dataclasses.replace(CONFIG, actor_climbs="least")
    loss = td3.actor_loss(least, actor, (first, second), obs)
    np.testing.assert_allclose(loss, -values.min(axis=0).mean(), rtol=1e-5)
    with pytest.raises(UsageError, match="actor_climbs"):
        TD3Config(actor_climbs="both")


def test_td3_finds_the_best_action_and_its_value_past_the_time_limit():
    fast = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "tau": 0.05, "random_steps": 300}
    config = TD3Config(hidden_sizes=(24,), gamma=0.5, batch_size=32, buffer_size=3_000, learning_starts=100, **fast)
    learner = td3.make(config, Spaces((1,), 1, False))
    loop = CompiledLoop(learner, Gaussian(sigma=0.3), aim_for_ever(), seeds=[0], eval_every=2_500)
    rows = loop.run(1)
    best = loop.policy()(jnp.zeros(1))
    np.testing.assert_allclose(best, [0.5], atol=0.08)
    critics = jax.tree.map(lambda leaf: leaf[0], loop.state.train.learner.networks.critics)
    # Smoothing costs what noise of 0.2 costs: E|noise| is 0.16 at each later step.
    np.testing.assert_allclose(values_of(critics, jnp.zeros(1), best), 1 + 0.5 * (1 - 0.16) / 0.5, atol=0.12)
    np.testing.assert_allclose(rows["eval_return_mean"], 2.0, atol=0.16)
    actions = loop.state.train.experience.data.action[0, :300]
    assert np.abs(actions).max() > 0.97  # the first actions are uniform
    assert abs(np.mean(actions)) < 0.15


@pytest.mark.parametrize("settings", [{"policy_delay": 0}, {"target_noise": -0.1}, {"random_steps": -1}, {"tau": 0.0}])
def test_a_setting_out_of_range_is_named(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        TD3Config(**settings)
