import numpy as np
import pytest
from test_api_trpo import QUIET, arrays, multi_discrete

import paramnoise as pn
from paramnoise.cli import main
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.directory import RunDirectory

SETTINGS = {"hidden_sizes": (8,), "batch_size": 60, "minibatch_size": 20, "epochs": 3}


def tiny(env="Pendulum-v1", exploration="parameter", **settings):
    return pn.PPO(env, exploration=exploration, num_envs=2, **{**SETTINGS, **settings})


@pytest.mark.parametrize("exploration", ["parameter", "gsde"])
def test_an_agent_saved_within_a_batch_learns_on_as_one_that_was_never_saved(tmp_path, exploration):
    agent = tiny(exploration=exploration).learn(150, **QUIET)  # the last batch ended at 120
    agent.save(tmp_path)
    loaded = pn.load(tmp_path)
    for one, other in zip(arrays(agent.learn(150, **QUIET)), arrays(loaded.learn(150, **QUIET)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert agent._loop.state().learner.updates == 5


def test_an_action_with_several_parts_is_learned_and_predicted_in_its_own_shape():
    settings = {"gamma": 0.0, "learning_rate": 0.02, "batch_size": 100, "epochs": 8}
    agent = tiny(multi_discrete, **settings).learn(2_400, **QUIET)
    assert agent.evaluate(episodes=4).returns == (40.0,) * 4  # the right choice of every part at every step
    actions, _ = agent.predict(np.array([0, 1, 1]))
    np.testing.assert_array_equal(actions, multi_discrete().keys[[0, 1, 1]])


def test_gsde_asks_for_a_variance_from_features_which_discrete_actions_and_other_networks_do_not_have():
    assert make_config("ppo", "Hopper-v4", exploration="gsde").agent.std_from_features
    assert not make_config("ppo", "Hopper-v4", exploration="none").agent.std_from_features
    with pytest.raises(pn.UsageError, match="gsde needs, is for continuous actions"):
        tiny("CartPole-v1", "gsde")
    with pytest.raises(pn.UsageError, match="std_from_features must be False with a network of your own"):
        tiny(exploration="gsde", network=lambda shape, outputs, key: None)
    with pytest.raises(pn.UsageError, match="set std_from_features=True"):
        tiny(exploration="gsde", std_from_features=False)


def test_the_defaults_are_those_of_stable_baselines3_and_its_noise_is_adapted():
    config = make_config("ppo", "Hopper-v4")
    agent = config.agent
    assert (agent.hidden_sizes, agent.batch_size, agent.minibatch_size, agent.epochs) == ((64, 64), 2_048, 64, 10)
    assert (agent.learning_rate, agent.clip, agent.gae_lambda, agent.max_grad_norm) == (3e-4, 0.2, 0.95, 0.5)
    assert config.exploration == pn.OnPolicyParameterNoise(scaling="adaptive")
    assert RunConfig.from_json(config.to_json()) == config
    assert make_config("trpo", "Hopper-v4").exploration == pn.OnPolicyParameterNoise()


def test_the_command_line_trains_resumes_and_evaluates(tmp_path, capsys):
    words = ["train", "ppo", "--env", "CartPole-v1", "--batch-size", "60", "--minibatch-size", "20", "--epochs", "3"]
    words += ["--hidden-sizes", "8", "--eval-every", "60", "--eval-episodes", "1", "--num-envs", "2"]
    words += ["--run-dir", str(tmp_path / "run"), "--exploration", "parameter", "delta:0.05"]
    assert main([*words, "--steps", "120"]) == 0
    assert main([*words, "--steps", "180", "--resume"]) == 0
    rows = RunDirectory(tmp_path / "run").rows()
    assert [int(row["step"]) for row in rows] == [60, 120, 180]
    assert all(float(row["kl"]) >= 0 and 0 <= float(row["clipped"]) <= 1 for row in rows)
    assert float(rows[-1]["delta"]) == pytest.approx(0.05)
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert "ppo on CartPole-v1 after 180 steps" in capsys.readouterr().out
