import numpy as np
import pytest

import paramnoise as pn
from paramnoise.cli import main
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.directory import RunDirectory

TINY = {"hidden_sizes": (4,), "pairs": 2, "table_size": 1_000}


@pytest.mark.parametrize(("env", "obs"), [("CartPole-v1", np.zeros(4)), ("Pendulum-v1", np.zeros(3))])
def test_a_saved_agent_learns_on_as_the_one_that_was_saved(tmp_path, env, obs):
    agent = pn.ES(env, seed=3, num_envs=2, **TINY).learn(40, eval_every=1_000, eval_episodes=1, progress=False)
    agent.save(tmp_path / "agent")
    loaded = pn.load(tmp_path / "agent")
    assert loaded.step == agent.step >= 40
    for each in (agent, loaded):
        each.learn(40, eval_every=1_000, eval_episodes=1, progress=False)
    assert loaded.step == agent.step
    np.testing.assert_array_equal(loaded.predict(obs)[0], agent.predict(obs)[0])
    assert loaded.evaluate(2).returns == agent.evaluate(2).returns


@pytest.mark.parametrize("exploration", ["gaussian", "parameter", pn.EpsilonGreedy(), pn.OnPolicyParameterNoise()])
def test_nothing_else_explores(exploration):
    with pytest.raises(pn.UsageError, match="does not fit es, whose own perturbations explore: choose from none"):
        make_config("es", "Pendulum-v1", exploration=exploration)


@pytest.mark.parametrize("env", ["HalfCheetah-v4", "paramnoise/Chain-v0", "CartPole-v1", "InvertedPendulum-v4"])
def test_presets_of_other_agents_leave_the_defaults(env):
    config = make_config("es", env)
    assert (config.agent.learning_rate, config.agent.hidden_sizes, config.agent.sigma) == (0.01, (64, 64), 0.02)
    assert config.exploration == pn.NoNoise()
    assert RunConfig.from_json(config.to_json()) == config


def test_overlap_is_refused():
    with pytest.raises(pn.UsageError, match="overlap needs an agent that learns from replay, not es"):
        make_config("es", "CartPole-v1", overlap=True)


def test_time_limits_mean_nothing_to_who_learns_no_values():
    with pytest.raises(pn.UsageError, match="terminal_time_limits needs an agent that learns values, not es"):
        make_config("es", "CartPole-v1", terminal_time_limits=True)


def test_the_command_line_trains_with_workers_resumes_without_and_evaluates(tmp_path, capsys):
    words = ["train", "es", "--env", "CartPole-v1", "--pairs", "2", "--hidden-sizes", "4", "--table-size", "1000"]
    words += ["--eval-every", "40", "--eval-episodes", "1", "--run-dir", str(tmp_path / "run")]
    assert main([*words, "--steps", "40", "--workers", "2"]) == 0
    assert main([*words, "--steps", "120", "--resume"]) == 0
    rows = RunDirectory(tmp_path / "run").rows()
    assert int(rows[-1]["step"]) >= 120
    assert [int(row["episodes"]) for row in rows] == [4 * int(row["generation"]) for row in rows]
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert "es on CartPole-v1 after" in capsys.readouterr().out


def test_a_table_too_small_is_refused_in_one_line(capsys):
    assert main(["train", "es", "--env", "CartPole-v1", "--table-size", "10"]) == 2
    assert "table_size must be at least the 4610 parameters of the policy, not 10" in capsys.readouterr().err
