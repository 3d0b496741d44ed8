import gymnasium as gym
import numpy as np
import pytest

from paramnoise.envs import env_factory, env_id, environment_actions, preset
from paramnoise.envs.base import ENVS, NAMESPACE, return_bounds, short_name
from paramnoise.envs.continuous import DENSE, SPARSE
from paramnoise.envs.mujoco_guard import DivergenceGuard
from paramnoise.envs.swimmer_gather import NUM_APPLES
from paramnoise.runs.config import make_config

OURS = [env for env in ENVS if env.startswith(NAMESPACE)]
SIZES = {  # the paper's table (app. A.2)
    "SparseCartpoleSwingup": (4, 1),
    "SparseHalfCheetah": (17, 6),
    "SparseMountainCar": (2, 1),
    "SparseDoublePendulum": (6, 1),
    "SwimmerGather": (33, 2),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo leaves a log where it runs


@pytest.mark.parametrize("name", SIZES)
def test_a_sparse_task_has_the_paper_s_sizes_and_horizon(name):
    env = env_factory(f"paramnoise/{name}-v0")()
    assert (env.observation_space.shape[0], env.action_space.shape[0]) == SIZES[name]
    env.reset(seed=0)
    steps = 0
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step(np.zeros(SIZES[name][1], np.float32))
        steps += 1
        ended = terminated or truncated
    assert steps == 500 or terminated


def test_every_environment_of_ours_is_listed_and_every_sparse_one_has_a_preset():
    registered = {env_id for env_id in gym.registry if env_id.startswith("paramnoise/")}
    assert registered == set(OURS)
    for env in SPARSE:
        assert env in OURS
        assert preset(env, {}).for_agent("ddpg").settings == {"critic_l2": 0.0}


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("HalfCheetah", "HalfCheetah-v4"),  # the paper's, not Gymnasium's newest
        ("HalfCheetah-v5", "HalfCheetah-v5"),
        ("Ant", "Ant-v5"),
        ("CartPole", "CartPole-v1"),
        ("Chain", "paramnoise/Chain-v0"),
        ("SwimmerGather-v0", "paramnoise/SwimmerGather-v0"),
        ("Pong", "Pong"),
        ("Nothing", "Nothing"),
        ("not an id", "not an id"),
    ],
)
def test_a_name_stands_for_an_id(name, env):
    assert env_id(name) == env


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("env", ["Reacher-v4", "InvertedPendulum-v4"])  # those with the shortest episodes
def test_a_dense_task_s_return_is_counted_from_that_of_random_actions(env):
    made, returns = env_factory(env)(), []
    made.action_space.seed(1)
    for seed in range(1_000, 1_030):
        made.reset(seed=seed)
        rewards, ended = [], False
        while not ended:
            _, reward, terminated, truncated, _ = made.step(made.action_space.sample())
            rewards.append(reward)
            ended = terminated or truncated
        returns.append(sum(rewards))
    error = np.std(returns) / np.sqrt(len(returns))
    assert return_bounds(env).low == pytest.approx(np.mean(returns), abs=4 * error)


@pytest.mark.parametrize("env", [*DENSE, *SPARSE])
def test_every_task_of_the_paper_has_bounds_of_its_return(env):
    low, high, _ = return_bounds(env)
    assert low < high
    most = {"SparseMountainCar": 1, "SwimmerGather": NUM_APPLES}.get(short_name(env), gym.spec(env).max_episode_steps)
    if env in SPARSE:  # each step pays 1 at the most, or there is less to get
        assert (low, high) == (0, most)


def test_names_of_tasks_are_distinct():
    assert len(set(map(short_name, (*DENSE, *OURS)))) == 13


def test_a_name_has_the_preset_of_its_id_and_makes_the_same_environment():
    config = make_config("ddpg", "HalfCheetah", exploration="parameter")
    assert config == make_config("ddpg", "HalfCheetah-v4", exploration="parameter")
    assert config.exploration.delta == 0.2
    assert env_factory("SparseMountainCar")().spec.id == "paramnoise/SparseMountainCar-v0"
    assert make_config("dqn", "CartPole").steps == 50_000
    assert make_config("dqn", "CartPole", env_is_id=False).env == "CartPole"  # a function of that name


@pytest.mark.parametrize(
    ("env", "noise", "l2"), [("HalfCheetah-v4", 0.2, 1e-2), ("paramnoise/SwimmerGather-v0", 0.6, 0.0)]
)
def test_the_preset_of_a_continuous_task_is_the_paper_s(env, noise, l2):
    for kind, field in (("gaussian", "sigma"), ("ou", "sigma"), ("parameter", "delta")):
        config = make_config("ddpg", env, exploration=kind)
        assert getattr(config.exploration, field) == noise
        assert config.agent.critic_l2 == l2
        assert (config.steps, config.eval_every, config.eval_episodes) == (1_000_000, 10_000, 20)


def test_actions_reach_an_environment_in_its_own_bounds():
    env = env_factory("Pendulum-v1")()  # torque within +-2
    np.testing.assert_allclose((env.action_space.low, env.action_space.high), ([-1.0], [1.0]))
    space = gym.make("Pendulum-v1").action_space
    np.testing.assert_allclose(environment_actions(space, np.array([[-1.0], [0.5]], np.float32)), [[-2.0], [1.0]])


def test_a_mujoco_environment_is_guarded_and_others_are_not():
    def wrappers(env):
        return [type(env), *wrappers(env.env)] if isinstance(env, gym.Wrapper) else []

    assert DivergenceGuard in wrappers(env_factory("InvertedPendulum-v5")())
    assert DivergenceGuard not in wrappers(env_factory("CartPole-v1")())
