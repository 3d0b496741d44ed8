"""Figures of learning curves as data: which runs, where they are kept, and what of them is on disk."""

import dataclasses
from pathlib import Path

import pytest

from paramnoise.envs.continuous import SPARSE
from paramnoise.figures.base import FIGURES
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_runs import CurveRun, in_order
from paramnoise.figures.curves import CurveFigure, CurveScale, find_env
from paramnoise.figures.pieces import Progress
from paramnoise.runs.config import make_config
from paramnoise.validation import UsageError

CURVES = [figure for figure in FIGURES.values() if isinstance(figure, CurveFigure)]
MOUNTAIN_CAR = "paramnoise/SparseMountainCar-v0"
SMALL = {"hidden_sizes": (4, 4), "batch_size": 4, "buffer_size": 64, "learning_starts": 16}


def a_run(out: Path, steps: int = 40, seed: int = 0) -> CurveRun:
    config = make_config(
        "ddpg",
        "Pendulum-v1",
        exploration="none",
        agent=SMALL,
        seed=seed,
        steps=steps,
        eval_every=20,
        eval_episodes=1,
        eval_max_steps=5,
    )
    return CurveRun(out / "ddpg-sparse", "none", "none", config)


def asked(each: CurveRun, steps: int) -> CurveRun:
    return each._replace(config=dataclasses.replace(each.config, steps=steps))


class ScriptedLine:
    """A line on which the request to stop comes after so many questions."""

    def __init__(self, questions: int = 10**9):
        self.left = questions
        self.reported: list[Progress] = []

    def should_stop(self) -> bool:
        self.left -= 1
        return self.left < 0

    def report(self, progress) -> None:
        self.reported.append(progress())


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[CurveRun, ScriptedLine]:
    each, line = a_run(tmp_path_factory.mktemp("finished"), steps=60), ScriptedLine()
    assert each.train(line)
    return each, line


@pytest.mark.parametrize("name", ["ddpg-dense", "ddpg-sparse"])
def test_the_paper_s_scale_has_its_explorations_steps_seeds_and_evaluations(name):
    figure = FIGURES[name]
    paper = figure.scales["paper"]
    assert [method.exploration for method in figure.methods] == ["none", "gaussian", "ou", "parameter"]
    assert (paper.steps, paper.seeds, paper.eval_every, paper.eval_episodes) == (1_000_000, 5, 10_000, 20)
    assert len(paper.envs) == {"ddpg-dense": 7, "ddpg-sparse": 5}[name]


@pytest.mark.parametrize(
    ("name", "tasks", "methods", "seeds", "steps"),
    [
        ("ddpg-dense", 7, ["none", "gaussian", "ou", "parameter"], 5, 1_000_000),
        ("ddpg-sparse", 5, ["none", "gaussian", "ou", "parameter"], 5, 1_000_000),
        ("ddpg-sparse-l2", 2, ["none", "gaussian", "ou", "parameter"], 5, 1_000_000),
        ("trpo-dense", 3, ["none", "parameter"], 5, 2_000_000),
        ("trpo-sparse", 3, ["none", *(f"parameter-delta-{delta}" for delta in (0.01, 0.1, 1.0))], 5, 4_000_000),
        ("time-limits", 1, ["none", "parameter", "none-terminal", "parameter-terminal"], 10, 1_000_000),
        (
            "ablations",
            1,
            [
                *("parameter", "parameter-no-layer-norm"),
                *(f"parameter-sigma-{sigma}" for sigma in (0.01, 0.03, 0.1)),
                *(f"parameter-policies-{number}" for number in (1, 8, 32)),
                *("none", "none-no-layer-norm"),
            ],
            5,
            1_000_000,
        ),
    ],
)
def test_the_grid_of_a_figure_at_the_paper_s_scale(name, tasks, methods, seeds, steps, tmp_path):
    figure = FIGURES[name]
    runs = figure.grid(figure.scales["paper"], figure.methods, tmp_path)
    assert [each.name for each in runs] == list(dict.fromkeys(each.name for each in runs))
    assert len(runs) == tasks * len(methods) * seeds
    assert (
        [each.method for each in runs[: len(methods)]] == methods == [each.exploration for each in runs[: len(methods)]]
    )
    assert {each.config.steps for each in runs} == {steps}
    assert set(figure.subjects) <= set(methods)


def settings_of(name: str, field: str) -> list[object]:
    """A setting of each method's run, of its agent, its exploration or its own."""
    figure = FIGURES[name]
    first = [each.config for each in figure.grid(figure.scales["smoke"], figure.methods, Path())[: len(figure.methods)]]
    places = [(config, config.agent, config.exploration) for config in first]
    return [next((getattr(place, field) for place in three if hasattr(place, field)), None) for three in places]


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("trpo-sparse", "delta", [None, 0.01, 0.1, 1.0]),
        ("ddpg-sparse", "critic_l2", 4 * [0.0]),
        ("ddpg-sparse-l2", "critic_l2", 4 * [0.01]),
        ("time-limits", "terminal_time_limits", [False, False, True, True]),
        ("ablations", "layer_norm", [True, False, *7 * [True], False]),
        ("ablations", "sigma", [None, None, 0.01, 0.03, 0.1, *5 * [None]]),
        ("ablations", "alpha", [1.01, 1.01, *3 * [1.0], *3 * [1.01], None, None]),
        ("ablations", "num_envs", [*5 * [1], *3 * [32], 1, 1]),
        ("ablations", "num_policies", [*5 * [None], 1, 8, 32, None, None]),
    ],
)
def test_the_methods_of_a_figure_differ_in_what_it_compares(name, field, values):
    assert settings_of(name, field) == values


@pytest.mark.parametrize("figure", CURVES, ids=lambda figure: figure.name)
def test_runs_of_the_small_scale_are_beginnings_of_the_paper_s(figure, tmp_path):
    small, paper = (
        {each.name: each.config for each in figure.grid(figure.scales[scale], figure.methods, tmp_path)}
        for scale in ("small", "paper")
    )
    assert 0 < len(small) < len(paper)
    for name, config in small.items():
        assert dataclasses.replace(config, steps=paper[name].steps) == paper[name]


def test_the_grid_has_every_run_once_task_by_task_and_seed_by_seed(tmp_path):
    figure = FIGURES["ddpg-sparse"]
    scale = CurveScale(envs=(SPARSE[1], "Pendulum-v1"), seeds=2, steps=30, eval_every=10, eval_episodes=3)
    runs = figure.grid(scale, figure.methods[::3], tmp_path)
    assert [each.name for each in runs] == [
        f"{env}/{exploration}/seed-{seed}"
        for env in ("SparseHalfCheetah-v0", "Pendulum-v1")
        for seed in (0, 1)
        for exploration in ("none", "parameter")
    ]
    assert runs[0].directory.path == tmp_path / "ddpg-sparse/SparseHalfCheetah-v0/none/seed-0"
    assert {(r.config.steps, r.config.eval_every, r.config.eval_episodes) for r in runs} == {(30, 10, 3)}
    assert runs[1].config.exploration.delta == 0.6


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("HalfCheetah", "HalfCheetah-v4"),
        ("HalfCheetah-v4", "HalfCheetah-v4"),
        ("HalfCheetah-v5", "HalfCheetah-v5"),
        ("SparseMountainCar", MOUNTAIN_CAR),
        ("SparseMountainCar-v0", MOUNTAIN_CAR),
        (MOUNTAIN_CAR, MOUNTAIN_CAR),
        ("Pendulum-v1", "Pendulum-v1"),
        ("Pendulum", "Pendulum-v1"),
    ],
)
def test_a_task_is_found_by_its_id_or_short_name(name, env):
    assert find_env(name) == env


@pytest.mark.parametrize("name", ["", "Cheetah", "HalfCheetah-v77", "Pong"])
def test_an_unknown_task_is_refused_with_those_that_exist(name):
    with pytest.raises(UsageError, match="SparseMountainCar, or give an id"):
        find_env(name)


def test_a_worker_trains_a_run_and_tells_of_it(finished):
    each, line = finished
    assert each.directory.summary()["status"] == "finished"
    assert [progress.step for progress in line.reported] == list(range(1, 61))
    assert line.reported[0].value is None
    assert line.reported[25].value == each.curve()[0].value
    assert line.reported[-1].steps_per_second > 0


def test_the_curve_is_the_evaluations(finished):
    each, _ = finished
    values = [float(row["eval_return_mean"]) for row in each.directory.rows()]
    assert len(set(values)) == 3
    assert each.curve() == [
        Point("Pendulum-v1", "ddpg", "none", 0, 20 * (i + 1), value) for i, value in enumerate(values)
    ]


def test_a_finished_run_serves_fewer_steps_and_not_more(finished):
    each, _ = finished
    assert each.is_finished()
    assert asked(each, 40).is_finished()
    assert not asked(each, 80).is_finished()
    assert [point.step for point in asked(each, 40).curve()] == [20, 40]
    asked(each, 40).check()
    asked(each, 80).check()


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(finished, tmp_path):
    each = a_run(tmp_path, steps=60)
    assert not each.train(ScriptedLine(33))
    assert not each.is_finished()
    assert [point.step for point in each.curve()] == [20]
    assert each.train(ScriptedLine())
    assert each.curve() == finished[0].curve()


def test_a_run_that_goes_on_for_longer_has_no_point_at_its_first_end(finished, tmp_path):
    each = a_run(tmp_path, steps=60)
    assert asked(each, 30).train(ScriptedLine())
    assert [point.step for point in asked(each, 30).curve()] == [20, 30]
    assert each.train(ScriptedLine())
    assert each.curve() == finished[0].curve()


def test_a_run_of_another_config_is_in_the_way(finished):
    each, _ = finished
    other = each._replace(config=dataclasses.replace(each.config, eval_episodes=2))
    with pytest.raises(UsageError, match="another config: --eval-episodes is 1 there and 2 here"):
        other.check()


def test_an_unfinished_run_cannot_be_made_shorter(tmp_path):
    each = a_run(tmp_path, steps=60)
    each.train(ScriptedLine(10))
    with pytest.raises(UsageError, match="give --steps 60 or more"):
        asked(each, 40).check()


def test_a_failed_run_is_not_finished(finished, tmp_path):
    each = a_run(tmp_path, steps=60)
    each.directory.write_config(each.config)
    each.directory.write_summary({"status": "failed", "steps": 60, "reason": "it diverged"})
    assert not each.is_finished()


def test_runs_that_were_begun_come_first_and_then_the_longest(finished, tmp_path):
    begun, fresh = asked(finished[0], 100), a_run(tmp_path, steps=70)
    longer = a_run(tmp_path, steps=80, seed=1)
    assert in_order([fresh, longer, begun]) == [begun, longer, fresh]
