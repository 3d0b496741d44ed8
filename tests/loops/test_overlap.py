"""Learning while the environments step: one training behind, and otherwise as exact as without."""

import time

import gymnasium as gym
import jax
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.agents import DDPGConfig, ddpg
from paramnoise.agents.base import Spaces
from paramnoise.loops.host import HostLoop
from paramnoise.loops.vector import vector_source
from paramnoise.networks.policies import noise_free_actions

CONFIG = DDPGConfig(
    hidden_sizes=(8, 8), batch_size=8, buffer_size=150, train_every=40, train_steps=3, actor_learning_rate=0.1
)
LEARNER = ddpg.make(CONFIG, Spaces((3,), 1, False))
NOISE = pn.ParameterNoise(delta=0.3, adapt_every=15)


def loop(exploration=NOISE, overlap=True):
    source = vector_source(lambda: gym.make("Pendulum-v1", max_episode_steps=27))
    return HostLoop(LEARNER, exploration, source, overlap=overlap)


def trained(loop, steps=200, eval_every=1_000):
    list(loop.run(steps, eval_every=eval_every, eval_episodes=1))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(loop.snapshot())]


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_acting_is_one_training_behind():
    policies, running = [], loop(pn.NoNoise())
    for steps in (40, 80, 120):
        policies.append(running.policy())
        trained(running, steps)
    data = running.state().experience.data
    for first, policy in ((0, policies[0]), (40, policies[0]), (80, policies[1])):
        rows = slice(first, first + 40)
        np.testing.assert_allclose(data.action[rows], noise_free_actions(policy, data.obs[rows]), rtol=1e-5, atol=1e-6)
    assert np.abs(data.action[80:120] - noise_free_actions(policies[2], data.obs[80:120])).max() > 1e-3


def test_the_first_training_is_that_of_a_loop_without_overlap():
    def learner(overlap):
        running = loop(pn.Gaussian(), overlap)
        trained(running, 40)
        return jax.tree.leaves(running.state().learner)

    assert_same(learner(True), learner(False))


def test_a_slow_learner_and_evaluations_change_nothing():
    slow, plain = loop(), loop()
    learn_from = slow.collector._learning._learn_from

    def learn_slowly(*args):
        time.sleep(0.02)
        return learn_from(*args)

    slow.collector._learning._learn_from = learn_slowly
    assert_same(trained(slow), trained(plain))
    watched = loop()
    rows = list(watched.run(200, eval_every=33, eval_episodes=1))
    assert [row["step"] for (row,) in rows] == [33, 66, 99, 132, 165, 198, 200]
    assert_same(jax.tree.leaves(watched.state().learner), jax.tree.leaves(plain.state().learner))


@pytest.mark.parametrize("exploration", [NOISE, pn.OrnsteinUhlenbeck(dt=0.5)])
def test_a_loop_restored_within_a_cycle_goes_on_as_one_that_was_never_stopped(exploration):
    whole, stopped, restored = loop(exploration), loop(exploration), loop(exploration)
    trained(stopped, 130)
    restored.restore(*stopped.snapshot())
    assert_same(trained(whole, 330), trained(restored, 330))


def test_an_error_of_the_learner_reaches_the_caller():
    broken = loop()

    def fail(*args):
        raise ZeroDivisionError

    broken.collector._learning._learn_from = fail
    with pytest.raises(ZeroDivisionError):
        trained(broken, 100)


def test_an_on_policy_agent_cannot_overlap():
    with pytest.raises(pn.UsageError, match="overlap needs an agent that learns from replay, not trpo"):
        pn.TRPO("Pendulum-v1", overlap=True)
