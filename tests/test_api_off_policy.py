"""TD3 and SAC through the API: exact resume with their explorations, first actions, what fits."""

import jax
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.keys import RANDOM

QUIET = {"progress": False, "eval_every": 1_000, "eval_episodes": 1}
SETTINGS = {
    "hidden_sizes": (8,),
    "batch_size": 8,
    "buffer_size": 200,
    "train_every": 8,
    "train_steps": 3,
    "learning_starts": 16,
    "random_steps": 30,
}
CASES = [
    (pn.TD3, pn.ColouredNoise(horizon=50)),
    (pn.SAC, pn.StateDraws(resample_every=20)),
]


def arrays(agent):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(agent._loop.state())]


@pytest.mark.parametrize(("cls", "exploration"), CASES, ids=lambda value: getattr(value, "kind", None))
def test_an_agent_saved_within_a_cycle_learns_on_as_one_that_was_never_saved(tmp_path, cls, exploration):
    agent = cls("Pendulum-v1", exploration=exploration, num_envs=2, seed=3, **SETTINGS).learn(118, **QUIET)
    agent.save(tmp_path)
    loaded = pn.load(tmp_path)
    assert type(loaded) is cls
    for one, other in zip(arrays(agent.learn(50, **QUIET)), arrays(loaded.learn(50, **QUIET)), strict=True):
        np.testing.assert_array_equal(one, other)
    state = agent._loop.state()
    assert state.learner.updates == 3 * ((168 - 16) // 8)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.learner.networks))
    # The first actions are uniform, whatever explores, and a function of the seed and the step.
    random = [2 * np.random.default_rng((3, RANDOM, step)).random((2, 1), np.float32) - 1 for step in range(0, 32, 2)]
    actions = np.asarray(state.experience.data.action)
    np.testing.assert_array_equal(actions[:30], np.concatenate(random[:15]))
    assert (actions[30:32] != random[15]).all()
    # What is predicted is noise-free, and within the bounds of the environment.
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    predicted, _ = agent.predict(rows)
    np.testing.assert_array_equal(predicted, agent.predict(rows)[0])
    assert predicted.shape == (20, 1)
    assert np.abs(predicted).max() <= 2.0


@pytest.mark.parametrize(("cls", "kind"), [(pn.SAC, "gaussian"), (pn.SAC, "ou"), (pn.TD3, "epsilon-greedy")])
def test_an_exploration_that_does_not_fit_is_refused(cls, kind):
    with pytest.raises(pn.UsageError, match="does not fit"):
        cls("Pendulum-v1", exploration=kind)
