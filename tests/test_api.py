"""The object that people use: learn, predict, evaluate, save, load."""

from pathlib import Path

import gymnasium as gym
import jax
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.cli import main

TINY = {"hidden_sizes": (8,), "batch_size": 4, "buffer_size": 64, "learning_starts": 8, "target_every": 4}
QUIET = {"eval_episodes": 2, "progress": False}


def cart_pole() -> gym.Env:
    return gym.make("CartPole-v1")


def tiny(env="CartPole-v1", **settings) -> pn.DQN:
    """An agent that no preset changes."""
    fixed = {"exploration": pn.ParameterNoise(adapt_every=3), "num_envs": 2, "double_q": False, "learning_rate": 3e-4}
    return pn.DQN(env, **{**fixed, **TINY, **settings})


def assert_same_agent(one: pn.Agent, other: pn.Agent, but_for: tuple[str, ...] = ()) -> None:
    """All that changes in training is the same in both, bit by bit."""
    for part in set(one._loop.state()._fields) - set(but_for):
        pair = (getattr(agent._loop.state(), part) for agent in (one, other))
        for a, b in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=part)
    assert one.evaluate(3).returns == other.evaluate(3).returns


class ShiftedActions(gym.Env):
    """Its actions are 1 and 2."""

    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), f"action {action} is outside the action space"
        return np.ones(4, np.float32), 1.0, False, True, {}


@pytest.fixture(scope="module")
def learned() -> pn.DQN:
    return tiny().learn(40, **QUIET)


def test_learning_trains_for_the_steps_it_was_given(learned):
    assert learned.step == 40
    assert int(learned._loop.state().learner.updates) == 40 - 8


@pytest.mark.parametrize("terminal", [False, True])
def test_a_time_limit_ends_the_task_of_an_agent_only_if_told_so_and_stays_told(terminal, tmp_path):
    class AlwaysCut(gym.Env):
        observation_space, action_space = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(4, np.float32), {}

        def step(self, action):
            return np.ones(4, np.float32), 1.0, False, True, {}

    agent = tiny(AlwaysCut, terminal_time_limits=terminal).learn(10, **QUIET)
    agent.save(tmp_path)
    again = pn.load(tmp_path, AlwaysCut)
    again.learn(10, **QUIET)
    stored = np.asarray(again._loop.state().experience.data.terminated)[:20]
    assert stored.all() if terminal else not stored.any()


def test_learning_again_goes_on(learned):
    agent = tiny().learn(24, **QUIET)
    assert agent.learn(16, **QUIET) is agent
    assert agent.step == 40
    assert_same_agent(agent, learned, but_for=("losses",))  # their sums start anew at each evaluation


def test_learning_prints_its_evaluations_unless_told_not_to(capsys):
    agent = tiny().learn(8, eval_every=4, eval_episodes=2)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["4", "8"]
    agent.learn(8, **QUIET)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("method", "value"), [("learn", 0), ("learn", -3), ("evaluate", 0)])
def test_less_than_one_is_refused(learned, method, value):
    with pytest.raises(pn.UsageError, match=f"at least 1, not {value}"):
        getattr(learned, method)(value)


def test_predict_gives_one_action_for_one_observation_and_one_each_for_a_batch(learned):
    batch = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    actions, state = learned.predict(batch)
    assert state is None
    assert actions.shape == (50,)
    assert set(actions.tolist()) == {0, 1}
    singles = [learned.predict(obs)[0] for obs in batch[:5]]
    assert all(action.shape == () for action in singles)
    assert [int(action) for action in singles] == actions[:5].tolist()
    assert int(learned.predict(batch[0].tolist(), deterministic=True)[0]) == int(singles[0])


def test_predict_is_the_clean_policy_s_greedy_action(learned):
    obs = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    network = learned._loop.state().learner.network.behaviour
    assert learned.predict(obs)[0].tolist() == np.argmax(jax.vmap(network)(obs), axis=1).tolist()


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 4, 3), ()])
def test_predict_refuses_an_observation_of_another_shape(learned, shape):
    with pytest.raises(pn.UsageError, match="shape"):
        learned.predict(np.zeros(shape))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_predict_refuses_an_observation_that_is_not_finite(learned, number):
    with pytest.raises(pn.UsageError, match="not finite"):
        learned.predict(np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, number, 0.0]]))


def test_predict_takes_the_whole_numbers_that_a_discrete_task_shows():
    agent = tiny("FrozenLake-v1", env_kwargs={"is_slippery": False}).learn(10, **QUIET)
    one, _ = agent.predict(3)
    assert one.shape == ()
    for batch in (np.arange(16), list(range(16))):
        actions, _ = agent.predict(batch)
        assert actions.shape == (16,)
        assert actions[3] == one
    assert agent.predict(np.int64(3))[0] == one


def test_predict_takes_what_a_user_s_own_flattened_environment_shows():
    env = gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1"))
    agent = tiny(lambda: gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1")))
    assert agent.predict(env.reset(seed=0)[0])[0].shape == ()


def test_actions_that_do_not_start_at_0_are_refused():
    with pytest.raises(pn.UsageError, match="from 0"):
        tiny(ShiftedActions)


def test_evaluation_repeats_by_its_seed_and_describes_itself(learned):
    evaluation = learned.evaluate(5, seed=1)
    assert evaluation == learned.evaluate(5, seed=1)
    assert evaluation.returns != learned.evaluate(5, seed=2).returns
    assert len(evaluation.returns) == 5
    assert evaluation.mean == pytest.approx(sum(evaluation.returns) / 5)
    assert evaluation.median == sorted(evaluation.returns)[2]
    assert "over 5 episodes" in str(evaluation)


def test_a_loaded_agent_learns_on_as_one_that_was_never_saved(tmp_path):
    agent = tiny(exploration=pn.ParameterNoise(max_age=9, epsilon=0.1)).learn(30, **QUIET)
    agent.save(tmp_path / "agent")
    loaded = pn.load(tmp_path / "agent")
    assert type(loaded) is pn.DQN
    assert loaded.config == agent.config
    assert_same_agent(loaded, agent)
    assert_same_agent(loaded.learn(30, **QUIET), agent.learn(30, **QUIET))


def test_an_agent_can_be_saved_before_it_learned_and_over_itself(tmp_path):
    agent = tiny()
    agent.save(tmp_path)
    assert_same_agent(pn.load(tmp_path).learn(20, **QUIET), agent.learn(20, **QUIET))
    agent.save(str(tmp_path))
    assert_same_agent(pn.load(str(tmp_path)), agent)
    assert_same_agent(pn.DQN.load(tmp_path), agent)
    with pytest.raises(pn.UsageError, match="holds an agent of dqn"):
        pn.DDPG.load(tmp_path)


def test_saving_refuses_what_is_not_a_saved_agent(learned, tmp_path):
    (tmp_path / "chapter.txt").write_text("precious")
    for path in (tmp_path, tmp_path / "chapter.txt"):
        with pytest.raises(pn.UsageError, match="not a saved agent"):
            learned.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["chapter.txt"]
    assert (tmp_path / "chapter.txt").read_text() == "precious"


@pytest.mark.parametrize("missing", ["nothing", "checkpoint"])
def test_loading_from_a_directory_without_an_agent_is_refused(learned, tmp_path, missing):
    if missing == "checkpoint":
        learned.save(tmp_path)
        (tmp_path / "checkpoint" / "checkpoint.json").unlink()
    with pytest.raises(pn.UsageError, match=str(tmp_path)):
        pn.load(tmp_path)


def test_a_run_directory_of_the_command_line_can_be_loaded(tmp_path, capsys):
    words = "train dqn --env CartPole-v1 --num-envs 2 --exploration parameter --hidden-sizes 8 --batch-size 4"
    words += " --buffer-size 64 --learning-starts 8 --target-every 4 --steps 40 --eval-episodes 2 --run-dir"
    assert main([*words.split(), str(tmp_path / "run")]) == 0
    agent = pn.load(tmp_path / "run")
    assert_same_agent(agent, pn.DQN("CartPole-v1", exploration="parameter", num_envs=2, **TINY).learn(40, **QUIET))
    capsys.readouterr()
    main(["evaluate", str(tmp_path / "run"), "--episodes", "3"])
    assert str(agent.evaluate(3)) in capsys.readouterr().out


@pytest.mark.parametrize("env", [cart_pole(), cart_pole], ids=["instance", "function"])
def test_an_instance_or_a_function_is_as_good_as_an_id(learned, env, tmp_path):
    agent = tiny(env).learn(40, **QUIET)
    assert_same_agent(agent, learned)
    agent.save(tmp_path)
    assert_same_agent(pn.load(tmp_path, env=env), learned)


def test_an_environment_that_only_a_function_makes_must_be_given_again(tmp_path):
    tiny(cart_pole).save(tmp_path)
    with pytest.raises(pn.UsageError, match="cart_pole"):
        pn.load(tmp_path)


def test_an_environment_with_other_observations_is_refused_with_what_differs(tmp_path):
    tiny(cart_pole).save(tmp_path)
    with pytest.raises(pn.UsageError, match=r"config or environment: .* is float32\[8, 4\], here .* float32\[8, 2\]"):
        pn.load(tmp_path, env="MountainCar-v0")


def test_an_instance_keeps_the_keywords_that_it_was_made_with(tmp_path):
    agent = pn.DQN(gym.make("paramnoise/Chain-v0", length=5), hidden_sizes=(8,), batch_size=4, buffer_size=64)
    assert agent.config.agent.learning_starts == 5 * 14  # the preset of this length, not of the default one
    agent.save(tmp_path)
    with pytest.raises(pn.UsageError, match="env="):  # an id would lose the keywords, and wrappers, in silence
        pn.load(tmp_path)
    again = pn.load(tmp_path, env=gym.make("paramnoise/Chain-v0", length=5))
    assert again.evaluate(1).returns == agent.evaluate(1).returns


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"learning_rat": 1e-3}, "learning_rate"),
        ({"exploration": "wander"}, "epsilon-greedy"),
        ({"exploration": "gaussian"}, "parameter"),
        ({"exploration": pn.OrnsteinUhlenbeck()}, "parameter"),
        ({"num_envs": 0}, "num_envs"),
        ({"gamma": 2}, "gamma"),
        ({"env_kwargs": {"bogus": 1}}, "bogus"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_the_choices_named(settings, named):
    with pytest.raises(pn.UsageError, match=named) as caught:
        tiny(**settings)
    assert "\n" not in str(caught.value)


def test_an_exploration_is_given_by_name_or_as_an_object():
    assert tiny(exploration="none").config.exploration == pn.NoNoise()
    assert tiny(exploration=pn.ParameterNoise(delta=0.3)).config.exploration.delta == 0.3
    assert isinstance(tiny(exploration=None).config.exploration, pn.EpsilonGreedy)


def test_bootstrapped_dqn_has_the_same_face(tmp_path):
    agent = pn.BootstrappedDQN("CartPole-v1", num_heads=2, **TINY).learn(20, **QUIET)
    assert agent.config.exploration == pn.BootstrapHead()
    assert agent.predict(np.zeros((3, 4)))[0].shape == (3,)
    agent.save(Path(tmp_path) / "agent")
    loaded = pn.load(tmp_path / "agent")
    assert type(loaded) is pn.BootstrappedDQN
    assert_same_agent(loaded, agent)


def test_the_settings_of_a_run_are_settings_of_an_agent_but_for_its_steps():
    config = tiny(seed=7, num_envs=3, eval_max_steps=50, log_every=10).config
    assert (config.seed, config.num_envs, config.eval_max_steps, config.log_every) == (7, 3, 50, 10)
    with pytest.raises(pn.UsageError, match="dqn has no setting 'steps'"):
        tiny(steps=100)


def test_a_refused_save_leaves_a_saved_agent_as_it_was(tmp_path):
    class Mine(pn.EpsilonGreedy):
        """Not registered, so that a run with it could not be loaded."""

    small = {"learning_starts": 8, "batch_size": 4, "buffer_size": 64, "hidden_sizes": (8,)}
    pn.DQN("CartPole-v1", exploration="epsilon-greedy", **small).save(tmp_path / "agent")
    before = {file: file.read_bytes() for file in (tmp_path / "agent").rglob("*") if file.is_file()}
    with pytest.raises(pn.UsageError, match="Mine is not registered"):
        pn.DQN("CartPole-v1", exploration=Mine(), seed=5, **small).save(tmp_path / "agent")
    assert {file: file.read_bytes() for file in (tmp_path / "agent").rglob("*") if file.is_file()} == before
