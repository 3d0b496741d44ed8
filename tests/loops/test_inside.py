"""Training inside one compiled program, as the host loop has it: the same as elsewhere, and resumable."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.agents import dqn
from paramnoise.envs.chain import chain
from paramnoise.explorations import ParameterNoise
from paramnoise.loops import compiled, inside, jax_steps, many
from paramnoise.loops import state as states
from paramnoise.loops import step as steps
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.loops.environments import JaxStep
from paramnoise.loops.host import HostLoop
from paramnoise.loops.inside import Inside
from paramnoise.loops.jax_vector import JaxGym, JaxVector, jax_source
from paramnoise.noise import many as noise_many
from paramnoise.noise.many import MANY, PARTS
from paramnoise.validation import UsageError
from tests.loops.test_loops_agree import CASES, EPISODE, SPACES

SEEDS, ENVS, STEPS = (7, 3), 2, 12 * EPISODE
LEARNER, NOISE = CASES["parameter"]
SOURCE = jax_source(chain(5))


def make_loop(seeds=SEEDS) -> HostLoop:
    return HostLoop(LEARNER, NOISE, SOURCE, seeds=seeds, num_envs=ENVS, log_every=EPISODE)


def rows(loop: HostLoop, steps: int = STEPS, **more) -> list:
    return list(loop.run(steps, eval_every=3 * EPISODE, eval_episodes=1, **more))


@pytest.fixture(scope="module")
def finished() -> tuple[HostLoop, list]:
    loop = make_loop()
    return loop, rows(loop)


def test_it_is_what_the_compiled_loop_does(finished):
    loop, ours = finished
    assert isinstance(loop.collector, Inside)
    theirs = CompiledLoop(LEARNER, NOISE, chain(5), seeds=SEEDS, eval_every=EPISODE, num_envs=ENVS).run(12)
    for name in ("step", "episodes", "train_return_mean", "sigma", "distance", "delta", "adaptations", "q_loss"):
        own = [[row[name] for row in pair] for pair in ours]
        np.testing.assert_allclose(own, theirs[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_rows_come_when_they_are_due_and_evaluations_with_some_of_them(finished):
    _, ours = finished
    assert [pair[0]["step"] for pair in ours] == list(range(EPISODE, STEPS + 1, EPISODE))
    evaluated = [not np.isnan(pair[0]["eval_return_mean"]) for pair in ours]
    assert evaluated == [False, False, True] * 4


def test_a_loop_restored_in_between_goes_on_exactly_however_long_its_calls_are(finished, monkeypatch):
    loop, ours = finished
    monkeypatch.setattr(inside, "CALL_SECONDS", 0.0)  # a step a call, but for the first
    first, seen = make_loop(), []
    before = rows(first, on_step=seen.append, should_stop=lambda: bool(seen) and seen[-1] >= 4 * EPISODE + 6)
    assert first.step == 4 * EPISODE + 6
    again = make_loop()
    for member in range(2):
        again.restore(*first.snapshot(member), member)
    np.testing.assert_equal(before + rows(again), ours)
    for one, other in zip(*(jax.tree.leaves(each.state(1)) for each in (loop, again)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_snapshot_that_counts_the_episodes_of_all_environments_together_is_refused(finished):
    state, own = finished[0].snapshot(0)
    counts = [name for name, array in own.items() if name.startswith("inside-") and array.dtype == np.int32]
    own[counts[-1]] = own[counts[-1]].sum()  # as before they were counted by environment
    with pytest.raises(ValueError, match=rf"{counts[-1]} is int32\(\), and int32\(2,\) here"):
        make_loop().restore(state, own, 0)


def test_a_loop_with_a_pool_goes_on_exactly():
    learner, pool = LEARNER, dataclasses.replace(NOISE, pool=2)
    make = lambda: HostLoop(learner, pool, SOURCE, num_envs=ENVS, log_every=EPISODE)  # noqa: E731
    whole, first, again = make(), make(), make()
    finished = rows(whole, 4 * EPISODE)
    seen: list[int] = []
    before = rows(first, 4 * EPISODE, on_step=seen.append, should_stop=lambda: bool(seen) and seen[-1] >= EPISODE)
    assert first.step < 4 * EPISODE
    again.restore(*first.snapshot(0), 0)
    np.testing.assert_equal(before + rows(again, 4 * EPISODE), finished)
    for one, other in zip(*(jax.tree.leaves(each.state(0)) for each in (whole, again)), strict=True):
        np.testing.assert_array_equal(one, other)


def _ends_by_chance(key, state, action):
    obs = jax.random.normal(key, (5,))
    ended = jax.random.uniform(key) < 0.05
    return JaxStep(obs, state, obs[action], ended, jnp.bool_(False))


MANY_ENVS = chain(5)._replace(reset=lambda key: (jnp.ones(5), jnp.int32(0)), step=_ends_by_chance)
"""Of many, some steps start as many episodes as a chunk, some more, some none."""
MANY_LEARNER = dqn.make(dataclasses.replace(LEARNER.config, train_every=32, target_every=64), SPACES)
MANY_NOISE = dataclasses.replace(NOISE, adapt_every=MANY)


def _longer(operations):
    """Many environments with steps of so many operations more, which are in a program of their own."""
    waste = jax.jit(lambda x: functools.reduce(lambda x, _: jnp.sin(x), range(operations), x))

    def step(key, state, action):
        after = _ends_by_chance(key, state, action)
        return after._replace(reward=after.reward + 0.0 * waste(after.reward))

    return MANY_ENVS._replace(step=step)


def test_the_longer_an_environments_step_the_fewer_are_written_out_at_once():
    most = jax_steps.LONGEST
    assert [jax_steps.written_out(env) for env in (MANY_ENVS, chain(5))] == [jax_steps.UNROLL] * 2
    assert [jax_steps.written_out(_longer(n)) for n in (most // 8, most // 4 - 200, most // 2, 2 * most)] == [
        4,
        4,
        1,
        1,
    ]


def _many(exploration, seeds=(0,)):
    """A state of many environments for each seed, and a program that advances it by so many steps of each."""
    init = functools.partial(compiled.init, MANY_LEARNER, exploration, MANY_ENVS, MANY)
    advance = functools.partial(compiled.advance, MANY_LEARNER, exploration, MANY_ENVS)
    along = compiled.axes(MANY_LEARNER)
    program = jax.vmap(advance, in_axes=(along, None), out_axes=along, axis_name=jax_steps.SEEDS)
    return jax.vmap(init, out_axes=along)(jnp.stack([jax.random.PRNGKey(seed) for seed in seeds])), jax.jit(program)


def test_the_loop_of_an_accelerator_is_the_same_training(monkeypatch):
    monkeypatch.setattr(noise_many, "LARGE", MANY)
    ends = []
    for cheap in (True, False):
        for module in (many, steps):
            monkeypatch.setattr(module, "loops_are_cheap", lambda cheap=cheap: cheap)
        state, advance = _many(MANY_NOISE, SEEDS)
        ends.append(advance(state, 30))
    assert (ends[0].episodes.sum(axis=1) > 30).all()
    assert (ends[0].train.losses.train_steps > 30).all()
    for one, other in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_environments_do_not_see_where_a_call_ends():
    state, advance = _many(MANY_NOISE)
    whole, parts = advance(state, 23), advance(advance(advance(state, 1), 15), 7)
    for one, other in zip(*map(jax.tree.leaves, (whole, parts)), strict=True):
        np.testing.assert_array_equal(one, other)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counting(ParameterNoise):
    """A user's: an episode's policy is fixed, but acting counts its steps."""

    fixes_episodes: ClassVar[bool] = True

    def init(self, policy, obs):
        return super().init(policy, obs), jnp.int32(0)

    def begin_episode(self, key, state, policy, starts, step):
        return super().begin_episode(key, state[0], policy, starts, step), state[1]

    def act(self, key, state, policy, obs, step):
        acted, actions = super().act(key, state[0], policy, obs, step)
        return (acted, state[1] + 1), actions

    def begin_first(self, key, state, policy, starts, step):
        begun, left = super().begin_first(key, state[0], policy, starts, step)
        return (begun, state[1]), left

    def adapt(self, key, state, policy, obs, step):
        return super().adapt(key, state[0], policy, obs, step), state[1]


def test_many_environments_act_once_a_step():
    state, advance = _many(Counting(adapt_every=MANY))
    whole, parts = advance(state, 17), advance(advance(state, 9), 8)
    assert whole.train.exploration[1] == 17
    for one, other in zip(*map(jax.tree.leaves, (whole, parts)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_episodes_that_begin_together_do_so_around_one_policy_whoever_trains_beside_them():
    (state, advance), (other, _) = (_many(dataclasses.replace(MANY_NOISE, num_policies=2), (own, 1)) for own in (0, 2))
    own, beside = (states.at_member(advance(each, 23).train.exploration, 1) for each in (state, other))
    jax.tree.map(np.testing.assert_array_equal, own, beside)
    weights, began = np.asarray(own.policies.network.layers[0].weight), np.asarray(own.sampled_at)
    assert np.max(np.unique(began, return_counts=True)[1]) > 2 * MANY // PARTS  # more than a chunk, of two seeds
    together = np.unique(np.stack([began, np.arange(MANY) % 2], axis=1), axis=0)
    assert len(np.unique(weights.reshape(MANY, -1), axis=0)) == len(together)


def test_what_begins_beside_training_is_drawn_around_the_policy_of_before_it():
    """Layer norm gets no noise, so that it shows which train steps a policy that begins has seen."""
    state, advance = _many(MANY_NOISE)
    first = lambda policy: np.asarray(policy.network.norms[0].weight[0])  # noqa: E731
    learned = []
    for _ in range(12):
        learned.append(first(MANY_LEARNER.policy(state.train.learner)))
        state = advance(state, 1)
    acting, begun = first(state.train.exploration.policies), np.asarray(state.starts[0] & ~state.waits[0])
    assert begun.any()
    assert not np.array_equal(learned[-1], first(MANY_LEARNER.policy(state.train.learner)))
    for policy in acting[begun]:
        np.testing.assert_array_equal(policy, learned[-1])


def test_agents_that_learn_from_no_replay_step_the_same_environments_from_outside():
    envs = JaxVector(chain(5), 2, (0,))
    first = envs.restart()
    after = [envs.step(np.array([1, 0])) for _ in range(EPISODE)]
    np.testing.assert_array_equal(after[-1].truncated, [True, True])
    np.testing.assert_array_equal(after[-1].obs, first)  # the next episode's, where `next_obs` is the last one's
    assert not np.array_equal(after[-1].next_obs, first)
    other = JaxVector(chain(5), 2, (0,))
    other.restart()
    envs.step(np.array([1, 1]))
    np.testing.assert_array_equal(other.restore(envs.snapshot()), envs.snapshot()["obs"])
    np.testing.assert_equal(other.step(np.array([1, 0])), envs.step(np.array([1, 0])))


def test_one_environment_is_gymnasiums():
    env = JaxGym(chain(5))
    obs, _ = env.reset(seed=3)
    np.testing.assert_array_equal(obs, env.reset(seed=3)[0])
    assert obs in env.observation_space
    for _ in range(EPISODE):
        obs, _reward, terminated, truncated, _ = env.step(1)
    assert (terminated, truncated) == (False, True)


def test_overlap_is_refused_where_there_is_nothing_to_overlap():
    with pytest.raises(UsageError, match="overlap is for environments that show vectors"):
        HostLoop(LEARNER, NOISE, SOURCE, overlap=True)
