import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise import UsageError, noise
from paramnoise.agents import Spaces, ddpg
from paramnoise.agents.ddpg import DDPGConfig
from paramnoise.experience.replay import Transition
from paramnoise.explorations import Gaussian, ParameterNoise
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.loops.environments import JaxEnv, JaxStep
from paramnoise.networks import Critic

CONFIG = DDPGConfig(hidden_sizes=(8, 8), gamma=0.5, batch_size=2, normalise_observations=False)
SPACES = Spaces(observation=(3,), actions=2, is_discrete=False)
LEARNER = ddpg.make(CONFIG, SPACES)


def constant_critic(state, value):
    """The state with a critic that says `value` everywhere, target included."""
    place = lambda c: (c.layers[-1].weight, c.layers[-1].bias)  # noqa: E731
    critic = eqx.tree_at(place, state.networks.critic, (jnp.zeros((1, 8)), jnp.array([value])))
    return state._replace(
        networks=state.networks._replace(critic=critic), targets=state.targets._replace(critic=critic)
    )


def batch(terminated=(False, True)):
    keys = jax.random.split(jax.random.key(1), 3)
    return Transition(
        obs=jax.random.normal(keys[0], (2, 3)),
        action=jnp.array([[0.5, -0.5], [0.0, 1.0]]),
        reward=jnp.array([1.0, 2.0]),
        next_obs=jax.random.normal(keys[1], (2, 3)),
        terminated=jnp.array(terminated),
    )


@pytest.fixture(scope="module")
def state():
    return LEARNER.init(jax.random.key(0))


def test_the_td_error_bootstraps_on_the_targets_unless_terminated(state):
    state = constant_critic(state, 4.0)
    errors = [
        ddpg.td_error(CONFIG, state.networks.critic, state.targets, jax.tree.map(lambda x, i=i: x[i], batch()))
        for i in range(2)
    ]
    np.testing.assert_allclose(errors, [4.0 - (1.0 + 0.5 * 4.0), 4.0 - 2.0], rtol=1e-6)


def test_an_update_reports_the_squared_error_and_the_actor_s_value(state):
    _, terms = LEARNER.update(constant_critic(state, 4.0), batch())
    np.testing.assert_allclose(terms["critic_loss"], (1.0**2 + 2.0**2) / 2, rtol=1e-6)
    np.testing.assert_allclose(terms["actor_loss"], -4.0, rtol=1e-6)


def test_targets_move_by_tau_toward_the_learned_networks(state):
    after, _ = LEARNER.update(state, batch())
    for old, new, target in zip(*map(jax.tree.leaves, (state.targets, after.networks, after.targets)), strict=True):
        np.testing.assert_allclose(target, 0.999 * old + 0.001 * new, rtol=1e-5, atol=1e-8)


def test_the_penalty_is_on_kernels_but_the_output_s(state):
    critic = state.networks.critic
    kernels = [np.asarray(layer.weight) for layer in critic.layers]
    expected = 0.5 * sum((kernel**2).sum() for kernel in kernels[:-1])
    np.testing.assert_allclose(ddpg.critic_penalty(critic), expected, rtol=1e-5)
    gradient = jax.grad(ddpg.critic_penalty)(critic)
    assert not gradient.layers[-1].weight.any()
    assert not any(layer.bias.any() for layer in gradient.layers)
    assert not any(norm.weight.any() for norm in gradient.norms)


def test_the_actor_climbs_the_critic_and_leaves_it_alone(state):
    rate = 1e-2
    learner = ddpg.make(DDPGConfig(hidden_sizes=(8, 8), actor_learning_rate=rate, critic_learning_rate=1e-9), SPACES)
    value = lambda s: float(-learner.update(s, batch())[1]["actor_loss"])  # noqa: E731
    climbed = state
    for _ in range(20):
        climbed, _ = learner.update(climbed, batch())
    assert value(climbed) > value(state)


def test_the_critic_sees_the_action_at_its_second_layer(state):
    critic = state.networks.critic
    assert [layer.weight.shape for layer in critic.layers] == [(8, 3), (8, 8 + 2), (1, 8)]
    assert isinstance(critic, Critic)
    obs = jnp.ones(3)
    assert critic(obs, jnp.array([1.0, 0.0])) != critic(obs, jnp.array([0.0, 1.0]))


def test_first_actions_and_values_are_near_0_and_actions_within_bounds(state):
    observations = 10 * jax.random.normal(jax.random.key(3), (50, 3))
    assert jnp.abs(jax.vmap(state.networks.actor)(observations)).max() < 0.1
    loud = noise.perturb(jax.random.key(4), LEARNER.policy(state), sigma=10.0)
    assert jnp.abs(jax.vmap(loud)(observations)).max() <= 1.0


def test_observations_are_normalised_by_statistics_that_noise_leaves_alone():
    learner = ddpg.make(DDPGConfig(hidden_sizes=(8, 8)), SPACES)
    state = learner.init(jax.random.key(0))
    state = learner.observe(state, batch()._replace(obs=jnp.array([[0.0, 0.0, 0.0], [4.0, 4.0, 4.0]])))
    untrained = learner.policy(state)
    np.testing.assert_array_equal(untrained(jnp.full(3, 5.0)), state.networks.actor(jnp.full(3, 5.0)))
    state, _ = learner.update(state, batch())
    policy = learner.policy(state)
    np.testing.assert_allclose(policy(jnp.full(3, 5.0)), state.networks.actor(jnp.full(3, 1.5)), rtol=1e-5)
    perturbed = noise.perturb(jax.random.key(1), policy, 1.0)
    assert eqx.tree_equal(perturbed.network.normaliser, policy.network.normaliser)
    assert not eqx.tree_equal(perturbed.network.actor, policy.network.actor)


def aim() -> JaxEnv:
    """One step an episode: the best action is 0.5, and worth 0."""

    def reset(key):
        return jnp.zeros(1), ()

    def step(key, state, action):
        return JaxStep(jnp.zeros(1), (), -jnp.abs(action[0] - 0.5), jnp.bool_(True), jnp.bool_(False))

    spaces = gym.spaces.Box(-1.0, 1.0, (1,), np.float32), gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    return JaxEnv("aim", reset, step, *spaces, max_episode_steps=1)


@pytest.mark.parametrize("exploration", [Gaussian(sigma=0.6), ParameterNoise(delta=0.6, adapt_every=50)])
def test_ddpg_finds_the_best_action_of_a_known_task(exploration):
    fast = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "tau": 0.02}
    config = DDPGConfig(hidden_sizes=(16, 16), critic_l2=0.0, batch_size=32, buffer_size=5_000, **fast)
    learner = ddpg.make(config, Spaces(observation=(1,), actions=1, is_discrete=False))
    loop = CompiledLoop(learner, exploration, aim(), seeds=[0, 1], eval_every=5_000)
    rows = loop.run(1)
    for seed in (0, 1):
        np.testing.assert_allclose(loop.policy(seed)(jnp.zeros(1)), [0.5], atol=0.05)
    np.testing.assert_allclose(rows["eval_return_mean"], 0.0, atol=0.05)


@pytest.mark.parametrize(
    "settings", [{"tau": 0.0}, {"critic_l2": -1.0}, {"hidden_sizes": (8,)}, {"train_steps": 0}, {"buffer_size": 10}]
)
def test_a_setting_out_of_range_is_named(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        DDPGConfig(**settings)
