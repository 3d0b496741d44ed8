"""One step of training: how often it learns and adapts, and what it leaves alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from paramnoise.agents import dqn
from paramnoise.agents.base import Spaces
from paramnoise.experience.replay import Transition
from paramnoise.explorations import EpsilonGreedy, NoNoise, ParameterNoise
from paramnoise.loops import state as states
from paramnoise.loops import step as steps
from paramnoise.loops.step import Behaviour

OBS = jnp.zeros((3, 2))


def learner(**settings):
    defaults = {"hidden_sizes": (4,), "batch_size": 4, "buffer_size": 60, "learning_starts": 0, "target_every": 100}
    return dqn.make(dqn.DQNConfig(**{**defaults, **settings}), Spaces((2,), 2, True))


def batch(num_envs=3):
    return Transition(
        jnp.ones((num_envs, 2)),
        jnp.ones(num_envs, jnp.int32),
        jnp.ones(num_envs),
        OBS[:num_envs],
        jnp.zeros(num_envs, bool),
    )


def first_state(agent, exploration):
    return jax.jit(functools.partial(states.init_with_replay, agent, exploration))(jax.random.PRNGKey(0), OBS)


def learned(agent, exploration, count):
    state = first_state(agent, exploration)
    learn = jax.jit(functools.partial(steps.learn, agent, exploration))
    states = [state]
    for _ in range(count):
        states.append(learn(states[-1], batch()))
    return states


def acted(agent, exploration, state, starts):
    """The state of training after the environments acted, episodes begun where they start."""

    @jax.jit
    def act(state, starts):
        behaviour = Behaviour(state.exploration, agent.policy(state.learner), state.key, state.step)
        return steps.begin_if_any(exploration, behaviour, starts)

    return state._replace(exploration=act(state, starts))


@pytest.mark.parametrize(
    ("train_every", "learning_starts", "updates"),
    [
        # three environments: 3, 6, 9, 12, 15 steps
        (1, 0, [0, 3, 6, 9, 12, 15]),
        (2, 0, [0, 1, 3, 4, 6, 7]),
        (4, 0, [0, 0, 1, 2, 3, 3]),
        (2, 5, [0, 0, 0, 2, 3, 5]),
    ],
)
def test_train_steps_follow_environment_steps_over_all_environments(train_every, learning_starts, updates):
    agent = learner(train_every=train_every, learning_starts=learning_starts, target_every=100)
    states = learned(agent, NoNoise(), 5)
    assert [int(state.learner.updates) for state in states] == updates
    assert [int(state.step) for state in states] == [0, 3, 6, 9, 12, 15]


def test_adaptations_follow_environment_steps():
    states = learned(learner(train_every=100), ParameterNoise(delta=0.1, adapt_every=4), 5)
    assert [int(state.exploration.scale.adaptations) for state in states] == [0, 0, 1, 2, 3, 3]


def test_nothing_is_learned_before_learning_starts():
    states = learned(learner(learning_starts=100), NoNoise(), 2)
    same = jax.tree.map(np.array_equal, states[-1].learner, states[0].learner)
    assert jax.tree.all(same)
    assert np.isnan(steps.report(NoNoise(), states[-1])[1]["q_loss"])


def test_learning_never_changes_the_acting_policies():
    agent, exploration = learner(), ParameterNoise(delta=0.1, sigma=1.0, adapt_every=1)
    before = acted(agent, exploration, first_state(agent, exploration), jnp.ones(3, bool))
    after = jax.jit(functools.partial(steps.learn, agent, exploration))(before, batch())
    assert jax.tree.all(jax.tree.map(np.array_equal, after.exploration.policies, before.exploration.policies))
    assert not jax.tree.all(jax.tree.map(np.array_equal, after.learner.network, before.learner.network))
    assert after.exploration.scale.sigma != before.exploration.scale.sigma


def test_an_episode_start_takes_up_what_was_learned_in_that_environment_alone():
    agent, exploration = learner(), ParameterNoise(delta=0.1, sigma=1.0)
    state = first_state(agent, exploration)
    state = acted(agent, exploration, state, jnp.ones(3, bool))
    before = state.exploration.policies.network.layers[0].weight
    state = acted(agent, exploration, state._replace(step=jnp.int32(3)), jnp.array([False, True, False]))
    after = state.exploration.policies.network.layers[0].weight
    assert [np.array_equal(old, new) for old, new in zip(before, after, strict=True)] == [True, False, True]


def test_reports_are_means_since_the_last_report():
    agent, exploration = learner(), EpsilonGreedy(epsilon_start=1.0, epsilon_end=0.0, anneal_steps=30)
    state = learned(agent, exploration, 5)[-1]
    state, shown = steps.report(exploration, state)
    assert shown["epsilon"] == pytest.approx(0.5)
    assert shown["q_loss"] > 0
    assert state.losses.train_steps == 0
    assert state.losses.total["q_loss"] == 0
