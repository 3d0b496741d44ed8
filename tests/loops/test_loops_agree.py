"""The compiled and the host loop are the same training."""

import functools

import jax
import numpy as np
import pytest

from paramnoise.agents import bootstrapped_dqn, dqn
from paramnoise.agents.base import Spaces
from paramnoise.envs import env_source
from paramnoise.envs.chain import chain
from paramnoise.explorations import BootstrapHead, EpsilonGreedy, ParameterNoise
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.loops.host import HostLoop

SETTINGS = {"hidden_sizes": (8,), "batch_size": 8, "buffer_size": 100, "learning_starts": 30, "target_every": 10}
EXTENSIONS = {"double_q": True, "dueling": True, "n_step": 3, "prioritized": True}
SPACES = Spaces((5,), 2, True)
EPISODE = 14
CASES = {
    "parameter": (dqn.make(dqn.DQNConfig(**SETTINGS), SPACES), ParameterNoise(delta=0.05, adapt_every=1, epsilon=0.1)),
    "epsilon-greedy": (dqn.make(dqn.DQNConfig(**SETTINGS), SPACES), EpsilonGreedy(anneal_steps=100)),
    "extensions": (dqn.make(dqn.DQNConfig(**SETTINGS, **EXTENSIONS), SPACES), EpsilonGreedy(anneal_steps=100)),
    "bootstrap": (
        bootstrapped_dqn.make(bootstrapped_dqn.BootstrappedDQNConfig(**SETTINGS, num_heads=3), SPACES),
        BootstrapHead(),
    ),
}


@functools.cache
def run_compiled(case, seeds):
    """A compiled loop and its rows."""
    loop = CompiledLoop(*CASES[case], chain(5), seeds=seeds, eval_every=EPISODE)
    return loop, loop.run(10)


@pytest.mark.parametrize("case", CASES)
def test_both_loops_give_the_same_curve_and_the_same_parameters(case):
    learner, exploration = CASES[case]
    compiled, fast = run_compiled(case, seeds=(3,))
    source = env_source("paramnoise/Chain-v0", {"length": 5})
    assert source.functions is not None  # by name, training is inside one program; here it is not
    host = HostLoop(learner, exploration, source._replace(functions=None), seeds=[3])
    slow = [row for (row,) in host.run(10 * EPISODE, eval_every=EPISODE, eval_episodes=1)]
    assert len(slow) == 10
    for name in set(slow[0]) - {"q_loss"}:
        np.testing.assert_allclose(fast[name][:, 0], [row[name] for row in slow], rtol=1e-3, err_msg=name)
    first = jax.tree.leaves(compiled.policy(0))
    for one, other in zip(first, jax.tree.leaves(host.policy()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_a_seed_does_not_depend_on_the_seeds_beside_it():
    rows = [run_compiled("parameter", seeds)[1] for seeds in ((3,), (7, 3))]
    for name in rows[0]:  # a distance is a small difference of numbers near 1, whose last digit is 6e-8
        np.testing.assert_allclose(rows[0][name][:, 0], rows[1][name][:, 1], rtol=1e-4, atol=1e-6, err_msg=name)
    assert not np.allclose(rows[1]["q_loss"][:, 0], rows[1]["q_loss"][:, 1], equal_nan=True)
