import gymnasium as gym
import jax
import numpy as np
import pytest

import paramnoise as pn
from paramnoise.cli import main
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.directory import RunDirectory

QUIET = {"progress": False, "eval_every": 1_000, "eval_episodes": 2}
SETTINGS = {"hidden_sizes": (8,), "batch_size": 60}


def tiny(env="Pendulum-v1", exploration="parameter", **settings):
    return pn.TRPO(env, exploration=exploration, num_envs=2, **{**SETTINGS, **settings})


def arrays(agent):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(agent._loop.state())]


def test_an_agent_saved_within_a_batch_learns_on_as_one_that_was_never_saved(tmp_path):
    agent = tiny().learn(150, **QUIET)  # the last batch ended at 120
    agent.save(tmp_path)
    loaded = pn.load(tmp_path)
    for one, other in zip(arrays(agent.learn(150, **QUIET)), arrays(loaded.learn(150, **QUIET)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert agent._loop.state().learner.updates == 5


def test_predictions_are_the_clean_mean_in_the_environment_s_units_and_bounds():
    agent = tiny().learn(60, **QUIET)
    obs = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    actions, _ = agent.predict(obs)
    means = np.asarray(jax.vmap(agent._loop.policy())(obs))[:, 0]
    np.testing.assert_allclose(actions, 2 * np.clip(means, -1, 1), rtol=1e-5)


@pytest.mark.parametrize("exploration", ["none", "parameter", pn.OnPolicyParameterNoise(scaling="adaptive")])
def test_a_discrete_policy_learns_a_few_batches_of_cart_pole(exploration):
    agent = tiny("CartPole-v1", exploration).learn(240, **QUIET)
    assert agent._loop.state().learner.updates == 4
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(agent._loop.state().learner))
    action, _ = agent.predict(np.zeros(4, np.float32))
    assert action in (0, 1)


class Locks(gym.Env):
    """Shows which of two locks is there; each part of the action opens it in part, and all of it is worth 4 a step."""

    observation_space = gym.spaces.Discrete(2)

    def __init__(self, action_space, keys):
        self.action_space, self.keys = action_space, keys

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.lock, self.time = int(self.np_random.integers(2)), 0
        return self.lock, {}

    def step(self, action):
        assert action.shape == (2, 2)
        assert action in self.action_space
        reward = float((action == self.keys[self.lock]).sum())
        self.time += 1
        self.lock = int(self.np_random.integers(2))
        return self.lock, reward, False, self.time == 10, {}


KEYS = np.array([[[2, 0], [1, 3]], [[0, 1], [1, 0]]])


def multi_discrete():
    return Locks(gym.spaces.MultiDiscrete([[3, 2], [2, 4]]), KEYS)


def multi_binary():
    return Locks(gym.spaces.MultiBinary((2, 2)), KEYS % 2)


@pytest.mark.parametrize("make", [multi_discrete, multi_binary])
def test_an_action_with_several_parts_is_learned_saved_and_predicted_in_its_own_shape(make, tmp_path):
    agent = tiny(make, delta_kl=0.05, gamma=0.0, batch_size=100).learn(2_400, **QUIET)
    assert agent.evaluate(episodes=4).returns == (40.0,) * 4  # the right choice of every part at every step
    agent.save(tmp_path)
    loaded = pn.load(tmp_path, make)
    actions, _ = loaded.predict(np.array([0, 1, 1]))
    assert actions.dtype == make().action_space.dtype
    np.testing.assert_array_equal(actions, make().keys[[0, 1, 1]])
    for one, other in zip(arrays(agent.learn(150, **QUIET)), arrays(loaded.learn(150, **QUIET)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("algorithm", "exploration", "message"),
    [
        ("trpo", pn.ParameterNoise(), "its 'parameter' is OnPolicyParameterNoise, not ParameterNoise"),
        ("ddpg", pn.OnPolicyParameterNoise(), "its 'parameter' is ParameterNoise, not OnPolicyParameterNoise"),
        ("trpo", "gaussian", "whose policy is stochastic: choose from none, parameter"),
        ("trpo", "louder", "unknown exploration 'louder'"),
    ],
)
def test_an_exploration_that_does_not_fit_is_refused_with_what_does(algorithm, exploration, message):
    with pytest.raises(pn.UsageError, match=message):
        make_config(algorithm, "Pendulum-v1", exploration=exploration)


@pytest.mark.parametrize(
    ("env", "sizes"),
    [
        ("Hopper-v4", (64, 64)),
        ("Reacher-v4", (32, 32)),
        ("paramnoise/SwimmerGather-v0", (64, 64)),
        ("paramnoise/SparseMountainCar-v0", (32, 32)),
        ("paramnoise/Chain-v0", (32, 32)),
    ],
)
def test_presets_are_the_paper_s_and_take_nothing_from_those_of_other_agents(env, sizes):
    config = make_config("trpo", env)
    assert config.agent.hidden_sizes == sizes
    assert config.agent.batch_size == 5_000
    assert config.exploration == pn.OnPolicyParameterNoise()
    assert RunConfig.from_json(config.to_json()) == config
    assert make_config("ddpg", "Hopper-v4").agent.hidden_sizes == (64, 64)


def test_a_run_of_before_there_was_a_network_of_values_goes_on():
    before = "00dee13a780b0659dfc65017b7ecc0f81b9e64c9676ba66d3171a796e6928800"  # as that version computed it
    config = make_config("trpo", "CartPole-v1", exploration="none")
    assert config.digest() == before
    assert make_config("trpo", "CartPole-v1", exploration="none", agent={"value_epochs": 3}).digest() != before


def test_the_command_line_trains_resumes_and_evaluates(tmp_path, capsys):
    words = ["train", "trpo", "--env", "CartPole-v1", "--batch-size", "60", "--hidden-sizes", "8", "--eval-every", "60"]
    words += ["--eval-episodes", "1", "--num-envs", "2", "--run-dir", str(tmp_path / "run")]
    words += ["--exploration", "parameter", "scaling:adaptive", "delta:0.05"]
    assert main([*words, "--steps", "120"]) == 0
    assert main([*words, "--steps", "180", "--resume"]) == 0
    rows = RunDirectory(tmp_path / "run").rows()
    assert [int(row["step"]) for row in rows] == [60, 120, 180]
    assert all(0 <= float(row["kl"]) <= 0.01 for row in rows)
    assert float(rows[-1]["delta"]) == pytest.approx(0.05)
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    assert "trpo on CartPole-v1 after 180 steps" in capsys.readouterr().out
