"""Learning from rollouts inside one compiled program: what a batch holds, and that it is exact and resumable."""

import functools

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.agents import PPOConfig, PQNConfig, Spaces, ppo, pqn, trpo
from paramnoise.envs.chain import chain
from paramnoise.loops import compiled, inside, jax_steps
from paramnoise.loops.environments import JaxEnv, JaxStep
from paramnoise.loops.host import HostLoop
from paramnoise.loops.inside import Inside
from paramnoise.loops.jax_vector import jax_source
from paramnoise.loops.stepping import Stepping
from paramnoise.validation import UsageError

ENVS, STEPS = 3, 8
BATCH = ENVS * STEPS
SEEDS = (7, 3)


def walk() -> JaxEnv:
    """A place that actions move, and an episode whose length is drawn; those of even length terminate."""

    def reset(key):
        length = jax.random.randint(key, (), 2, 6)
        return jnp.zeros(2), (jnp.zeros(()), jnp.int32(0), length)

    def step(key, state, action):
        place, time, length = state
        place, time = place + jnp.sum(action), time + 1
        ends, obs = time >= length, jnp.array([place, time], jnp.float32)
        even = length % 2 == 0
        return JaxStep(obs, (place, time, length), -jnp.abs(place - 1.0), ends & even, ends & ~even)

    spaces = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    return JaxEnv("walk", reset, step, *spaces, max_episode_steps=6)


WALK, CHAIN = walk(), chain(5)
NOISE = pn.OnPolicyParameterNoise(scaling="adaptive", adapt_every=6, max_states=5, sigma=0.3)
PPO = ppo.make(PPOConfig(hidden_sizes=(4,), batch_size=BATCH, minibatch_size=12, epochs=2), Spaces((2,), 1, False))
PQN = pqn.make(PQNConfig(hidden_sizes=(8,), rollout_steps=STEPS, minibatches=2), Spaces((5,), 2, True))
CASES = {
    "ppo": (PPO, NOISE, WALK),
    "pqn": (PQN, pn.ParameterNoise(delta=0.05, adapt_every=5, epsilon=0.1), CHAIN),
}


def make_loop(case, seeds=SEEDS, **more):
    learner, exploration, env = CASES[case]
    return HostLoop(learner, exploration, jax_source(env), seeds=seeds, num_envs=ENVS, log_every=BATCH, **more)


def rows(loop, steps=8 * BATCH, **more):
    return list(loop.run(steps, eval_every=3 * BATCH, eval_episodes=1, **more))


@functools.cache
def finished(case):
    loop = make_loop(case)
    return loop, rows(loop)


@pytest.mark.parametrize("case", CASES)
def test_a_loop_restored_between_batches_goes_on_exactly_however_long_its_calls_are(case, monkeypatch):
    loop, ours = finished(case)
    assert isinstance(loop.collector, Inside)
    monkeypatch.setattr(inside, "CALL_SECONDS", 0.0)  # a batch a call
    first, steps = make_loop(case), []
    before = rows(first, on_step=steps.append, should_stop=lambda: bool(steps) and steps[-1] >= 3 * BATCH + 1)
    assert first.step == 4 * BATCH
    again = make_loop(case)
    for member in range(2):
        again.restore(*first.snapshot(member), member)
    np.testing.assert_equal(before + rows(again), ours)
    for one, other in zip(*(jax.tree.leaves(each.state(1)) for each in (loop, again)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(loop.state(1).learner.updates) == 8


@pytest.mark.parametrize("case", CASES)
def test_rows_show_the_update_and_the_noise_at_the_end_of_each_batch(case):
    _, ours = finished(case)
    assert [pair[0]["step"] for pair in ours] == list(range(BATCH, 8 * BATCH + 1, BATCH))
    evaluated = [not np.isnan(pair[0]["eval_return_mean"]) for pair in ours]
    assert evaluated == [False, False, True, False, False, True, False, True]
    last = ours[-1][0]
    assert {"ppo": {"kl", "noise_sampled"}, "pqn": {"q_loss", "q_mean", "distance"}}[case] <= last.keys()
    assert last["adaptations"] == (8 * BATCH // 6 if case == "ppo" else 8 * BATCH // 5)
    assert last["episodes"] > 8
    assert ours[-1][0]["train_return_mean"] != ours[-1][1]["train_return_mean"] or case == "pqn"


def test_pqn_inside_is_what_it_is_outside():
    learner, exploration, env = CASES["pqn"]
    _, ours = finished("pqn")
    outside = jax_source(env)._replace(functions=None)
    loop = HostLoop(learner, exploration, outside, seeds=SEEDS[:1], num_envs=ENVS, log_every=BATCH)
    assert isinstance(loop.collector, Stepping)
    for (theirs,), (own, _) in zip(rows(loop), ours, strict=True):
        for name, value in theirs.items():
            np.testing.assert_allclose(own[name], value, rtol=1e-3, atol=1e-6, err_msg=name)


@functools.cache
def gathered(case="ppo", exploration=NOISE):
    """The state after a batch and the batch, of an exploration that has states to measure noise on, if it wants any."""
    learner, _, env = CASES[case]

    def once(key):
        state = compiled.init(learner, exploration, env, ENVS, key)
        explored = state.train.exploration
        if exploration is NOISE:
            explored = explored._replace(has_obs=jnp.bool_(True))
        state = state._replace(train=state.train._replace(exploration=explored))
        return jax_steps.gather(learner, exploration, env, state)

    after, batch = jax.jit(jax.vmap(once, axis_name=jax_steps.SEEDS))(jax.random.PRNGKey(0)[None])
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], (after, batch))


def test_a_batch_holds_what_happened_in_each_environment_and_tells_ends_apart():
    after, batch = gathered()
    assert batch.obs.shape == (ENVS, STEPS, 2)
    ends = batch.terminated | batch.truncated
    assert batch.terminated.any()
    assert batch.truncated.any()
    assert not (batch.terminated & batch.truncated).any()
    np.testing.assert_array_equal(batch.time, batch.obs[..., 1])
    np.testing.assert_array_equal(batch.next_obs[..., 1], batch.time + 1)  # the final one, not the next reset's
    np.testing.assert_array_equal(batch.obs[:, 1:], np.where(ends[:, :-1, None], 0.0, batch.next_obs[:, :-1]))
    moved = batch.next_obs[..., 0] - batch.obs[..., 0]
    np.testing.assert_allclose(moved, np.clip(batch.action[..., 0], -1, 1), atol=1e-5)  # executed within bounds
    assert np.abs(batch.action).max() > 1  # and kept as sampled
    assert after.train.step == BATCH
    np.testing.assert_array_equal(after.train.experience.time, np.where(ends[:, -1], 0, batch.time[:, -1] + 1))


def test_each_episode_has_an_offset_of_its_own_and_keeps_it():
    after, batch = gathered()
    offsets = batch.offsets[batch.segment]  # [environments, steps, parameters]
    starts = batch.time == 0
    for env in range(ENVS):
        for step in range(1, STEPS):
            same = (offsets[env, step] == offsets[env, step - 1]).all()
            assert same == (not starts[env, step])
    drawn = offsets[starts]
    assert len(np.unique(drawn[:, 0])) == starts.sum() == after.train.exploration.sampled
    assert not drawn[:, -1].any()  # the log std
    np.testing.assert_array_equal(after.train.exploration.offsets, offsets[:, -1])
    assert batch.offsets.shape[0] == BATCH


def test_with_noise_below_rounding_pqn_learns_from_what_it_does_without():
    without, silent = (gathered("pqn", each)[1] for each in (pn.NoNoise(), pn.ParameterNoise(sigma=1e-30)))
    for one, other in zip(jax.tree.leaves(without), jax.tree.leaves(silent), strict=True):
        np.testing.assert_array_equal(one, other)
    assert without.offsets is None


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_axis_of_seeds_is_where_it_belongs_also_where_there_is_one_seed(seeds):
    shapes = []

    def grow(pair, shared):
        shapes.append(pair[0].shape)
        return {"own": pair[0] + pair[1], "most": jax.lax.pmax(pair[1], jax_steps.SEEDS)}, shared + 1, pair[0]

    own, number = jnp.arange(3.0 * seeds).reshape(seeds, 3), jnp.arange(1.0, seeds + 1)
    across = compiled.over_seeds(grow, seeds, (0, None), (0, None, 1))
    grown, shared, turned = across((own, number), jnp.float32(5))
    assert shapes == [(3,)]
    np.testing.assert_array_equal(grown["own"], own + number[:, None])
    np.testing.assert_array_equal(grown["most"], [seeds] * seeds)
    assert shared == 6
    np.testing.assert_array_equal(turned, own.T)


def test_trpo_whose_batches_are_prepared_in_numpy_steps_from_outside():
    learner = trpo.make(trpo.TRPOConfig(hidden_sizes=(4,), batch_size=24), Spaces((5,), 2, True))
    loop = HostLoop(learner, pn.NoNoise(), jax_source(CHAIN))
    assert isinstance(loop.collector, Stepping)


def test_a_batch_whose_noise_no_memory_holds_is_refused():
    learner = ppo.make(PPOConfig(hidden_sizes=(4_096, 4_096), batch_size=2**20), Spaces((2,), 1, False))
    with pytest.raises(UsageError, match="the noise of a batch of 1,048,576 steps would take"):
        HostLoop(learner, NOISE, jax_source(WALK), num_envs=16)


def test_more_environments_than_steps_of_a_batch_are_refused():
    with pytest.raises(UsageError, match=r"batch_size must be at least num_envs \(32\), not 24"):
        HostLoop(PPO, NOISE, jax_source(WALK), num_envs=32)


def test_several_devices_are_for_programs_of_jax():
    learner, exploration, env = CASES["pqn"]
    with pytest.raises(UsageError, match="devices must be 1, not 2, unless training is one compiled program"):
        HostLoop(learner, exploration, jax_source(env)._replace(functions=None), devices=2)
    with pytest.raises(UsageError, match="devices must be at most 1, as many as JAX finds here"):
        HostLoop(learner, exploration, jax_source(env), devices=2)
