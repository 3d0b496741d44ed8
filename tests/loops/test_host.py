"""The host loop on replay: what it stores, when episodes begin, what it counts, and when it stops."""

import jax
import numpy as np
import pytest
from probes import ScriptedEnv

from paramnoise.agents import dqn
from paramnoise.agents.base import Spaces
from paramnoise.explorations import ParameterNoise
from paramnoise.loops.environments import EnvStep
from paramnoise.loops.feeds.replay import ReplayFeed
from paramnoise.loops.host import HostLoop
from paramnoise.loops.vector import vector_source
from paramnoise.validation import RunError, UsageError

CONFIG = dqn.DQNConfig(hidden_sizes=(8,), batch_size=4, buffer_size=64, learning_starts=4, target_every=8)
LEARNER = dqn.make(CONFIG, Spaces((2,), 4, True))
EXPLORATION = ParameterNoise(delta=0.5, sigma=1.0, epsilon=0.5, adapt_every=1)


def scripted_loop(num_envs=1, terminal_time_limits=False, **script):
    """A loop, and the environments that it trains on."""
    made = []

    def make():
        made.append(ScriptedEnv(**script))
        return made[-1]

    source = vector_source(make)
    made.clear()  # the one that the source looked at
    loop = HostLoop(LEARNER, EXPLORATION, source, num_envs=num_envs, terminal_time_limits=terminal_time_limits)
    return loop, made[:num_envs]


def run(loop, steps):
    return [row for (row,) in loop.run(steps, eval_every=steps, eval_episodes=1)]


def replay(loop):
    return jax.tree.map(np.asarray, loop.state().experience)


def test_replay_stores_the_executed_actions():
    loop, (env,) = scripted_loop()
    run(loop, 30)
    stored = replay(loop).data.action[:30]
    assert stored.tolist() == env.given
    assert len(set(env.given)) > 1


def test_replay_stores_the_final_observation_and_not_the_next_reset():
    loop, _ = scripted_loop(lengths=(3, 5, 2))
    run(loop, 10)
    data = replay(loop).data
    stays = data.next_obs[:10, 0] == data.obs[:10, 0]  # the same episode before and after
    assert stays.all()
    np.testing.assert_array_equal(data.obs[:10, 1], [0, 1, 2, 0, 1, 2, 3, 4, 0, 1])
    np.testing.assert_array_equal(data.next_obs[:10, 1], [1, 2, 3, 1, 2, 3, 4, 5, 1, 2])


def test_replay_marks_termination_and_never_truncation():
    for truncates in (True, False):
        loop, _ = scripted_loop(lengths=(3, 5, 2), truncates=truncates)
        run(loop, 10)
        ends = np.flatnonzero(replay(loop).data.terminated[:10])
        assert ends.tolist() == ([] if truncates else [2, 7, 9])


def test_a_time_limit_is_stored_as_an_end_of_the_task_if_it_is_to_be_terminal():
    loop, _ = scripted_loop(num_envs=2, lengths=(3, 5, 2), terminal_time_limits=True)
    (row,) = run(loop, 20)
    terminated = replay(loop).data.terminated[:20].reshape(10, 2)
    assert [np.flatnonzero(each).tolist() for each in terminated.T] == [[2, 7, 9]] * 2
    assert (row["episodes"], row["train_return_mean"]) == (6, (6 + 15 + 3) / 3)  # counted as ever
    assert row["eval_return_mean"] == 6


def test_every_environment_has_its_own_perturbed_policy_resampled_at_its_own_episodes():
    loop, _ = scripted_loop(num_envs=2, lengths=(4,))
    run(loop, 2)
    weights = loop.state().exploration.policies.network.layers[0].weight
    assert not np.allclose(weights[0], weights[1])
    sampled = []
    for steps in (4, 6, 8, 10):
        run(loop, steps)
        sampled.append(np.asarray(loop.state().exploration.sampled_at).tolist())
    assert sampled == [[0, 0], [0, 0], [0, 0], [8, 8]]  # the steps at which their episodes began


def test_returns_and_episodes_are_counted_over_all_environments():
    loop, _ = scripted_loop(num_envs=2, lengths=(3,))
    (row,) = run(loop, 12)
    assert (row["step"], row["episodes"]) == (12, 4)
    assert row["train_return_mean"] == 1 + 2 + 3
    assert row["eval_return_mean"] == 6


def test_nothing_is_compiled_anew_after_the_first_steps(compiled):
    loop, _ = scripted_loop()
    run(loop, 12)
    compiled.clear()
    run(loop, 60)
    assert not compiled


def test_a_run_stops_before_the_next_step_when_it_is_asked_to():
    loop, _ = scripted_loop()
    seen = []
    rows = loop.run(50, eval_every=5, eval_episodes=1, on_step=seen.append, should_stop=lambda: len(seen) >= 7)
    assert [row["step"] for (row,) in rows] == [5]
    assert loop.step == 7


def test_an_evaluation_episode_without_an_end_is_cut():
    loop = HostLoop(LEARNER, EXPLORATION, vector_source(lambda: ScriptedEnv(lengths=(10**9,))), eval_max_steps=5)
    assert loop.evaluate(2, seed=0).tolist() == [15.0, 15.0]  # rewards 1 to 5


class Poisoned(ScriptedEnv):
    """Shows a NaN, or pays an infinite reward, at its fourth step."""

    def __init__(self, what):
        super().__init__(lengths=(9,))
        self.what = what

    def step(self, action):
        obs, reward, *rest = super().step(action)
        if self.time == 4:
            obs, reward = (obs * np.nan, reward) if self.what == "observation" else (obs, np.inf)
        return obs, reward, *rest


@pytest.mark.parametrize("what", ["observation", "reward"])
def test_a_number_that_is_not_finite_stops_the_run_before_it_reaches_replay(what):
    loop = HostLoop(LEARNER, EXPLORATION, vector_source(lambda: Poisoned(what)))
    with pytest.raises(RunError, match="not finite, at step 4"):
        run(loop, 20)
    assert np.isfinite(replay(loop).data.obs).all()
    assert replay(loop).added == 3


def test_a_loss_that_is_not_finite_stops_the_run_and_is_named():
    loop, _ = scripted_loop()
    state, own = loop.snapshot()
    network = jax.tree.map(lambda leaf: leaf * np.inf, state.learner.network)
    loop.restore(state._replace(learner=state.learner._replace(network=network)), own)
    with pytest.raises(RunError, match="q_loss is nan by step 10"):
        run(loop, 10)


def n_step_feed(**how):
    config = dqn.DQNConfig(hidden_sizes=(8,), batch_size=4, buffer_size=64, n_step=3)
    return ReplayFeed(dqn.make(config, Spaces((2,), 4, True)), EXPLORATION, 2, **how)


def test_for_several_steps_per_item_replay_is_told_where_episodes_start():
    obs, nothing, starts = np.zeros((2, 2), np.float32), np.zeros(2, bool), np.array([True, False])
    step = EnvStep(obs, np.zeros(2, np.float32), nothing, nothing, nothing, nothing, obs)
    feed = n_step_feed()
    feed.add(obs, starts, np.zeros(2, np.int32), step)
    (taken, _) = feed.take(2).args
    assert taken.starts.tolist() == [True, False]
    feed = ReplayFeed(LEARNER, EXPLORATION, 2)
    feed.add(obs, starts, np.zeros(2, np.int32), step)
    assert feed.take(2).args[0].starts is None


def test_several_steps_per_item_are_refused_where_environments_skip_steps():
    with pytest.raises(UsageError, match="n_step is 3, but environments that skip a step"):
        n_step_feed(skips=True)
