"""Seeds that learn from vectors side by side in one program: each as it would alone, stopped and resumed together."""

import gymnasium as gym
import jax
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.agents import DQNConfig, ESConfig, PPOConfig, TD3Config, dqn, es, ppo, td3
from paramnoise.agents.base import Spaces
from paramnoise.loops.host import HostLoop
from paramnoise.loops.vector import vector_source
from paramnoise.validation import RunError

SEEDS = (3, 7)
PENDULUM = Spaces((3,), 1, False)
NOISE = pn.ParameterNoise(delta=0.3, adapt_every=15)
SMALL = {"hidden_sizes": (8, 8), "batch_size": 8, "buffer_size": 150}


def pendulum():
    return gym.make("Pendulum-v1", max_episode_steps=27)


def cart_pole():
    return gym.make("CartPole-v1", max_episode_steps=9)


CASES = {
    # trained at every step, of which many wait for one call, until an episode of any seed begins
    "td3": (td3.make(TD3Config(random_steps=10, learning_starts=10, **SMALL), PENDULUM), NOISE, pendulum),
    # acts by a compiled call; priorities and the row by row of n steps have an axis of seeds too
    "dqn": (
        dqn.make(DQNConfig(learning_starts=10, n_step=2, prioritized=True, **SMALL), Spaces((4,), 2, True)),
        pn.ParameterNoise(delta=0.3, epsilon=0.3, adapt_every=5),
        cart_pole,
    ),
}


def make_loop(case, seeds=SEEDS, **more):
    learner, exploration, make_env = CASES[case]
    return HostLoop(learner, exploration, vector_source(make_env), seeds=seeds, num_envs=2, **more)


def trained(loop, steps=120):
    return list(loop.run(steps, eval_every=60, eval_episodes=1))


def arrays(loop, member=0):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(loop.snapshot(member))]


@pytest.mark.parametrize("case", CASES)
def test_each_seed_learns_as_it_would_alone(case):
    together = make_loop(case)
    rows = trained(together)
    for member, seed in enumerate(SEEDS):
        alone = make_loop(case, [seed])
        for row, (other,) in zip(rows, trained(alone), strict=True):
            assert row[member].keys() == other.keys()
            for name, value in other.items():
                np.testing.assert_allclose(row[member][name], value, rtol=1e-3, err_msg=name)
        ours, theirs = together.state(member), alone.state()
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        for one, other in zip(jax.tree.leaves(ours.learner), jax.tree.leaves(theirs.learner), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(ours.experience.data.obs, theirs.experience.data.obs, rtol=1e-3, atol=1e-3)
        alone.close()
    together.close()


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_group_goes_on_to_the_bit(case):
    whole, first, second = (make_loop(case) for _ in range(3))
    trained(whole)
    trained(first, 76)
    for member in range(len(SEEDS)):
        second.restore(*first.snapshot(member), member)
    trained(first)
    trained(second)
    for member in range(len(SEEDS)):
        for one, other in zip(arrays(first, member), arrays(second, member), strict=True):
            np.testing.assert_array_equal(one, other)
    for one, other in zip(jax.tree.leaves(whole.policy(1)), jax.tree.leaves(second.policy(1)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_was_learned_alone_comes_back_without_experience():
    before, after = make_loop("td3"), make_loop("td3")
    trained(before, 60)
    after.restore_learned(before.state(1), 1)
    for one, other in zip(jax.tree.leaves(before.policy(1)), jax.tree.leaves(after.policy(1)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.any(after.state(1).experience.data.obs)


def test_one_of_a_group_goes_on_alone_and_as_part_of_another():
    together, alone, others = make_loop("td3"), make_loop("td3", [7]), make_loop("td3", [7, 3])
    trained(together, 76)
    alone.restore(*together.snapshot(1))
    for member, before in enumerate((1, 0)):
        others.restore(*together.snapshot(before), member)
    rows = [trained(loop)[-1] for loop in (together, alone, others)]
    for one, other in ((rows[0][1], rows[1][0]), (rows[0][1], rows[2][0]), (rows[0][0], rows[2][1])):
        for name, value in one.items():
            np.testing.assert_allclose(other[name], value, rtol=1e-3, err_msg=name)


def test_a_checkpoint_of_another_seed_is_refused():
    loop = make_loop("td3")
    trained(loop, 20)
    with pytest.raises(pn.UsageError, match="the checkpoint is of seed 7, and here is 3"):
        loop.restore(*loop.snapshot(1), 0)


def test_an_environment_that_gives_nan_is_named_by_its_seed():
    class Broken(gym.RewardWrapper):
        made = 0

        def __init__(self, env):
            super().__init__(env)
            self.number, Broken.made = Broken.made, Broken.made + 1

        def reward(self, reward):
            return float("nan") if self.number == 4 else reward  # the first was the source's, then two of each seed

    learner, exploration, _ = CASES["td3"]
    loop = HostLoop(learner, exploration, vector_source(lambda: Broken(pendulum())), seeds=SEEDS, num_envs=2)
    with pytest.raises(RunError, match="environment 1 of seed 7 gave"):
        trained(loop, 20)


def test_agents_that_do_not_learn_from_replay_and_overlap_are_refused():
    source = vector_source(pendulum)
    with pytest.raises(pn.UsageError, match="not those that learn from batches"):
        HostLoop(ppo.make(PPOConfig(), PENDULUM), pn.NoNoise(), source, seeds=SEEDS)
    with pytest.raises(pn.UsageError, match="not those that learn from returns"):
        HostLoop(es.make(ESConfig(), PENDULUM), pn.NoNoise(), source, seeds=SEEDS)
    with pytest.raises(pn.UsageError, match="and one seed"):
        make_loop("td3", overlap=True)
