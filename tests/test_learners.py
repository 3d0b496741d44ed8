"""The comparison of our learners with their peers: its runs, its scores and its ratio."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "experiments"))

import learners
from learners import AGENTS, OURS, TASKS, PeerRun

from paramnoise.agents import PPOConfig
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
    runs = learners.all_runs(tmp_path, AGENTS, 2, None)
    assert len(runs) == 2 * 3 * len(TASKS) * 2
    ours, theirs = runs[:2]
    assert ours.directory.path == tmp_path / "learners/td3/HalfCheetah-v4/ours/seed-0"
    assert theirs.path == tmp_path / "learners/td3/HalfCheetah-v4/sbx/seed-0/curve.csv"
    assert ours.steps == theirs.steps == 300_000
    for name in ("td3", "sac"):
        compared = AGENTS[name]
        config = learners.our_run(tmp_path, name, TASKS[0], 0, 1_000).config.agent
        same = ("batch_size", "buffer_size", "gamma", "learning_starts")
        assert {field: getattr(config, field) for field in same} == {field: compared.peer[field] for field in same}
        assert config.actor_learning_rate == config.critic_learning_rate == compared.peer["learning_rate"]
        assert list(config.hidden_sizes) == compared.peer["policy_kwargs"]["net_arch"]
        assert (config.train_every, config.train_steps) == (compared.peer["train_freq"], 1)


def test_ppo_is_compared_by_its_defaults_and_evaluated_between_whole_batches(tmp_path):
    compared, config = AGENTS["ppo"], learners.our_run(tmp_path, "ppo", TASKS[0], 0, AGENTS["ppo"].steps).config
    assert config.agent == PPOConfig()
    assert config.exploration.kind == "none"
    assert config.num_envs == 1
    assert compared.steps >= 500_000
    assert compared.steps % compared.eval_every == compared.eval_every % config.agent.batch_size == 0
    assert config.eval_every == compared.eval_every


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
    rows = [{"step": step, "return": value, "seconds": step / 5} for step, value in ((10, 1.0), (21, 3.5), (30, 9.0))]
    run._write(rows[:1])
    assert (run.is_finished(), run.steps_done(), run.rate()) == (False, 0, 5.0)
    run._write(rows)  # a peer's batch may end beyond the steps asked for; what follows it was not asked for
    assert (run.is_finished(), run.steps_done(), run.result()) == (True, 20, "return 3.5 after 20 steps")
    assert [point.step for point in run.curve()] == [10, 21]


def test_status_says_what_is_left_in_hours_of_one_core_where_that_is_known(tmp_path, capsys):
    for env in TASKS:
        PeerRun(tmp_path / "learners/td3", "td3", env, 0, 7_200)._write(
            [{"step": 7_200, "return": 1.0, "seconds": 3.6}]
        )
    words = ["status", "--out", str(tmp_path), "--agents", "td3", "--seeds", "2", "--steps", "7200"]
    assert learners.main(words) == 0
    printed = capsys.readouterr().out.splitlines()
    (line,) = [line for line in printed if "sbx" in line]
    assert [cell.strip() for cell in line.split("│")[1:-1]] == ["td3", "sbx", "3 of 6", "21,600", "2,000", "0.0"]
    assert printed[-1] == "0.0 core-hours left, and those of 1 more without an evaluation yet"


def test_the_page_shows_the_results_that_are_kept():
    points = learners.read_results(learners.MEASURED) if learners.MEASURED.exists() else []
    text = learners.PAGE.read_text()
    assert learners.page(text, points) == text
    assert all(f"<!-- {mark} -->" in text for mark in ("ratios", "curves"))


def test_a_row_of_the_page_has_the_ratio_and_whether_it_is_what_is_asked(tmp_path):
    sides = {OURS: 0.9, "sbx": 0.6}
    points = [
        p for side, score in sides.items() for env in TASKS for seed in range(3) for p in curve(env, side, seed, score)
    ]
    td3, sac, ppo = learners.table(points).splitlines()[2:]
    assert td3 == "| TD3 | SBX | 0.900 | 0.600 | 1.50 (1.50 to 1.50) | yes | 3 of 10 |"
    assert sac == "| SAC | SBX | not run yet |  |  |  |  |"
    assert ppo == "| PPO | Stable-Baselines3 | not run yet |  |  |  |  |"
    some = learners.table([point for point in points if point.env == TASKS[0]])
    assert "| TD3 | SBX | not all tasks run yet |" in some
    learners.draw(points, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["td3.png"]
    assert learners.pictures(points) == "![TD3: ours and SBX](../results/learners/td3.png)"


def test_an_unknown_agent_is_one_line(tmp_path, capsys):
    assert learners.main(["run", "--out", str(tmp_path), "--agents", "tdd3"]) == 2
    assert "did you mean td3" in capsys.readouterr().err
