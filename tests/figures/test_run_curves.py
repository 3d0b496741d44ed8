"""The curves of any runs: which directories are runs, which runs are one line, and what a line is called."""

from pathlib import Path

import pytest

from paramnoise.explorations import ParameterNoise
from paramnoise.figures.run_curves import find_runs, read_curves
from paramnoise.runs.config import make_config
from paramnoise.runs.directory import RunDirectory
from paramnoise.validation import UsageError


def leave(path: Path, values: list[float], *, env: str = "CartPole-v1", **settings) -> None:
    """Leaves a run directory with an evaluation every 10 steps."""
    directory = RunDirectory(path)
    directory.claim(make_config("dqn", env, **settings), resume=False)
    noise = {"sigma": 0.5} if isinstance(settings.get("exploration"), ParameterNoise) else {}
    for i, value in enumerate(values):
        directory.append({"step": 10 * (i + 1), "eval_return_mean": value, **noise})


def test_runs_that_differ_in_their_seeds_alone_are_one_line_with_quartiles(tmp_path):
    for seed, value in enumerate((1.0, 2.0, 5.0)):
        leave(tmp_path / f"seed-{seed}", [value, 2 * value], seed=seed, steps=100 + seed)
    (curve,) = read_curves(find_runs([tmp_path]))
    assert (curve.env, curve.label, curve.column) == ("CartPole-v1", "dqn epsilon-greedy", "eval_return_mean")
    assert [tuple(band) for band in curve.bands] == [(10, 1.5, 2.0, 3.5, 3), (20, 3.0, 4.0, 7.0, 3)]


def test_lines_are_told_apart_by_what_differs_and_panels_by_the_environment(tmp_path):
    leave(tmp_path / "a", [1.0], exploration=ParameterNoise(delta=0.1))
    leave(tmp_path / "b", [2.0], exploration=ParameterNoise(delta=0.2), agent={"gamma": 0.5})
    leave(tmp_path / "c", [3.0], env="paramnoise/Chain-v0", env_kwargs={"length": 5})
    curves = {(curve.env, curve.label): curve for curve in read_curves(find_runs([tmp_path]))}
    assert set(curves) == {
        ("CartPole-v1", "dqn parameter, gamma 0.99, delta 0.1"),
        ("CartPole-v1", "dqn parameter, gamma 0.5, delta 0.2"),
        ("Chain-v0, length 5", "dqn epsilon-greedy"),
    }


def test_sigma_is_drawn_where_a_run_has_it_and_rows_without_an_evaluation_are_not(tmp_path):
    leave(tmp_path / "a", [float("nan"), 4.0], exploration=ParameterNoise())
    curves = {
        curve.column: [(band.step, band.median) for band in curve.bands] for curve in read_curves(find_runs([tmp_path]))
    }
    assert curves == {"eval_return_mean": [(20, 4.0)], "sigma": [(10, 0.5), (20, 0.5)]}


def test_a_run_that_is_named_twice_is_found_once(tmp_path):
    leave(tmp_path / "runs" / "a", [1.0])
    assert len(find_runs([tmp_path, tmp_path / "runs" / "a"])) == 1


def test_where_there_is_nothing_to_draw_an_error_says_so(tmp_path):
    with pytest.raises(UsageError, match="holds no run"):
        find_runs([tmp_path])
    leave(tmp_path / "a", [])
    with pytest.raises(UsageError, match="no progress to draw yet"):
        read_curves(find_runs([tmp_path]))
