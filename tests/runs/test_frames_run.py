"""Runs on frames: resume, several seeds side by side, replay that is filled anew, the API and the command line."""

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from PIL import Image

import paramnoise as pn
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.run import run, run_together
from paramnoise.validation import UsageError

ID = "paramnoise-test/Sides-v0"
AGENT: dict[str, Any] = {
    "convolutions": [[4, 4, 2], [4, 3, 1]],
    "hidden_sizes": [8],
    "batch_size": 4,
    "buffer_size": 60,
    "learning_starts": 16,
    "train_every": 4,
    "target_every": 20,
    "policy_head": True,
}


class Sides(gym.Env):
    """The bright half of a noisy frame tells the rewarded action; episodes are cut after 7 steps, or end by chance."""

    observation_space = gym.spaces.Box(0, 255, (12, 12, 1), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._show(), {}

    def step(self, action):
        reward = 3.0 if action == self._side else 0.0
        self._time += 1
        return self._show(), reward, bool(self.np_random.random() < 0.1), self._time == 7, {}

    def _show(self):
        self._side = int(self.np_random.integers(2))
        image = self.np_random.integers(0, 60, (12, 12, 1), np.uint8)
        image[:, 6 * self._side : 6 * self._side + 6] += 150
        return image


@pytest.fixture(scope="module", autouse=True)
def registered():
    gym.register(ID, entry_point=Sides)
    yield
    gym.registry.pop(ID)


def config(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "exploration": "parameter",
        "exploration_settings": {"adapt_every": 5, "anneal_steps": 50},
        "agent": AGENT,
        "num_envs": 2,
        "steps": 120,
        "eval_every": 60,
        "eval_episodes": 2,
        "log_every": 20,
    }
    return make_config("dqn", ID, **{**settings, **changes})


def rows(path: Path) -> list[dict[str, str]]:
    clocks = ("steps_per_second", "wall_time")
    return [{name: cell for name, cell in row.items() if name not in clocks} for row in RunDirectory(path).rows()]


def assert_alike(one: Path, other: Path) -> None:
    """Asserts that the progress of two runs is the same but for rounding."""
    for pair in zip(rows(one), rows(other), strict=True):
        numbers = [{name: float(cell or "nan") for name, cell in row.items()} for row in pair]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, nan_ok=True)


class StopAt:
    """Asks a run to stop at a step."""

    signal = None

    def __init__(self, step: int):
        self._at, self._now = step, 0

    def on_step(self, step: int) -> None:
        self._now = step

    def on_row(self, row: dict[str, float]) -> None:
        pass

    def should_stop(self) -> bool:
        return self._now >= self._at


def test_rows_come_with_and_without_an_evaluation(tmp_path):
    summary = run(config(), tmp_path / "run", watcher=StopAt(10**9))
    assert [int(row["step"]) for row in rows(tmp_path / "run")] == [20, 40, 60, 80, 100, 120]
    evaluated = [row["eval_return_mean"] != "nan" for row in rows(tmp_path / "run")]
    assert evaluated == [False, False, True, False, False, True]
    assert summary["final_eval_return_mean"] == float(rows(tmp_path / "run")[-1]["eval_return_mean"])


@pytest.mark.parametrize("replay_on", ["host", "device"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, replay_on):
    whole = config(replay_on=replay_on)
    run(whole, tmp_path / "whole", watcher=StopAt(10**9))
    for stop in (30, 74):  # within learning; the second with a full ring
        run(whole, tmp_path / "parts", resume=stop > 30, watcher=StopAt(stop))
    run(whole, tmp_path / "parts", resume=True, watcher=StopAt(10**9))
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    loaded = [pn.load(tmp_path / name) for name in ("whole", "parts")]
    for one, other in zip(*(leaves(agent) for agent in loaded), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("places", [("host",), pytest.param(("host", "device"), marks=pytest.mark.slow)])
def test_with_all_extensions_a_resumed_run_is_the_same_and_so_is_replay_on_host_and_device(tmp_path, places):
    agent = {**AGENT, "double_q": True, "dueling": True, "n_step": 3, "prioritized": True, "policy_head": False}
    for place in places:
        whole = config(replay_on=place, agent=agent, exploration="epsilon-greedy", exploration_settings={})
        run(whole, tmp_path / place, watcher=StopAt(10**9))
        run(whole, tmp_path / f"{place} parts", watcher=StopAt(74))
        run(whole, tmp_path / f"{place} parts", resume=True, watcher=StopAt(10**9))
        assert rows(tmp_path / f"{place} parts") == rows(tmp_path / place)
        (arrays,) = map(np.load, (tmp_path / place / "checkpoint").glob("arrays-*.npz"))
        priorities = arrays["own/feed/priorities/0"]
        assert len(np.unique(priorities[priorities > 0])) > 20  # those of errors, not all the first one
    if len(places) == 1:
        return
    assert_alike(tmp_path / "host", tmp_path / "device")


def leaves(agent: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(agent._loop.state())]


def test_without_replay_in_its_checkpoint_a_run_fills_it_before_it_learns_on(tmp_path):
    light = config(save_replay=False, steps=100, eval_every=100, log_every=None)
    run(light, tmp_path / "run", watcher=StopAt(60))
    arrays = next((tmp_path / "run" / "checkpoint").glob("arrays-*.npz"))
    assert not any("replay" in name for name in np.load(arrays).files)
    agent = pn.load(tmp_path / "run")
    agent.learn(16, eval_every=10**6, progress=False)  # as many as learning_starts
    updates = [int(agent._loop.state().learner.updates)]
    agent.learn(8, eval_every=10**6, progress=False)
    updates.append(int(agent._loop.state().learner.updates))
    assert updates[0] == before_updates(tmp_path)
    assert updates[1] > updates[0]


def before_updates(tmp_path: Path) -> int:
    return int(pn.load(tmp_path / "run")._loop.state().learner.updates)


def test_seeds_side_by_side_have_a_run_directory_each_and_resume_together(tmp_path):
    configs = [config(seed=seed) for seed in (3, 5)]
    whole = [tmp_path / "whole" / str(each.seed) for each in configs]
    parts = [tmp_path / "parts" / str(each.seed) for each in configs]
    run_together(configs, whole, watcher=StopAt(10**9))
    run_together(configs, parts, watcher=StopAt(50))
    summaries = run_together(configs, parts, resume=True, watcher=StopAt(10**9))
    assert [summary["status"] for summary in summaries] == ["finished", "finished"]
    for one, other in zip(whole, parts, strict=True):
        assert rows(one) == rows(other)
    assert rows(whole[0]) != rows(whole[1])
    for place in (0, 1):  # each goes on alone, too, as it does beside the other
        run(dataclasses.replace(configs[place], steps=140), parts[place], resume=True, watcher=StopAt(10**9))
    run_together([dataclasses.replace(each, steps=140) for each in configs], whole, resume=True, watcher=StopAt(10**9))
    for one, other in zip(whole, parts, strict=True):
        assert_alike(one, other)


def test_runs_side_by_side_differ_in_their_seeds_alone(tmp_path):
    with pytest.raises(UsageError, match="differ in their seeds"):
        run_together([config(seed=0), config(seed=1, steps=60)], [tmp_path / "a", tmp_path / "b"])


def test_predict_takes_a_stack_or_a_batch_and_save_and_load_keep_it(tmp_path):
    agent = pn.DQN(Sides, num_envs=2, exploration="epsilon-greedy", **AGENT)
    agent.learn(40, eval_episodes=1, progress=False)
    stacks = np.random.default_rng(0).integers(0, 255, (3, 4, 12, 12), np.uint8)
    actions, _ = agent.predict(stacks)
    assert actions.shape == (3,)
    assert agent.predict(stacks[1])[0] == actions[1]
    with pytest.raises(UsageError, match="expected"):
        agent.predict(stacks[:, :2])
    agent.save(tmp_path / "saved")
    np.testing.assert_array_equal(pn.load(tmp_path / "saved", env=Sides).predict(stacks)[0], actions)
    assert len(agent.evaluate(episodes=3).returns) == 3


def test_a_film_shows_a_game_as_the_agent_sees_it(tmp_path):
    agent = pn.DQN(Sides, exploration="epsilon-greedy", **AGENT)
    score = agent.record(tmp_path / "film.gif", episodes=1, seed=4)
    assert (tmp_path / "film.gif").stat().st_size > 0
    assert score.returns == agent.evaluate(episodes=1, seed=4).returns


def test_perturbed_policies_that_see_games_are_filmed_beside_the_clean_one(tmp_path):
    agent = pn.DQN(Sides, exploration="epsilon-greedy", **AGENT)
    scores = agent.record(tmp_path / "film.gif", seed=4, perturbed=2, sigma=0.0, max_steps=3)
    assert scores.returns == agent.evaluate(episodes=1, seed=4).returns * 3
    with Image.open(tmp_path / "film.gif") as film:
        assert film.size == (2 * 320, 2 * (320 + 26))
        assert film.n_frames <= 3


def test_agents_of_vectors_refuse_pixels():
    with pytest.raises(UsageError, match="only dqn"):
        pn.BootstrappedDQN(Sides)


def test_nothing_is_learned_from_a_step_whose_outcome_is_not_kept_yet():
    agent = pn.DQN(Sides, num_envs=8, exploration="epsilon-greedy", **{**AGENT, "learning_starts": 0})
    for learned in (0, 0, 2):  # the second step takes in the first, the third the second
        agent.learn(8, eval_every=10**6, eval_episodes=1, progress=False)
        assert int(agent._loop.state().learner.updates) == learned
