"""The whole compiled loop on a task whose answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import probe, true_values

from paramnoise.agents import bootstrapped_dqn, dqn
from paramnoise.agents.base import Spaces
from paramnoise.explorations import EpsilonGreedy, ParameterNoise
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.networks.policies import noise_free_actions

GAMMA = 0.6
SETTINGS = {
    "hidden_sizes": (16,),
    "gamma": GAMMA,
    "learning_rate": 6e-3,
    "batch_size": 32,
    "buffer_size": 2_000,
    "learning_starts": 50,
    "target_every": 10,
}
SPACES = Spaces((3,), 2, True)
UNIFORM = EpsilonGreedy(epsilon_end=1.0)


def trained(learner, exploration, steps=1_500):
    loop = CompiledLoop(learner, exploration, probe(), seeds=[0, 1], eval_every=steps)
    return loop, loop.run(1)


def values(policy):
    return jax.vmap(policy)(jnp.eye(3))


def test_the_known_values_are_what_the_tables_say():
    # By hand: s2 loops for 0.3 a step; s1 ends with 1, or moves there for 0.2; s0 ends with 0.5, or moves to s1.
    s2 = 0.3 / (1 - GAMMA)
    np.testing.assert_allclose(true_values(GAMMA), [[0.5, GAMMA * 1.0], [1.0, 0.2 + GAMMA * s2], [s2, s2]])


def test_dqn_learns_the_true_values_past_the_time_limit():
    loop, rows = trained(dqn.make(dqn.DQNConfig(**SETTINGS), SPACES), UNIFORM)
    for seed in (0, 1):
        np.testing.assert_allclose(values(loop.policy(seed)), true_values(GAMMA), atol=0.03)
    # Noise-free: right to s1, then end there for 1.
    np.testing.assert_allclose(rows["eval_return_mean"], 1.0, atol=1e-6)


def test_the_policy_head_learns_the_greedy_action_while_parameter_noise_explores():
    config = dqn.DQNConfig(**SETTINGS, policy_head=True)
    loop, _ = trained(dqn.make(config, SPACES), ParameterNoise(delta=0.3, adapt_every=1, epsilon=0.5))
    for seed in (0, 1):
        network = jax.tree.map(lambda leaf, i=seed: leaf[i], loop.state.train.learner.network)
        np.testing.assert_allclose(jax.vmap(network.q)(jnp.eye(3)), true_values(GAMMA), atol=0.05)
        acting = noise_free_actions(loop.policy(seed), jnp.eye(3))[:2]
        assert acting.tolist() == true_values(GAMMA)[:2].argmax(axis=1).tolist()


def test_every_bootstrap_head_learns_the_true_values():
    config = bootstrapped_dqn.BootstrappedDQNConfig(**SETTINGS, num_heads=3)
    loop, rows = trained(bootstrapped_dqn.make(config, SPACES), UNIFORM)
    found = values(loop.policy(0))  # [states, heads, actions]
    for head in range(3):
        np.testing.assert_allclose(found[:, head], true_values(GAMMA), atol=0.05)
    np.testing.assert_allclose(rows["eval_return_mean"], 1.0, atol=1e-6)


@pytest.mark.parametrize("terminal", [False, True])
def test_replay_ends_the_task_at_a_time_limit_only_if_it_is_to_be_terminal(terminal):
    learner = dqn.make(dqn.DQNConfig(**SETTINGS), SPACES)
    loop = CompiledLoop(learner, UNIFORM, probe(), seeds=[0], eval_every=40, terminal_time_limits=terminal)
    (episodes,), ends = loop.run(1)["episodes"][0], loop.state.train.experience.data.terminated.sum()
    assert ends == episodes if terminal else 0 < ends < episodes


@pytest.mark.parametrize("wrong", ["time limit ends the task", "termination is ignored"])
def test_the_probe_tells_the_usual_mistakes_apart(wrong):
    """The tolerances above would not let a merged `done` pass."""
    right = true_values(GAMMA)
    if wrong == "time limit ends the task":
        mistaken = right.copy()
        mistaken[2] = 0.3 + GAMMA * (0.75 * right[2, 0])  # one in four steps in s2 is the last before the limit
    else:
        mistaken = right + GAMMA * right.max(axis=1, keepdims=True) * np.array([[1, 0], [1, 0], [0, 0]])
    assert np.abs(mistaken - right).max() > 0.1
