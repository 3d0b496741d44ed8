"""Environments of Brax by name, whose time limit is looked at apart; a fake one stands for Brax where it is missing."""

import importlib.util
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.envs import env_source
from paramnoise.envs.brax import MEMBERS, adapted
from paramnoise.validation import UsageError

HAS_BRAX = importlib.util.find_spec("brax") is not None


class State(eqx.Module):
    """What Brax's environments return, as far as it is used."""

    place: Any
    obs: Any
    reward: Any
    done: Any
    metrics: dict


class Falls:
    """Bare, as Brax's environments are: it falls at a height of 3, has no time limit, and writes into its metrics."""

    observation_size, action_size = 2, 1

    def reset(self, key):
        zero = jnp.zeros(())
        return State(zero, jnp.array([0.0, 0.0]), zero, zero, {"height": zero})

    def step(self, state, action):
        place = state.place + action[0]
        state.metrics.update(height=place)
        return State(place, jnp.array([place, 1.0]), action[0], (place >= 3.0).astype(jnp.float32), state.metrics)


FALLS = adapted("brax/falls", Falls(), limit=5)


def episode(height):
    """The ends that each step of an episode tells of, with the same action at every step."""
    _, state = FALLS.reset(jax.random.key(0))
    ends = []
    for _ in range(5):
        after = FALLS.step(jax.random.key(1), state, jnp.array([height]))
        state = after.state
        ends.append((bool(after.terminated), bool(after.truncated)))
    return ends


def test_its_own_end_is_a_termination_and_the_limit_a_truncation():
    none, ended, cut = (False, False), (True, False), (False, True)
    assert episode(0.1) == [none, none, none, none, cut]
    assert episode(1.0)[:3] == [none, none, ended]
    assert episode(0.7)[4] == ended  # both at once: the task's end is what counts


def test_a_step_leaves_the_state_before_it_as_it_was():
    _, state = FALLS.reset(jax.random.key(0))
    FALLS.step(jax.random.key(1), state, jnp.array([1.0]))
    assert state.own.metrics["height"] == 0


@pytest.mark.slow
def test_an_agent_of_continuous_actions_trains_on_it_in_one_program():
    settings = {"batch_size": 4, "buffer_size": 64, "learning_starts": 8, "train_every": 1, "train_steps": 1}
    made = pn.TD3(FALLS, num_envs=2, hidden_sizes=(4,), **settings)
    made.learn(32, eval_every=32, eval_episodes=1, progress=False)
    assert made.history[-1]["episodes"] >= 2
    assert np.isfinite(made.history[-1]["critic_loss"])


@pytest.mark.skipif(HAS_BRAX, reason="brax is installed")
def test_without_brax_a_name_is_answered_with_what_to_install():
    with pytest.raises(UsageError, match=r"Brax's environments need an extra .*pip install 'paramnoise\[brax\]'"):
        env_source("brax/halfcheetah")


@pytest.mark.skipif(not HAS_BRAX, reason="brax is not installed")
@pytest.mark.parametrize(
    ("name", "env_kwargs", "says"),
    [
        ("brax/nothing", {}, "unknown environment 'brax/nothing': choose from ant, halfcheetah"),
        ("brax/ant", {"legs": 7}, "cannot make environment 'brax/ant': TypeError"),
        ("brax/ant", {"episode_length": 0}, "episode_length must be a whole number of at least 1"),
    ],
)
def test_bad_names_and_keywords_are_one_line(name, env_kwargs, says):
    with pytest.raises(UsageError, match=says):
        env_source(name, env_kwargs)


@pytest.mark.skipif(not HAS_BRAX, reason="brax is not installed")
@pytest.mark.slow
def test_the_half_cheetah_runs_and_is_cut_after_its_episode_length():
    from brax import envs

    assert set(MEMBERS) <= set(envs._envs)
    source = env_source("brax/halfcheetah", {"backend": "spring", "episode_length": 4})
    vector = source.make_envs([0], 2, trains=True)
    vector.restart()
    after = [vector.step(np.zeros((2, 6), np.float32)) for _ in range(4)]
    assert after[0].obs.shape == (2, 17)
    np.testing.assert_array_equal([each.truncated for each in after], [[False] * 2] * 3 + [[True] * 2])
    assert not any(each.terminated.any() for each in after)
