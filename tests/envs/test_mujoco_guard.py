"""The guard: it lets healthy simulations be and stops diverged ones."""

import copy
import importlib
import sys

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from paramnoise.envs.mujoco_guard import DivergenceGuard, SimulationDiverged
from paramnoise.envs.swimmer_gather import SwimmerGatherEnv
from paramnoise.validation import UsageError

pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")


@pytest.fixture(autouse=True)
def _log_elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its warnings to a file in the working directory."""
    monkeypatch.chdir(tmp_path)


def guarded(env_id: str = "HalfCheetah-v4") -> DivergenceGuard:
    env = DivergenceGuard(gym.make(env_id))
    env.reset(seed=0)
    return env


def played(env: gym.Env, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Observations and rewards of an episode."""
    first, _ = env.reset(seed=3)
    steps = [env.step(action) for action in actions]
    return np.stack([first, *(step[0] for step in steps)]), np.array([step[1] for step in steps])


class Shown(gym.Wrapper):
    """Shows what it is told to instead of the environment's own observation and reward."""

    def __init__(self, env, obs=None, reward=0.0):
        super().__init__(env)
        self.obs, self.reward = obs, reward

    def step(self, action):
        obs, *_ = self.env.step(action)
        return obs if self.obs is None else self.obs, self.reward, False, False, {}


def test_a_healthy_run_passes_untouched_bit_by_bit():
    actions = np.random.default_rng(0).uniform(-1, 1, (1_000, 6))
    plain, watched = gym.make("HalfCheetah-v4"), guarded()
    for expected, actual in zip(played(plain, actions), played(watched, actions), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("part", "value", "warning"), [("qpos", np.nan, "bad qpos"), ("qvel", 1e12, "bad qvel"), ("qvel", 1e9, "bad q")]
)
def test_a_diverged_simulation_raises_and_names_environment_warning_and_step(part, value, warning):
    env = guarded()
    for _ in range(3):
        env.step(np.zeros(6))
    getattr(env.unwrapped.data, part)[:] = value
    with pytest.raises(SimulationDiverged, match=rf"HalfCheetah-v4 diverged at step 4.*{warning}") as raised:
        env.step(np.zeros(6))
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, RuntimeError)


def test_without_the_guard_the_engine_starts_over_in_silence():
    env = gym.make("HalfCheetah-v4")
    env.reset(seed=0)
    env.unwrapped.data.qvel[:] = 1e12
    obs, *_ = env.step(np.zeros(6))
    assert np.abs(obs).max() < 1


def test_a_control_that_is_not_a_number_raises():
    env = DivergenceGuard(SwimmerGatherEnv())
    env.reset(seed=0)
    with pytest.raises(SimulationDiverged, match="bad ctrl"):
        env.step(np.full(2, np.nan))


def test_an_environment_without_an_id_goes_by_the_name_of_its_class():
    env = DivergenceGuard(SwimmerGatherEnv())
    env.reset(seed=0)
    env.unwrapped.data.qvel[:] = 1e12
    with pytest.raises(SimulationDiverged, match=r"^SwimmerGatherEnv diverged at step 1 "):
        env.step(np.zeros(2))


def test_a_reset_clears_the_counters_and_the_next_episode_is_as_any_other():
    env, twin = guarded(), guarded()
    env.unwrapped.data.qvel[:] = 1e12
    with pytest.raises(SimulationDiverged):
        env.step(np.zeros(6))
    actions = np.ones((20, 6))
    np.testing.assert_array_equal(played(env, actions)[0], played(twin, actions)[0])
    assert not env.unwrapped.data.warning.number.any()


def test_a_reset_clears_what_the_environment_leaves_and_counts_steps_anew():
    class Careless(SwimmerGatherEnv):
        def reset(self, *, seed=None, options=None):
            return self._observe(), {}

    env = DivergenceGuard(Careless())
    for _ in range(2):
        env.reset()
        env.step(np.zeros(2))
        env.unwrapped.data.qvel[:] = 1e12
        with pytest.raises(SimulationDiverged, match="at step 2 "):
            env.step(np.zeros(2))


def test_warnings_that_do_not_touch_the_state_do_not_stop_the_run():
    env = guarded()
    env.unwrapped.data.warning.number[int(mujoco.mjtWarning.mjWARN_CONTACTFULL)] += 1
    env.step(np.zeros(6))
    env.unwrapped.data.qvel[:] = 1e12
    with pytest.raises(SimulationDiverged):
        env.step(np.zeros(6))


@pytest.mark.parametrize(
    ("obs", "reward", "what"),
    [
        (np.array([0.0, np.nan]), 0.0, "its observation is not finite"),
        (np.array([np.inf, -np.inf], np.float32), 0.0, "its observation is not finite"),
        ({"position": np.zeros(2), "goal": np.array([np.nan])}, 0.0, "its observation is not finite"),
        (None, float("nan"), "its reward is nan"),
        (None, -np.inf, "its reward is -inf"),
    ],
)
def test_an_observation_or_reward_that_is_not_finite_raises(obs, reward, what):
    env = DivergenceGuard(Shown(gym.make("HalfCheetah-v4"), obs, reward))
    env.reset(seed=0)
    with pytest.raises(SimulationDiverged, match=f"HalfCheetah-v4 diverged at step 1.*{what}"):
        env.step(np.zeros(6))


@pytest.mark.parametrize("obs", [np.full(3, 1e300), np.full(3, 3e38, np.float32), {"goal": np.zeros(2)}])
def test_large_or_nested_observations_that_are_finite_pass(obs):
    env = DivergenceGuard(Shown(gym.make("HalfCheetah-v4"), obs))
    env.reset(seed=0)
    assert env.step(np.zeros(6))[0] is obs


def test_a_copy_guards_its_own_simulation():
    env = guarded()
    copied = copy.deepcopy(env)
    copied.reset(seed=0)
    copied.unwrapped.data.qvel[:] = 1e12
    env.step(np.zeros(6))
    with pytest.raises(SimulationDiverged):
        copied.step(np.zeros(6))


def test_an_environment_of_another_engine_is_refused():
    with pytest.raises(UsageError, match="runs on MuJoCo, not CartPole-v1"):
        DivergenceGuard(gym.make("CartPole-v1"))


@pytest.mark.parametrize("module", ["mujoco_guard", "sparse_mujoco", "swimmer_gather"])
def test_without_the_engine_the_import_names_the_remedy(module, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"paramnoise.envs.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match=r"^[^\n]*pip install 'paramnoise\[mujoco\]'[^\n]*$"):
        importlib.import_module(f"paramnoise.envs.{module}")
