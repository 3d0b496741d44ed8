"""The presets of Gymnasium's tasks: they are configs that run, and their page says what was measured."""

import sys
from pathlib import Path

import gymnasium as gym
import pytest

sys.path.append(str(Path(__file__).parent.parent.parent / "experiments"))

import presets
from presets import MEASURED, PAGE, TASKS, Measured

from paramnoise.envs.base import ENVS, Preset
from paramnoise.figures.curve_runs import check_envs
from paramnoise.runs.config import make_config

ROWS = presets.read_results(MEASURED)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_task_has_a_preset_that_gives_its_agent_one_config_whatever_explores(task):
    known = ENVS[task.env].preset
    assert isinstance(known, Preset)
    assert set(task.explorations) <= set(known.agents[task.agent].explorations)
    configs = [make_config(task.agent, task.env, exploration=name) for name in task.explorations]
    assert len({repr(config.agent) for config in configs}) == 1
    for config in configs:
        assert config.steps % config.eval_every == 0
        assert config.steps % config.num_envs == 0
        assert config.eval_episodes >= 20


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_agent_of_a_preset_fits_its_environment(task, tmp_path):
    if task.env.startswith(("LunarLander", "BipedalWalker")):
        pytest.importorskip("Box2D")
    check_envs(each.training for each in task.runs(tmp_path)[:1])


def test_a_rate_that_falls_has_fallen_by_the_end_of_the_run():
    for task in TASKS.values():
        config = make_config(task.agent, task.env)
        done = config.steps // config.agent.train_every * config.agent.train_steps
        rates = [value for name, value in vars(config.agent).items() if name.endswith("learning_rate")]
        for rate in (rate for rate in rates if isinstance(rate, str)):
            assert 0.8 * done <= int(rate.rpartition(":")[2]) <= done, task.env


def test_solved_is_what_gymnasium_says_and_minus_200_where_it_says_nothing():
    assert TASKS["CartPole-v1"].threshold == 475.0
    assert gym.spec("Pendulum-v1").reward_threshold is None
    assert TASKS["Pendulum-v1"].threshold == -200.0


def test_the_page_shows_the_results_that_are_kept():
    assert presets.page(PAGE.read_text(), ROWS) == PAGE.read_text()


def test_the_results_are_those_of_the_presets_of_now():
    for row in ROWS:
        task = TASKS[row.env]
        assert (row.agent, row.exploration in task.explorations, row.seed < task.seeds) == (task.agent, True, True)
        assert row.steps == make_config(row.agent, row.env).steps
    assert len({(row.env, row.exploration, row.seed) for row in ROWS}) == len(ROWS)


def test_results_are_read_as_they_were_written(tmp_path):
    presets.write_results(ROWS, tmp_path / "results.csv")
    assert presets.read_results(tmp_path / "results.csv") == ROWS
    assert (tmp_path / "results.csv").read_text() == MEASURED.read_text()


def test_the_table_says_how_many_seeds_solved_a_task_and_what_is_not_measured():
    returns = (500.0, 474.9, 475.0)
    rows = [
        Measured("CartPole-v1", "dqn", "parameter", seed, 50_000, value, reached, 50.0)
        for seed, value, reached in zip((2, 0, 1), returns, (None, 20_000, 30_000), strict=True)
    ]
    lines = presets.table(rows).splitlines()
    measured = next(line for line in lines if "CartPole-v1 --exploration parameter" in line)
    assert measured.endswith("| 475.0 | 474.9 475.0 500.0 | 2 of 3, 2 not measured yet | 25,000 (2) | 1,000 |")
    assert all("not measured yet" in line for line in lines[2:] if line != measured)
