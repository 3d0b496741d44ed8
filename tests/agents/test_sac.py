import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import aim_for_ever

from paramnoise import UsageError
from paramnoise.agents import Spaces, sac
from paramnoise.agents.actor_critic import values_of
from paramnoise.agents.sac import SACConfig
from paramnoise.experience.replay import Transition
from paramnoise.explorations import NoNoise
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.networks.policies import SquashedGaussianPolicy

SPACES = Spaces(observation=(3,), actions=2, is_discrete=False)
SETTINGS = {"hidden_sizes": (8, 8), "gamma": 0.5, "batch_size": 2, "normalise_observations": False}
CONFIG = SACConfig(**SETTINGS)
LEARNER = sac.make(CONFIG, SPACES)
UPDATE = jax.jit(LEARNER.update)
NOISE = jnp.array([[0.5, -1.0], [0.0, 2.0]])


def batch():
    keys = jax.random.split(jax.random.key(1), 2)
    return Transition(
        obs=jax.random.normal(keys[0], (2, 3)),
        action=jnp.array([[0.5, -0.5], [0.0, 1.0]]),
        reward=jnp.array([1.0, 2.0]),
        next_obs=jax.random.normal(keys[1], (2, 3)),
        terminated=jnp.array([False, True]),
    )


def constant(critic, value):
    """The critic with `value` for its answer, whatever the question."""
    place = lambda c: (c.layers[-1].weight, c.layers[-1].bias)  # noqa: E731
    return eqx.tree_at(place, critic, (jnp.zeros((1, 8)), jnp.array([value])))


@pytest.fixture(scope="module")
def state():
    return jax.jit(LEARNER.init)(jax.random.key(0))


@pytest.mark.parametrize("low_first", [True, False])
def test_the_target_is_the_lower_critic_and_the_entropy_unless_terminated(state, low_first):
    low, high = (constant(critic, value) for critic, value in zip(state.targets, (4.0, 7.0), strict=True))
    critics, said = ((low, high), [4.0, 7.0]) if low_first else ((high, low), [7.0, 4.0])
    actor, rows = state.networks.actor, [jax.tree.map(lambda part, i=i: part[i], batch()) for i in range(2)]
    policy = SquashedGaussianPolicy(actor)
    log_density = policy.log_density(policy(rows[0].next_obs), NOISE[0])
    errors = [sac.td_errors(CONFIG, critics, critics, actor, jnp.float32(0.3), rows[i], NOISE[i]) for i in range(2)]
    np.testing.assert_allclose(errors[0], np.array(said) - (1.0 + 0.5 * (4.0 - 0.3 * log_density)), rtol=1e-5)
    np.testing.assert_allclose(errors[1], np.array(said) - 2.0, rtol=1e-6)


def test_the_actor_minimises_temperature_times_log_density_less_the_lower_critic(state):
    low, high = (constant(critic, value) for critic, value in zip(state.targets, (4.0, 7.0), strict=True))
    actor, obs = state.networks.actor, batch().obs[0]
    policy = SquashedGaussianPolicy(actor)
    expected = policy.log_density(policy(obs), NOISE[0])
    for critics in ((low, high), (high, low)):
        value, log_density = sac.regret(actor, critics, jnp.float32(0.3), obs, NOISE[0])
        np.testing.assert_allclose(log_density, expected, rtol=1e-6)
        np.testing.assert_allclose(value, 0.3 * expected - 4.0, rtol=1e-6)


def test_the_gradient_of_the_actor_reaches_it_through_the_action_and_equals_finite_differences(state):
    leaves, structure = jax.tree.flatten(state.networks.actor)
    obs = batch().obs[0]

    @jax.jit
    def loss(bias):
        actor = jax.tree.unflatten(structure, [*leaves[:-1], bias])  # the last leaf but norms would do as well
        return sac.regret(actor, state.networks.critics, jnp.float32(0.3), obs, NOISE[0])[0]

    bias = leaves[-1]
    gradient = jax.grad(loss)(bias)
    for i in range(bias.size):
        step = jnp.zeros(bias.size).at[i].set(1e-2).reshape(bias.shape)
        slope = (loss(bias + step) - loss(bias - step)) / 2e-2
        np.testing.assert_allclose(gradient.ravel()[i], slope, rtol=0.02, atol=1e-4)


@pytest.mark.parametrize(("aim", "grows"), [(50.0, True), (-50.0, False)])
def test_the_temperature_grows_while_the_entropy_is_below_its_aim_and_falls_above(state, aim, grows):
    learner = sac.make(SACConfig(**SETTINGS, target_entropy=aim), SPACES)
    after, terms = jax.jit(learner.update)(state, batch())
    assert (float(after.networks.log_temperature) > 0) == grows
    assert terms["temperature"] == 1.0  # as it was in this step
    assert -50 < terms["entropy"] < 50


def test_the_aim_is_minus_the_dimensions_and_a_fixed_temperature_stays(state):
    assert CONFIG.applying(SPACES)["target_entropy"] == -2.0
    assert CONFIG.applying(SPACES)["temperature"] == "learned"
    assert "target_entropy" not in SACConfig(temperature=0.2).applying(SPACES)
    fixed = sac.make(SACConfig(**SETTINGS, temperature=0.2), SPACES)
    after, terms = jax.jit(fixed.update)(state, batch())
    assert after.networks.log_temperature == state.networks.log_temperature
    assert terms["temperature"] == np.float32(0.2)


def test_targets_move_by_tau_at_each_update_and_draws_are_new(state):
    after, first = UPDATE(state, batch())
    for old, new, target in zip(
        *map(jax.tree.leaves, (state.targets, after.networks.critics, after.targets)), strict=True
    ):
        np.testing.assert_allclose(target, 0.995 * old + 0.005 * new, rtol=1e-5, atol=1e-7)
    _, again = UPDATE(state, batch())
    assert float(first["entropy"]) == float(again["entropy"])
    _, other = UPDATE(state._replace(updates=state.updates + 1), batch())
    assert float(other["entropy"]) != float(first["entropy"])


def test_the_first_policy_is_about_a_standard_normal_before_tanh(state):
    values = jax.vmap(LEARNER.policy(state))(batch().obs)
    assert values.shape == (2, 2, 2)
    assert np.abs(values).max() < 0.1


def test_sac_finds_the_best_action_and_its_value_past_the_time_limit():
    fast = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "tau": 0.05, "random_steps": 300}
    config = SACConfig(
        hidden_sizes=(16, 16),
        gamma=0.5,
        batch_size=32,
        buffer_size=3_000,
        learning_starts=100,
        temperature_learning_rate=1e-2,
        target_entropy=-2.5,
        **fast,
    )
    learner = sac.make(config, Spaces((1,), 1, False))
    loop = CompiledLoop(learner, NoNoise(), aim_for_ever(), seeds=[0], eval_every=2_500)
    rows = loop.run(1)
    policy = loop.policy()
    best = policy.greedy(policy(jnp.zeros(1)))
    np.testing.assert_allclose(best, [0.5], atol=0.08)
    assert rows["entropy"][0, 0] == pytest.approx(-2.5, abs=1.5)
    critics = jax.tree.map(lambda leaf: leaf[0], loop.state.train.learner.networks.critics)
    np.testing.assert_allclose(values_of(critics, jnp.zeros(1), best), 2.0, atol=0.2)  # nearly without noise in the end
    np.testing.assert_allclose(rows["eval_return_mean"], 2.0, atol=0.16)


@pytest.mark.parametrize("settings", [{"temperature": -1.0}, {"first_temperature": 0.0}, {"random_steps": -1}])
def test_a_setting_out_of_range_is_named(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        SACConfig(**settings)
