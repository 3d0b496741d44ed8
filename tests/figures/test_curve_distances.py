"""Distances that runs measured, from their directories to distances.csv; the runs are made by hand."""

import dataclasses

import pytest

from paramnoise.figures.base import FIGURES
from paramnoise.figures.curve_distances import Distance, distances_of, read_distances, write_distances
from paramnoise.figures.curves import CurveArguments, CurveScale
from paramnoise.parallel.engine import Engine
from paramnoise.validation import UsageError

TINY = CurveScale(envs=("Pendulum-v1",), seeds=1, steps=40, eval_every=20, eval_episodes=1)


def row(step: int, **measured: float) -> dict[str, float]:
    return {"step": step, "eval_return_mean": 1.0, **measured}


def run_of(tmp_path, exploration: str, rows: list[dict[str, float]]):
    figure = FIGURES["ddpg-sparse"]
    (each,) = figure.grid(TINY, [figure.by_name[exploration]], tmp_path)
    each.directory.write_config(each.config)
    each.directory.write_rows(rows)
    return each


def test_distances_are_those_at_the_evaluations_once_there_is_one(tmp_path):
    each = run_of(tmp_path, "parameter", [row(20, distance=float("nan"), delta=0.2), row(40, distance=0.25, delta=0.2)])
    assert distances_of(each) == [Distance("Pendulum-v1", "ddpg", "parameter", 0, 40, 0.25, 0.2)]


def test_an_exploration_without_a_distance_has_none(tmp_path):
    assert distances_of(run_of(tmp_path, "none", [row(20), row(40)])) == []


def test_a_sweep_writes_them_beside_its_results(tmp_path):
    each = run_of(tmp_path, "parameter", [row(20, distance=0.3, delta=0.2), row(40, distance=0.25, delta=0.2)])
    each.directory.write_summary({"status": "finished", "steps": 40})
    asked = {field.name: getattr(TINY, field.name) for field in dataclasses.fields(TINY)}
    args = CurveArguments(scale="smoke", explorations=("parameter",), **asked)
    assert FIGURES["ddpg-sparse"].sweep(args, tmp_path, Engine()).write()
    assert read_distances(tmp_path / "ddpg-sparse" / "distances.csv") == distances_of(each)


def test_distances_survive_their_file(tmp_path):
    path = tmp_path / "distances.csv"
    assert read_distances(path) == []
    distances = [Distance("Pendulum-v1", "ddpg", "parameter", 0, 40, 0.25, 0.2)]
    write_distances(distances, path)
    assert read_distances(path) == distances


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "distances.csv"
    path.write_text("env,seed\nx,y\n")
    with pytest.raises(UsageError, match=r"distances\.csv"):
        read_distances(path)
