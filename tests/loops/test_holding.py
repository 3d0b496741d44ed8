"""Steps that wait until acting needs what is learned from them: one call for several, and nothing else changes."""

import dataclasses

import gymnasium as gym
import jax
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.agents import DDPGConfig, ddpg, td3
from paramnoise.agents.base import Spaces
from paramnoise.agents.td3 import TD3Config
from paramnoise.loops.feeds import replay
from paramnoise.loops.feeds.replay import ReplayFeed
from paramnoise.loops.host import HostLoop
from paramnoise.loops.vector import vector_source

SPACES = Spaces((3,), 1, False)
CONFIG = TD3Config(
    hidden_sizes=(8,),
    batch_size=8,
    buffer_size=50,
    learning_starts=5,
    random_steps=7,
    normalise_observations=False,
    actor_learning_rate=0.1,
)
TD3 = td3.make(CONFIG, SPACES)


def counted(learner, exploration, **how):
    """A loop, and the list of how many steps waited for each of its calls."""
    running = HostLoop(
        learner, exploration, vector_source(lambda: gym.make("Pendulum-v1", max_episode_steps=27)), **how
    )
    learn_from, calls = running.collector._learning._learn_from, []

    def count(taken):
        calls.append(int(taken.args[1]))
        learn_from(taken)

    running.collector._learning._learn_from = count
    return running, calls


def assert_same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("exploration", [pn.Gaussian(), pn.OrnsteinUhlenbeck(dt=0.5)])
def test_td3_learns_once_for_each_change_of_its_policy_and_to_the_bit_the_same(exploration):
    rows, loops, calls = {}, {}, {}
    for every in (1, 2, 4):  # 4 is not true: the policy changes at every second train step
        loops[every], calls[every] = counted(TD3._replace(policy_every=every), exploration)
        rows[every] = list(loops[every].run(61, eval_every=20, eval_episodes=1))
    assert calls[1] == [1] * 61
    # Train step n follows step 5 + n: the policy changes at steps 7, 9, ... 61. Before it trains, steps go in by twos.
    # After the rows at steps 20, 40 and 60 what waited is in.
    assert calls[2] == [2, 2, 2, 1, *[2] * 6, 1, 1, *[2] * 9, 1, 1, *[2] * 9, 1, 1]
    assert_same(rows[1], rows[2])
    assert_same(loops[1].snapshot(), loops[2].snapshot())
    actions = [loops[every].state().experience.data.action for every in (1, 4)]
    assert not np.array_equal(*actions)  # so that what is compared can differ


def test_a_loop_that_is_restored_between_two_changes_of_the_policy_goes_on_exactly():
    whole, stopped, restored = (counted(TD3, pn.Gaussian())[0] for _ in range(3))
    for running, steps in ((whole, 61), (stopped, 32)):
        list(running.run(steps, eval_every=100, eval_episodes=1))
    restored.restore(*stopped.snapshot())
    list(restored.run(61, eval_every=100, eval_episodes=1))
    assert_same(whole.snapshot(), restored.snapshot())


def test_with_overlap_nothing_waits_so_that_acting_is_behind_by_one_train_step_as_ever():
    running, calls = counted(TD3, pn.Gaussian(), overlap=True)
    list(running.run(20, eval_every=100, eval_episodes=1))
    assert calls == [1] * 20


@pytest.mark.parametrize(
    ("settings", "num_envs", "capacity"),
    [
        ({}, 1, 2),
        ({"policy_delay": 3}, 1, 3),
        ({"policy_delay": 6}, 3, 2),
        ({}, 2, 1),  # the policy changes at every step of all environments
        ({"train_every": 4}, 1, 8),
        ({"train_every": 4, "train_steps": 2}, 1, 4),
        ({"normalise_observations": True}, 1, 1),  # the statistics that the policy uses change at every train step
        ({"policy_delay": 5_000}, 1, replay.MOST_PENDING),
    ],
)
def test_as_many_steps_can_wait_as_there_are_between_two_changes_of_the_policy(settings, num_envs, capacity):
    learner = td3.make(dataclasses.replace(CONFIG, **settings), SPACES)
    feed = ReplayFeed(learner, pn.Gaussian(), num_envs)
    feed.hold(for_episodes=False)
    assert feed._capacity == capacity


def test_steps_that_wait_while_an_episode_s_policy_is_fixed_change_nothing(monkeypatch):
    config = DDPGConfig(
        hidden_sizes=(8, 8), batch_size=8, buffer_size=150, train_every=3, train_steps=1, actor_learning_rate=0.1
    )
    calls, states = {}, {}
    for held in (1, 32):
        monkeypatch.setattr(replay, "HELD", held)
        running, calls[held] = counted(ddpg.make(config, SPACES), pn.ParameterNoise(delta=0.3, adapt_every=15))
        list(running.run(120, eval_every=1_000, eval_episodes=1))
        states[held] = running.state()
    assert [len(calls[held]) for held in (1, 32)] == [40, 5]  # one for each episode, the last of which is cut
    assert states[1].learner.updates == states[32].learner.updates == 40
    for one, other in zip(jax.tree.leaves(states[1]), jax.tree.leaves(states[32]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
