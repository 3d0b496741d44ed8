"""TD3 and SAC through the API: exact resume with each exploration, first actions, what fits."""

import jax
import numpy as np
import pytest

import paramnoise as pn

QUIET = {"progress": False, "eval_every": 1_000, "eval_episodes": 1}
SETTINGS = {
    "hidden_sizes": (8, 8),
    "batch_size": 8,
    "buffer_size": 150,
    "train_every": 8,
    "train_steps": 3,
    "learning_starts": 16,
    "random_steps": 30,
}
CASES = [
    (pn.TD3, pn.Gaussian()),
    (pn.TD3, pn.ParameterNoise(delta=0.3, adapt_every=30)),
    (pn.SAC, pn.NoNoise()),
    (pn.SAC, pn.ParameterNoise(delta=0.3, adapt_every=30)),
]


def tiny(cls, exploration, **settings):
    return cls("Pendulum-v1", exploration=exploration, num_envs=2, **{**SETTINGS, **settings})


def arrays(agent):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(agent._loop.state())]


@pytest.mark.parametrize(("cls", "exploration"), CASES, ids=lambda value: getattr(value, "kind", None))
def test_an_agent_saved_within_a_cycle_learns_on_as_one_that_was_never_saved(tmp_path, cls, exploration):
    agent = tiny(cls, exploration).learn(118, **QUIET)
    agent.save(tmp_path)
    loaded = pn.load(tmp_path)
    assert type(loaded) is cls
    for one, other in zip(arrays(agent.learn(50, **QUIET)), arrays(loaded.learn(50, **QUIET)), strict=True):
        np.testing.assert_array_equal(one, other)
    state = agent._loop.state()
    assert state.learner.updates == 3 * ((168 - 16) // 8)
    assert all(np.isfinite(leaf).all() for leaf in arrays(agent) if leaf.dtype == np.float32 and leaf.size > 1)


@pytest.mark.parametrize("cls", [pn.TD3, pn.SAC])
def test_the_first_actions_are_uniform_whatever_explores_and_decided_by_the_seed(cls):
    def first_actions(seed):
        agent = tiny(cls, "parameter", random_steps=120, learning_starts=200, seed=seed).learn(130, **QUIET)
        return np.asarray(agent._loop.state().experience.data.action[:130, 0])

    actions = first_actions(0)
    assert np.abs(actions[:120]).max() > 0.9
    assert abs(actions[:120].mean()) < 4 / np.sqrt(3 * 120)
    assert actions[:120].std() == pytest.approx(1 / np.sqrt(3), rel=0.2)
    if cls is pn.TD3:
        assert np.abs(actions[120:]).max() < 0.9  # a perturbed actor, whose clean outputs are near 0
    np.testing.assert_array_equal(actions[:120], first_actions(0)[:120])
    assert (actions[:120] != first_actions(1)[:120]).all()


@pytest.mark.parametrize("cls", [pn.TD3, pn.SAC])
def test_predictions_are_noise_free_and_within_the_bounds_of_the_environment(cls):
    agent = tiny(cls, "none").learn(60, **QUIET)
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    actions, _ = agent.predict(rows)
    np.testing.assert_array_equal(actions, agent.predict(rows)[0])
    assert actions.shape == (20, 1)
    assert np.abs(actions).max() <= 2.0


@pytest.mark.parametrize(("cls", "kind"), [(pn.SAC, "gaussian"), (pn.SAC, "ou"), (pn.TD3, "epsilon-greedy")])
def test_an_exploration_that_does_not_fit_is_refused(cls, kind):
    with pytest.raises(pn.UsageError, match="does not fit"):
        cls("Pendulum-v1", exploration=kind)
