"""The chain by hand, and its two forms against each other."""

import itertools

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from paramnoise.envs.chain import ChainEnv, chain, horizon, optimal_return
from paramnoise.loops.environments import step_and_reset
from paramnoise.validation import UsageError

LEFT, RIGHT = 0, 1


def thermometer(length: int, position: int) -> list[float]:
    return [1.0] * position + [0.0] * (length - position)


def play(length: int, actions) -> tuple[list[int], list[float]]:
    """The positions and rewards that actions lead to."""
    env = ChainEnv(length)
    env.reset()
    positions, rewards = [], []
    for action in actions:
        obs, reward, *_ = env.step(action)
        positions.append(int(obs.sum()))
        rewards.append(reward)
    return positions, rewards


@pytest.mark.parametrize("length", [5, 20])
def test_gymnasium_s_checker_accepts_the_chain(length):
    check_env(gym.make("paramnoise/Chain-v0", length=length).unwrapped)


def test_an_episode_starts_in_the_second_state():
    obs, _ = ChainEnv(5).reset(seed=0)
    assert obs.tolist() == thermometer(5, 2)
    assert obs.dtype == np.float32


def test_the_observation_is_a_thermometer_of_the_position():
    env = ChainEnv(5)
    env.reset()
    assert [env.step(action)[0].tolist() for action in (RIGHT, RIGHT, RIGHT, LEFT)] == [
        thermometer(5, position) for position in (3, 4, 5, 4)
    ]


def test_the_left_wall_holds_and_pays_a_little_on_every_arrival():
    assert play(5, [LEFT, LEFT, LEFT, RIGHT, LEFT]) == ([1, 1, 1, 2, 1], [0.001, 0.001, 0.001, 0, 0.001])


def test_the_right_wall_holds_and_pays_in_full_on_every_arrival():
    assert play(5, [RIGHT] * 5 + [LEFT, RIGHT]) == ([3, 4, 5, 5, 5, 4, 5], [0, 0, 1, 1, 1, 0, 1])


@pytest.mark.parametrize("length", [3, 5, 12])
def test_an_episode_is_cut_after_n_plus_9_steps_and_never_terminates(length):
    env = ChainEnv(length)
    env.reset()
    ends = [env.step(RIGHT)[2:4] for _ in range(length + 9)]
    assert ends == [(False, False)] * (length + 8) + [(False, True)]
    assert horizon(length) == length + 9


def test_a_reset_starts_the_time_anew():
    env = ChainEnv(3)
    env.reset()
    for _ in range(5):
        env.step(RIGHT)
    env.reset()
    assert [env.step(RIGHT)[3] for _ in range(12)] == [False] * 11 + [True]


@pytest.mark.parametrize("length", [5, 8])
def test_the_compiled_chain_and_the_gymnasium_one_agree_step_by_step(length):
    env, compiled = ChainEnv(length), chain(length)
    step = jax.jit(compiled.step)
    key = jax.random.key(0)
    shown, state = compiled.reset(key)
    np.testing.assert_array_equal(shown, env.reset()[0])
    for action in np.random.default_rng(length).choice(2, size=horizon(length), p=[0.35, 0.65]):
        after, (obs, reward, terminated, truncated, _) = step(key, state, action), env.step(action)
        state = after.state
        np.testing.assert_array_equal(after.obs, obs)
        assert float(after.reward) == np.float32(reward)
        assert (bool(after.terminated), bool(after.truncated)) == (terminated, truncated)
    assert truncated


def test_the_compiled_chain_describes_itself_as_the_gymnasium_one_does():
    compiled, env = chain(7), ChainEnv(7)
    assert compiled.observation_space == env.observation_space
    assert compiled.action_space == env.action_space
    assert compiled.max_episode_steps == 16


def test_a_compiled_episode_s_end_keeps_the_final_observation_and_goes_on_from_the_start():
    env = chain(3)
    step = jax.jit(lambda state: step_and_reset(env, jax.random.key(0), state, RIGHT))
    _, state = env.reset(jax.random.key(0))
    for _ in range(horizon(3)):
        after, obs, state = step(state)
    assert bool(after.truncated)
    assert after.obs.tolist() == thermometer(3, 3)
    assert obs.tolist() == thermometer(3, 2)
    assert int(state.time) == 0


def test_the_optimum_is_that_of_trying_everything():
    def total(actions: tuple[int, ...]) -> float:
        position, sum_of_rewards = 2, 0.0
        for action in actions:
            position = min(position + 1, 3) if action == RIGHT else max(position - 1, 1)
            sum_of_rewards += {1: 0.001, 2: 0.0, 3: 1.0}[position]
        return sum_of_rewards

    assert optimal_return(3) == pytest.approx(max(map(total, itertools.product((LEFT, RIGHT), repeat=12))))


@pytest.mark.parametrize("length", [5, 20, 100])
def test_the_optimum_is_the_return_of_always_going_right(length):
    _, rewards = play(length, [RIGHT] * horizon(length))
    assert optimal_return(length) == pytest.approx(sum(rewards))
    assert optimal_return(length) == pytest.approx(12)  # N + 9 steps, of which N - 3 lead nowhere yet


@pytest.mark.parametrize("length", [2, 0, -1, 4.5, "5"])
@pytest.mark.parametrize("make", [ChainEnv, chain])
def test_a_length_that_cannot_be_is_refused(make, length):
    with pytest.raises(UsageError, match=f"length must be .* at least 3, not {length}$"):
        make(length)


def test_a_chain_is_drawn_as_a_line():
    env = ChainEnv(5, render_mode="ansi")
    env.reset()
    env.step(RIGHT)
    assert env.render() == "..o.."
