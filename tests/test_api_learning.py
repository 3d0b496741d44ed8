"""Learning that one can follow, stop, write down and copy; and the policy as what it is."""

import contextlib
import copy
import inspect
import pickle
import signal
from functools import partial
from typing import ClassVar

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AsyncVectorEnv
from test_api import QUIET, TINY, assert_same_agent, tiny

import paramnoise as pn
from paramnoise import api
from paramnoise.cli import main
from paramnoise.runs.directory import WALL_CLOCK_COLUMNS, RunDirectory


class Heard(pn.Callback):
    """Writes down what it hears; asks to stop after so many steps."""

    def __init__(self, until=10**9):
        self.steps, self.episodes, self.rows, self._until = [], [], [], until

    def on_step(self, agent, step):
        assert agent.step == step
        self.steps.append(step)
        return step < self._until

    def on_episode_end(self, agent, episode):
        self.episodes.append(episode)

    def on_evaluation(self, agent, row):
        self.rows.append(row)


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    path, heard = tmp_path_factory.mktemp("logged") / "run", Heard()
    return tiny().learn(80, log_dir=path, callback=heard, eval_every=20, **QUIET), path, heard


def test_a_callback_hears_of_every_step_episode_and_evaluation(logged):
    _, _, heard = logged
    assert heard.steps == list(range(2, 82, 2))
    assert [row["step"] for row in heard.rows] == [20, 40, 60, 80]
    assert len(heard.episodes) == heard.rows[-1]["episodes"] > 0
    for env in (0, 1):  # CartPole pays 1 a step, and the episodes of an environment follow each other
        own = [episode for episode in heard.episodes if episode.env == env]
        assert [episode.length for episode in own] == [episode.episode_return for episode in own]
        ends = np.cumsum([episode.length for episode in own])
        np.testing.assert_array_equal([episode.step for episode in own], 2 * ends)


def test_a_callback_that_returns_false_stops_at_once_and_the_agent_goes_on_as_if_never_stopped(logged):
    agent = tiny().learn(80, callback=[lambda agent, row: True, Heard(until=30)], eval_every=20, **QUIET)
    assert agent.step == 30
    assert_same_agent(agent.learn(50, eval_every=20, **QUIET), logged[0])


def test_a_function_hears_of_evaluations():
    heard = []
    agent = tiny().learn(40, callback=lambda agent, row: heard.append((agent.step, row)), eval_every=20, **QUIET)
    assert [step for step, _ in heard] == [20, 40]
    assert [row for _, row in heard] == agent.history


@pytest.mark.parametrize(("callback", "words"), [(Heard, r"pass an object of it, Heard\(\)"), (3, "callback is 3")])
def test_what_is_no_callback_is_refused_in_one_line(callback, words):
    with pytest.raises(pn.UsageError, match=words):
        tiny().learn(4, callback=callback, **QUIET)


def test_history_is_what_the_run_directory_holds(logged):
    agent, path, _ = logged
    rows = RunDirectory(path).rows()
    assert [{name: str(value) for name, value in row.items()} for row in agent.history] == rows
    np.testing.assert_equal(pn.load(path).history, agent.history)  # NaN is NaN
    assert list(agent.history_frame()["step"]) == [20, 40, 60, 80]
    assert RunDirectory(path).summary()["status"] == "finished"


def test_an_agent_goes_on_in_its_own_directory_and_in_no_other(logged, tmp_path):
    agent = tiny().learn(40, log_dir=tmp_path / "run", eval_every=20, **QUIET)
    agent.learn(40, log_dir=tmp_path / "run", eval_every=20, **QUIET)
    one, other = (RunDirectory(path).rows() for path in (tmp_path / "run", logged[1]))
    for row, same in zip(one, other, strict=True):
        assert {name for name in row if row[name] != same[name]} <= set(WALL_CLOCK_COLUMNS)
    with pytest.raises(pn.UsageError, match="holds a run at step 80, and this agent is at step 0"):
        tiny().learn(100, log_dir=tmp_path / "run", eval_every=20, **QUIET)


def test_whole_numbers_may_be_floats_or_numpys_and_what_is_written_can_be_read(tmp_path):
    agent = tiny(seed=np.int64(3), learning_rate=np.float32(1e-3), hidden_sizes=tuple(np.array([8])))
    agent.learn(1e1, log_dir=tmp_path / "run", eval_every=np.int64(10), **QUIET)
    assert agent.step == 10
    assert_same_agent(pn.load(tmp_path / "run"), agent)
    agent.save(tmp_path / "saved")
    assert pn.load(tmp_path / "saved").config.seed == 3
    for steps in (1.5, "100", True, None, float("nan")):
        with pytest.raises(pn.UsageError, match="steps must be a whole number, not "):
            agent.learn(steps, **QUIET)


def test_a_stopped_agent_goes_on_in_its_directory_for_less_than_was_planned(tmp_path):
    agent = tiny().learn(1_000, log_dir=tmp_path, callback=Heard(until=30), eval_every=20, **QUIET)
    agent.learn(10, log_dir=tmp_path, **QUIET)  # evaluated as before
    assert agent.step == pn.load(tmp_path).step == 40
    assert [row["step"] for row in agent.history] == [20, 40]
    times = [row["wall_time"] for row in agent.learn(20, eval_every=10, **QUIET).history]
    assert times == sorted(times)


def test_an_interrupted_agent_begins_anew_in_the_directory_that_has_no_checkpoint_of_it(tmp_path, logged):
    def interrupt(agent, row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny().learn(80, log_dir=tmp_path, callback=interrupt, eval_every=20, **QUIET)
    assert_same_agent(tiny().learn(80, log_dir=tmp_path, eval_every=20, **QUIET), logged[0])
    assert [row["step"] for row in RunDirectory(tmp_path).rows()] == ["20", "40", "60", "80"]


class Signals(CartPoleEnv):
    """Ctrl-C is pressed within its steps of these numbers, counted over all environments."""

    at: ClassVar[list[int]] = []
    count = 0

    def step(self, action):
        Signals.count += 1
        if Signals.count in Signals.at:
            signal.raise_signal(signal.SIGINT)
        return super().step(action)


@pytest.fixture
def keys(monkeypatch):
    """Sets at which steps Ctrl-C is pressed, and the handler that Python begins with."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(Signals, "count", 0)
    yield lambda *at: monkeypatch.setattr(Signals, "at", list(at))
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_learning_at_a_clean_place_and_the_agent_goes_on_as_if_never_stopped(tmp_path, keys, logged):
    agent = tiny(Signals)
    keys(13)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(80, log_dir=tmp_path / "run", eval_every=20, **QUIET)
    assert agent.step == pn.load(tmp_path / "run", Signals).step == 14
    assert RunDirectory(tmp_path / "run").summary()["signal"] == signal.SIGINT
    agent.save(tmp_path / "saved")
    for other in (agent, pn.load(tmp_path / "saved", Signals)):
        assert_same_agent(other.learn(66, eval_every=20, **QUIET), logged[0])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_twice_ends_learning_at_once_and_a_handler_of_the_program_is_left_alone(keys):
    keys(13, 14)
    agent = tiny(Signals)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(80, **QUIET)
    assert agent.step < 14
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    heard = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    keys(Signals.count + 5)
    assert tiny(Signals).learn(20, **QUIET).step == 20
    assert heard == [signal.SIGINT]


def test_only_false_stops(logged):
    for answer in (0, "", [], None, np.zeros(2)):
        assert tiny().learn(20, callback=lambda agent, row, said=answer: said, eval_every=10, **QUIET).step == 20
    assert tiny().learn(20, callback=lambda agent, row: np.False_, eval_every=10, **QUIET).step == 10


def test_an_agent_is_not_saved_over_the_files_of_a_run(logged):
    _, path, _ = logged
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(pn.UsageError, match="holds a run, whose files belong together: choose another path"):
        tiny().save(path)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_the_best_agent_is_kept_and_cannot_learn_on(logged, capsys):
    _, path, heard = logged
    best = max(heard.rows, key=lambda row: row["eval_return_mean"])
    kept = pn.load(path / "best")
    assert kept.step == best["step"]
    same = tiny().learn(int(best["step"]), eval_every=20, **QUIET)
    assert kept.evaluate(3).returns == same.evaluate(3).returns
    with pytest.raises(pn.UsageError, match="without its experience: load the run itself"):
        kept.learn(2, **QUIET)
    assert main(["resume", str(path / "best"), "--steps", "200"]) == 2
    assert capsys.readouterr().err.endswith("without its experience: go on with the run itself\n")


def test_a_copy_and_a_pickled_agent_learn_on_as_the_agent_would():
    agent = tiny().learn(30, **QUIET)
    others = [copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))]
    agent.learn(20, **QUIET)
    for other in others:
        assert len(other.history) == 1
        assert_same_agent(agent, other.learn(20, **QUIET))
    assert len(agent.history) == len(copy.copy(agent).learn(20, **QUIET).history) - 1 == 2


class Mine(pn.DQN):
    """A user's own kind of agent."""


def test_a_copy_of_a_subclass_is_one(tmp_path):
    agent = Mine("CartPole-v1", **TINY)
    agent.save(tmp_path)
    for same in (copy.deepcopy(agent), pickle.loads(pickle.dumps(agent)), Mine.load(tmp_path)):
        assert type(same) is Mine
    assert type(pn.load(tmp_path)) is pn.DQN
    with pytest.raises(pn.UsageError, match="holds an agent of dqn, which paramnoise"):
        pn.DDPG.load(tmp_path)
    for load in (Mine.load, pn.load):
        with pytest.raises(TypeError, match="unexpected keyword argument 'netwrok'"):
            load(tmp_path, netwrok=None)


def test_trying_to_copy_an_agent_of_processes_leaves_it_whole():
    with contextlib.closing(AsyncVectorEnv([partial(gym.make, "CartPole-v1")] * 2, context="spawn")) as envs:
        agent = tiny(envs)
        for whose in (agent, tiny(gym.wrappers.vector.RecordEpisodeStatistics(envs))):
            for copied in (copy.deepcopy, pickle.dumps):
                with pytest.raises(pn.UsageError, match="an AsyncVectorEnv's processes cannot be copied"):
                    copied(whose)
        assert agent.learn(10, **QUIET).step == 10


@pytest.mark.parametrize("name", ["DQN", "Evaluation", "_from_files"])
def test_what_older_pickles_name_is_found_where_they_name_it(name):
    assert pickle.loads(f"cparamnoise.api\n{name}\n.".encode()) is getattr(api, name)


def test_the_policy_is_a_pytree_that_predicts_under_jit_and_vmap(logged):
    agent = logged[0]
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    greedy = jax.jit(jax.vmap(lambda policy, o: policy.greedy(policy(o)), in_axes=(None, 0)))
    np.testing.assert_array_equal(greedy(agent.policy, obs), agent.predict(obs)[0])
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(agent.policy)])
    np.testing.assert_array_equal(flat, np.concatenate([np.ravel(leaf) for leaf in agent.parameters.values()]))


def test_perturbing_is_the_noise_core_s(logged):
    for one, other in zip(*(jax.tree.leaves(logged[0].perturb(key, 0.1)) for key in (2, np.int64(2))), strict=True):
        np.testing.assert_array_equal(one, other)
    agent = logged[0]
    for key in (jax.random.PRNGKey(3), 3):
        one, other = agent.perturb(key, 0.1), pn.noise.perturb(jax.random.PRNGKey(3), agent.policy, 0.1)
        assert all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))
    assert all(map(np.array_equal, jax.tree.leaves(agent.perturb(3, 0.0)), jax.tree.leaves(agent.policy)))
    for sigma in (-1.0, float("inf"), float("nan")):
        with pytest.raises(pn.UsageError, match="sigma must be at least 0 and finite"):
            agent.perturb(0, sigma)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda agent: agent.predict((np.zeros(4), {})), "observation .* expected an array of shape"),
        (lambda agent: agent.record("a.gif", perturbed=1, sigma=0.1, max_steps=0), "max_steps must be at least 1"),
        (lambda agent: agent.evaluate(2.5), "episodes must be a whole number"),
        (lambda agent: agent.evaluate(2, seed=None), "seed must be a whole number"),
        (lambda agent: agent.evaluate(2, seed=-1), "seed must be at least 0"),
        (lambda agent: tiny(exploration=pn.ParameterNoise), r"a name or an object, such as ParameterNoise\(\)"),
        (lambda agent: tiny(exploration={"kind": "parameter"}), "exploration must be a name or an object, not"),
        (lambda agent: tiny(added_later=1), "no setting 'added_later'"),
    ],
)
def test_mistakes_are_told_in_one_line(logged, wrong, words):
    with pytest.raises(pn.UsageError, match=words) as caught:
        wrong(logged[0])
    assert "added_later," not in str(caught.value)


def test_weights_are_exported_with_their_names(logged, tmp_path):
    from safetensors.numpy import load_file

    agent = logged[0]
    agent.export(tmp_path / "weights.safetensors")
    read = load_file(tmp_path / "weights.safetensors")
    assert read.keys() == agent.parameters.keys()
    for name, array in read.items():
        np.testing.assert_array_equal(array, agent.parameters[name])


def test_a_constructor_says_which_keywords_it_takes():
    parameters = inspect.signature(pn.DQN).parameters
    assert parameters["learning_rate"].default == 3e-4
    assert parameters["num_envs"].default == 1
    assert set(TINY) < set(parameters)
    assert "steps" not in parameters


def test_the_second_equal_agent_compiles_nothing(compiled):
    tiny().learn(40, **QUIET)
    compiled.clear()
    again = tiny().learn(40, **QUIET)
    again.evaluate(2)
    assert not [name for name in compiled if "backend_compile" in name]
