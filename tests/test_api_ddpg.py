import jax
import numpy as np
import pytest

import paramnoise as pn

QUIET = {"progress": False, "eval_every": 1_000, "eval_episodes": 2}
SETTINGS = {"hidden_sizes": (8, 8), "batch_size": 8, "buffer_size": 150, "train_every": 40, "train_steps": 3}
SETTINGS["learning_starts"] = 0  # not the preset's


def tiny(exploration="parameter", **settings):
    return pn.DDPG("Pendulum-v1", exploration=exploration, num_envs=2, **{**SETTINGS, **settings})


def parameters(agent):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(agent._loop.state())]


@pytest.mark.parametrize(
    "exploration", [pn.ParameterNoise(delta=0.3, adapt_every=30, max_age=50), pn.OrnsteinUhlenbeck(dt=0.5)]
)
def test_an_agent_saved_within_a_cycle_learns_on_as_one_that_was_never_saved(tmp_path, exploration):
    agent = tiny(exploration).learn(250, **QUIET)  # the last cycle ended at 240
    agent.save(tmp_path)
    loaded = pn.load(tmp_path)
    for one, other in zip(parameters(agent.learn(250, **QUIET)), parameters(loaded.learn(250, **QUIET)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert agent._loop.state().learner.updates == 3 * (500 // 40)


def test_an_episode_keeps_the_statistics_of_its_start_and_the_first_has_none():
    agent = tiny().learn(80, **QUIET)
    state = agent._loop.state()
    assert state.learner.normaliser.seen == 80
    assert not state.exploration.policies.network.normaliser.seen.any()  # and so leave an observation as it is
    agent.learn(2 * 200 + 2 - 80, **QUIET)  # into the second episode of both environments
    assert agent._loop.state().exploration.policies.network.normaliser.seen.tolist() == [400, 400]


def test_predictions_are_in_the_environment_s_bounds():
    agent = tiny().learn(80, **QUIET)
    state, own = agent._loop.snapshot()
    networks = state.learner.networks
    loud = networks._replace(actor=jax.tree.map(lambda leaf: 100 * leaf, networks.actor))
    agent._loop.restore(state._replace(learner=state.learner._replace(networks=loud)), own)
    actions, _ = agent.predict(np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32))
    assert actions.shape == (20, 1)
    assert 1.5 < np.abs(actions).max() <= 2.0
    single, _ = agent.predict(np.zeros(3, np.float32))
    assert single.shape == (1,)


@pytest.mark.parametrize("exploration", ["none", "gaussian", "ou", "parameter"])
def test_every_exploration_of_the_paper_learns_with_ddpg(exploration):
    agent = tiny(exploration).learn(80, **QUIET)
    assert agent._loop.state().learner.updates == 6
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(agent._loop.state().learner))


@pytest.mark.parametrize(("env", "exploration"), [("CartPole-v1", "parameter"), ("Pendulum-v1", "epsilon-greedy")])
def test_what_does_not_fit_continuous_actions_is_refused(env, exploration):
    with pytest.raises(pn.UsageError, match="continuous"):
        pn.DDPG(env, exploration=exploration)
