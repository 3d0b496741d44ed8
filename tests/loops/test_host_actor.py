"""Acting in NumPy: every twin is held to `act`, and none takes the place of what a user wrote."""

import dataclasses
import functools

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import paramnoise as pn
from paramnoise.agents import DDPGConfig, Spaces, TRPOConfig, ddpg, trpo
from paramnoise.explorations import base
from paramnoise.loops.fast.host_actor import BLOCK, BlockNoise, HostActor, HostActors
from paramnoise.loops.host import HostLoop
from paramnoise.loops.vector import vector_source
from paramnoise.networks import MLP
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.gsde import StateGaussianPolicy, StateNoiseActor
from paramnoise.networks.heads import NormalisedActor, quiet_mlp
from paramnoise.networks.policies import (
    CategoricalPolicy,
    DeterministicPolicy,
    GaussianPolicy,
    GreedyPolicy,
    MultiCategoricalPolicy,
    SquashedGaussianPolicy,
    noise_free_actions,
)
from paramnoise.noise import displace, perturb_each

OBS = np.random.default_rng(0).normal(1.0, 3.0, (3, 4)).astype(np.float32)
SPACES = Spaces((4,), 2, False)


@functools.cache
def deterministic(layer_norm=True, seen=50):
    learner = ddpg.make(DDPGConfig(hidden_sizes=(16, 8), layer_norm=layer_norm), SPACES)
    state = jax.jit(learner.init)(jax.random.key(0))
    loud = lambda actor: actor.mlp.layers[-1].weight  # noqa: E731  # the first actions of an actor are near 0
    actor = eqx.tree_at(loud, state.networks.actor, replace_fn=lambda weight: 100 * weight)
    statistics = normalisers.init(4)
    if seen:
        statistics = jax.jit(normalisers.observe)(statistics, OBS[:1] + np.arange(seen)[:, None])
    return learner.policy(state._replace(networks=state.networks._replace(actor=actor), statistics=statistics))


def squashed():
    """SAC's policy; the log std of its second dimension is beyond the bound."""
    actor = eqx.tree_at(lambda mlp: mlp.layers[-1].bias, network((4, 8, 4), True), jnp.array([0.5, -0.5, -1.0, 5.0]))
    return SquashedGaussianPolicy(NormalisedActor(deterministic().network.normaliser, actor))


def squashed_by_features():
    """SAC's policy where the standard deviations come from the features; some are beyond the bound."""
    actor = jax.jit(lambda key: StateNoiseActor(quiet_mlp((4, 8, 6, 2), key=key, layer_norm=True)))(jax.random.key(0))
    actor = eqx.tree_at(lambda a: a.log_std, actor, jnp.linspace(-2.0, 3.0, 12).reshape(6, 2))
    return SquashedGaussianPolicy(NormalisedActor(deterministic().network.normaliser, actor))


def network(sizes, layer_norm=False):
    return jax.jit(lambda key: MLP(sizes, key=key, layer_norm=layer_norm, activation=jnp.tanh))(jax.random.key(0))


def gaussian(layer_norm=False):
    return GaussianPolicy(network((4, 8, 6, 2), layer_norm), jnp.array([-1.0, 0.5]))


def gaussian_by_features():
    return StateGaussianPolicy(network((4, 8, 6, 2)), jnp.linspace(-2.0, 1.0, 12).reshape(6, 2))


def categorical():
    return CategoricalPolicy(network((4, 8, 3)))


def several():
    network = MLP((4, 8, 6), key=jax.random.key(0), layer_norm=False, activation=jnp.tanh)
    return MultiCategoricalPolicy(network, (3, 1, 2))


def host(exploration, acting, explored=(), num_envs=3, seed=3):
    actor = HostActor(exploration, seed, num_envs)
    actor.load(*jax.tree.map(np.asarray, (acting, explored)))
    return actor


class KnownNoise:
    """The same numbers whenever they are asked for."""

    def normal(self, shape):
        return np.random.default_rng(1).standard_normal(shape, np.float32)

    def gumbel(self, shape):
        return np.random.default_rng(2).gumbel(size=shape).astype(np.float32)

    def replace(self, patch):
        """Gives `jax.random` these numbers too, whatever the key."""
        patch.setattr(jax.random, "normal", lambda key, shape=(), dtype=float: jnp.asarray(self.normal(shape)))
        choose = lambda key, logits: jnp.argmax(logits + self.gumbel(logits.shape), axis=-1)  # noqa: E731
        patch.setattr(jax.random, "categorical", choose)


POLICIES = {
    "deterministic": deterministic(),
    "squashed": squashed(),
    "squashed by features": squashed_by_features(),
    "gaussian": gaussian(),
    "gaussian by features": gaussian_by_features(),
    "categorical": categorical(),
    "several": several(),
}
OURS = [cls for classes in base._REGISTERED.values() for cls in classes if cls.__module__.startswith("paramnoise.")]
TWINS = [cls for cls in OURS if base.has_twin(cls())]
CASES = [
    (cls, name)
    for cls in TWINS
    for name, policy in POLICIES.items()
    if isinstance(policy, cls.policies) and (cls is not pn.StateDraws or "features" in name)
]


def test_every_registered_twin_is_tried_below():
    assert {cls for cls, _ in CASES} == set(TWINS)
    named = {pn.NoNoise, pn.Gaussian, pn.ParameterNoise, pn.OnPolicyParameterNoise}
    assert named | {pn.ColouredNoise, pn.ColouredDraws, pn.StateNoise, pn.StateDraws} == set(TWINS)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize(("cls", "name"), CASES)
def test_a_twin_does_what_act_does_alone_and_beside_another_seed(monkeypatch, cls, name, num_envs):
    exploration, policy, obs = cls(), POLICIES[name], OBS[:num_envs]

    @jax.jit
    def begun(key):
        """The state of exploration in an episode after some learning, when there is noise."""
        seen = jax.random.normal(key, (40, 4))
        state = exploration.adapt(key, exploration.init(policy, obs), policy, seen, jnp.int32(0))
        return exploration.begin_episode(key, state, policy, jnp.ones(num_envs, bool), jnp.int32(0))

    state, noise = begun(jax.random.key(1)), KnownNoise()
    actor = host(exploration, policy, state, num_envs)
    actor._noise = noise
    with monkeypatch.context() as patch:
        noise.replace(patch)
        after, expected = jax.jit(exploration.act)(jax.random.key(2), state, policy, obs, jnp.int32(6))
    assert eqx.tree_equal(after, state)
    actions = actor.act(obs, 6)
    assert actions.shape == expected.shape
    assert actions.dtype == expected.dtype
    np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)

    if not isinstance(policy, (DeterministicPolicy, SquashedGaussianPolicy)):
        return  # on-policy: those seeds learn alone
    others = jax.tree.map(lambda leaf: 0.5 * leaf, policy), begun(jax.random.key(5)), OBS[-num_envs:] + 1
    seeds = {3: (policy, state, obs), 9: others}
    actors = HostActors(exploration, seeds, num_envs)
    states = [jax.tree.map(np.asarray, own[1]) for own in seeds.values()]
    actors.load(jax.tree.map(lambda *leaves: np.stack(leaves), policy, others[0]), states)
    for moved in (0, 2):  # the second time the pass has outputs of the first
        together = actors.act(np.concatenate([own[2] + moved for own in seeds.values()]), 6, 4)
        each = [host(exploration, *own[:2], num_envs, seed) for seed, own in seeds.items()]
        alone = [actor.act(own[2] + moved, 6, 4) for actor, own in zip(each, seeds.values(), strict=True)]
        assert together.dtype == expected.dtype
        np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-4, atol=1e-5)


class OwnWays(pn.NoNoise):
    """A user's exploration that writes to outputs, asks twice, and acts with an axis of environments now and then."""

    def act(self, key, state, policy, obs, step):
        raise NotImplementedError

    def act_on_host(self, noise, state, policy, obs, step):
        first = policy(obs)
        first += 1.0
        return policy(obs) + policy(obs[:1] * 0.5) + first

    def acting_policy(self, state, policy):
        return (jax.tree.map(lambda leaf: leaf[None], policy), True) if state else (policy, False)


@pytest.mark.parametrize("states", [(1, 0), (1, 1), (0, 0)])
def test_seeds_side_by_side_leave_a_user_s_exploration_its_ways(states):
    policies = [jax.tree.map(lambda leaf, by=by: by * np.asarray(leaf), POLICIES["deterministic"]) for by in (1.0, 0.5)]
    actors = HostActors(OwnWays(), (3, 9), 1)
    for _ in range(2):
        actors.load(jax.tree.map(lambda *leaves: np.stack(leaves), *policies), states)
        together = actors.act(OBS[:2], 0, 0)
        alone = [
            host(OwnWays(), *own, 1).act(OBS[i : i + 1], 0) for i, own in enumerate(zip(policies, states, strict=True))
        ]
        np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("seen", [0, 50])
def test_without_noise_the_actions_are_those_of_the_policy(layer_norm, seen):
    acting = deterministic(layer_norm, seen)
    actions = host(pn.NoNoise(), acting).act(OBS, 0)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, noise_free_actions(acting, OBS), rtol=1e-4, atol=1e-5)
    assert np.abs(actions).max() > 0.01


@pytest.mark.parametrize("num_envs", [1, 2])
def test_with_parameter_noise_each_environment_acts_by_its_own_policy(num_envs):
    acting, obs = POLICIES["deterministic"], np.repeat(OBS[:1], num_envs, axis=0)
    policies = jax.jit(perturb_each, static_argnums=3)(jax.random.key(1), acting, 0.3, num_envs)
    exploration = pn.ParameterNoise()
    explored = jax.jit(exploration.init)(acting, obs)._replace(policies=policies)
    actions = host(exploration, acting, explored, num_envs).act(obs, 0)
    expected = jax.jit(jax.vmap(lambda perturbed, o: perturbed(o)))(policies, obs)
    np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)
    assert len(np.unique(actions[:, 0])) == num_envs


@pytest.mark.parametrize("policy", [gaussian(), gaussian(layer_norm=True), categorical()])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_on_policy_each_environment_acts_by_the_policy_at_its_own_parameters(policy, num_envs):
    offsets = 0.5 * jax.random.normal(jax.random.key(1), (num_envs, ravel_pytree(policy)[0].size))
    obs, noise, exploration = OBS[:num_envs], KnownNoise(), pn.OnPolicyParameterNoise()
    values = jax.jit(jax.vmap(lambda offset, o: displace(policy, offset)(o)))(offsets, obs)
    explored = jax.jit(exploration.init)(policy, obs)._replace(offsets=offsets)
    actor = host(exploration, policy, explored, num_envs)
    actor._noise = noise
    if isinstance(policy, CategoricalPolicy):
        np.testing.assert_allclose(actor.policy(obs), values, rtol=1e-4, atol=1e-5)
        expected = np.argmax(values + noise.gumbel(values.shape), axis=-1)
        np.testing.assert_array_equal(actor.act(obs, 0), expected)
    else:
        mean, log_std = values[:, 0], values[:, 1]
        np.testing.assert_allclose(actor.policy(obs), mean, rtol=1e-4, atol=1e-5)
        expected = mean + np.exp(log_std) * noise.normal(mean.shape)
        np.testing.assert_allclose(actor.act(obs, 0), expected, rtol=1e-4, atol=1e-5)


def test_where_a_vector_skips_steps_coloured_noise_follows_the_steps_and_not_the_turns():
    acting, exploration = POLICIES["deterministic"], pn.ColouredNoise(sigma=0.1, horizon=9)
    explored = jax.jit(exploration.init)(acting, OBS)
    explored = explored._replace(noise=np.random.default_rng(0).normal(size=explored.noise.shape).astype(np.float32))
    actor = host(exploration, acting, explored)
    np.testing.assert_array_equal(actor.act(OBS, 5, turn=4), actor.act(OBS, 3))  # the second place of each sequence
    assert not np.allclose(actor.act(OBS, 5, turn=4), actor.act(OBS, 12))


def test_gaussian_noise_has_its_sigma_is_clipped_and_is_new_at_each_step():
    acting = POLICIES["deterministic"]
    actor = host(pn.Gaussian(sigma=0.1), acting)
    clean = np.asarray(noise_free_actions(acting, OBS))
    noise = np.array([actor.act(OBS, 3 * time) - clean for time in range(BLOCK + 500)])
    assert noise.std() == pytest.approx(0.1, rel=4 / np.sqrt(2 * noise.size))
    assert abs(noise.mean()) < 4 * 0.1 / np.sqrt(noise.size)
    assert len(np.unique(noise.round(6))) > 0.9 * noise.size  # other draws for every step, environment and dimension
    wild = np.array([host(pn.Gaussian(sigma=9.0), acting).act(OBS, 3 * time) for time in range(50)])
    assert (np.abs(wild) <= 1.0).all()
    assert {-1.0, 1.0} <= set(wild.ravel())


def test_noise_depends_on_the_seed_and_the_step_alone():
    acting, exploration = POLICIES["deterministic"], pn.Gaussian(sigma=0.1)
    late = host(exploration, acting).act(OBS, 3 * (BLOCK + 7))
    walked = host(exploration, acting)
    for time in range(BLOCK + 8):
        last = walked.act(OBS, 3 * time)
    np.testing.assert_array_equal(late, last)
    assert not np.allclose(host(exploration, acting, seed=4).act(OBS, 3 * (BLOCK + 7)), late)


def test_actions_are_draws_from_the_softmax():
    policy, obs = categorical(), np.ones((1, 4), np.float32)
    actor = host(pn.NoNoise(), policy, num_envs=1)
    actions = [actor.act(obs, step)[0] for step in range(5_000)]
    expected = 5_000 * np.asarray(jax.nn.softmax(policy(obs[0])), np.float64)
    assert stats.chisquare(np.bincount(actions, minlength=3), expected * 5_000 / expected.sum()).pvalue > 0.001


def test_normal_noise_is_standard_and_decided_by_its_seed():
    def drawn(*seed):
        noise, numbers = BlockNoise(seed, 4_000), []
        for noise.time in range(4_000):
            numbers.append(noise.normal((3, 2)))
        return np.array(numbers)

    numbers = drawn(0, 1)
    assert numbers.shape == (4_000, 3, 2)
    np.testing.assert_array_equal(numbers, drawn(0, 1))
    assert (numbers != drawn(0, 2)).mean() > 0.99
    np.testing.assert_allclose((numbers.mean(), numbers.std()), (0, 1), atol=0.03)


def test_what_needs_more_than_the_policy_and_the_step_stays_compiled():
    acting = POLICIES["deterministic"]
    for fits in (pn.NoNoise(), pn.Gaussian(), pn.ParameterNoise()):
        assert HostActor.fits(fits, acting)
    renewed = (pn.ParameterNoise(max_age=5), pn.StateNoise(resample_every=5))
    for other in (pn.OrnsteinUhlenbeck(), pn.ParameterNoise(epsilon=0.1), *renewed):
        assert not HostActor.fits(other, acting)
    assert not HostActor.fits(pn.NoNoise(), GreedyPolicy(jnp.tanh))
    for stochastic in (gaussian(), categorical(), several()):
        for fits in (pn.NoNoise(), pn.OnPolicyParameterNoise()):
            assert HostActor.fits(fits, stochastic)


class Recorder(gym.Env):
    """Notes the actions it is given; an episode has two steps."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    given: list

    def reset(self, *, seed=None, options=None):
        self.time, self.given = 0, getattr(self, "given", [])
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.given.append(action.tolist())
        self.time += 1
        return np.zeros(4, np.float32), 0.0, False, self.time == 2, {}


def overriding(cls, **overridden):
    """A user's subclass, in which each named method returns one action for all environments."""

    def act(action):
        return lambda self, key, state, policy, obs, step: (state, jnp.full((obs.shape[0], 2), action))

    def act_on_host(action):
        return lambda self, noise, state, policy, obs, step: np.full((len(obs), 2), action, np.float32)

    methods = {"act": act, "act_on_host": act_on_host}
    return type("Mine", (cls,), {name: methods[name](action) for name, action in overridden.items()})


AGENTS = {
    "ddpg": ddpg.make(DDPGConfig(hidden_sizes=(4, 4)), SPACES),
    "trpo": trpo.make(TRPOConfig(hidden_sizes=(4,), batch_size=100), SPACES),
}
EXTENDED = [
    ("ddpg", pn.NoNoise),
    ("ddpg", pn.Gaussian),
    ("ddpg", pn.ParameterNoise),
    ("trpo", pn.NoNoise),
    ("trpo", pn.OnPolicyParameterNoise),
]


def executed(agent, exploration):
    """The actions that a host loop executes in its first steps, before anything is learned."""
    made = []
    source = vector_source(lambda: made.append(Recorder()) or made[-1])
    made.clear()
    loop = HostLoop(AGENTS[agent], exploration, source)
    for _ in range(3):
        loop.collector.advance(lambda step: None, lambda: False, 1)
    loop.close()
    return made[0].given


@pytest.mark.parametrize(("agent", "cls"), EXTENDED)
def test_the_act_of_a_user_s_subclass_is_what_acts(agent, cls):
    assert executed(agent, overriding(cls, act=0.25)()) == [[0.25, 0.25]] * 3


@pytest.mark.parametrize(("agent", "cls"), EXTENDED)
def test_a_user_s_own_twin_acts_if_it_comes_with_its_act(agent, cls):
    assert executed(agent, overriding(cls, act=0.25, act_on_host=0.5)()) == [[0.5, 0.5]] * 3
    assert not base.has_twin(overriding(cls, act_on_host=0.5)())
    assert base.has_twin(cls())


def test_a_subclass_that_leaves_act_alone_keeps_the_twin():
    mine = dataclasses.make_dataclass("Mine", [("more", float, 1.0)], bases=(pn.Gaussian,), frozen=True, kw_only=True)
    assert base.has_twin(mine())
