"""The comparison of our learners with their peers: its runs, its scores and its ratio."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "experiments"))

import learners
from learners import AGENTS, OURS, TASKS, PeerRun

from paramnoise.envs.base import ENVS
from paramnoise.figures.curve_results import Point

HIGH = {env: ENVS[env].bounds.high for env in TASKS}
LOW = {env: ENVS[env].bounds.low for env in TASKS}


def curve(env, side, seed, score):
    """A run whose last five evaluations have a mean score, between the task's bounds, and whose first was far off."""
    value = LOW[env] + score * (HIGH[env] - LOW[env])
    own = (env, "td3", side, seed)
    return [Point(*own, 0, -1e9), *(Point(*own, step, value + off) for step, off in enumerate((-2, 2, 0, 1, -1), 1))]


def test_a_run_of_ours_is_beside_its_peer_s_and_has_the_settings_that_are_compared(tmp_path):
    runs = learners.all_runs(tmp_path, ["td3", "sac"], 2, None)
    assert len(runs) == 2 * 2 * len(TASKS) * 2
    ours, theirs = runs[:2]
    assert ours.directory.path == tmp_path / "learners/td3/HalfCheetah-v4/ours/seed-0"
    assert theirs.path == tmp_path / "learners/td3/HalfCheetah-v4/sbx/seed-0/curve.csv"
    assert ours.steps == theirs.steps == 300_000
    for name, compared in AGENTS.items():
        config = learners.our_run(tmp_path, name, TASKS[0], 0, 1_000).config.agent
        same = ("batch_size", "buffer_size", "gamma", "learning_starts")
        assert {field: getattr(config, field) for field in same} == {field: compared.peer[field] for field in same}
        assert config.actor_learning_rate == config.critic_learning_rate == compared.peer["learning_rate"]
        assert list(config.hidden_sizes) == compared.peer["policy_kwargs"]["net_arch"]
        assert (config.train_every, config.train_steps) == (compared.peer["train_freq"], 1)


def test_a_score_is_the_mean_of_the_last_evaluations_between_the_bounds_of_its_task():
    points = [point for env in TASKS for seed in (1, 0) for point in curve(env, OURS, seed, 0.1 + seed)]
    found = learners.scores(points, "td3", OURS)
    assert len(found) == len(TASKS)
    for task in found:
        np.testing.assert_allclose(sorted(task), [0.1, 1.1], rtol=1e-6)
    assert learners.scores(points, "sac", OURS) == []


def test_the_ratio_is_ours_over_theirs():
    sides = {OURS: 0.9, "sbx": 0.6}
    points = [
        p for side, score in sides.items() for env in TASKS for seed in range(3) for p in curve(env, side, seed, score)
    ]
    ours, theirs, ratio = learners.compare(points, "td3")
    assert (ours, theirs) == pytest.approx((0.9, 0.6))
    assert tuple(ratio) == pytest.approx((1.5, 1.5, 1.5))


def test_a_peer_s_run_is_finished_once_its_curve_is_whole(tmp_path):
    run = PeerRun(tmp_path, "td3", TASKS[0], 0, 20)
    assert (run.is_finished(), run.steps_done(), run.curve()) == (False, 0, [])
    run._write([{"step": 10, "return": 1.0}])
    assert (run.is_finished(), run.steps_done()) == (False, 0)
    run._write([{"step": 10, "return": 1.0}, {"step": 20, "return": 3.5}])
    assert (run.is_finished(), run.steps_done(), run.result()) == (True, 20, "return 3.5 after 20 steps")


def test_an_unknown_agent_is_one_line(tmp_path, capsys):
    assert learners.main(["run", "--out", str(tmp_path), "--agents", "tdd3"]) == 2
    assert "did you mean td3" in capsys.readouterr().err
