"""Steps until a return is reached: by seed, by agent, ES against the others, and drawn."""

import csv
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest

from paramnoise.figures import plots, sample_efficiency
from paramnoise.figures.base import FIGURES
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curves import CurveScale
from paramnoise.figures.sample_efficiency import Reach, aligned, carried_forward, reaches, report, summarise

ENV = "Task-v0"
FIGURE = FIGURES["es"]
ASKED = sample_efficiency.IN_A_ROW


@pytest.fixture(autouse=True)
def _one_evaluation_counts(monkeypatch):
    """So that curves are short; how many are asked for has tests of its own."""
    monkeypatch.setattr(sample_efficiency, "IN_A_ROW", 1)


def curves(algorithm: str, *seeds: dict[int, float], env: str = ENV) -> list[Point]:
    """A curve per seed, of returns by step."""
    exploration = "none" if algorithm == "es" else "parameter"
    return [
        Point(env, algorithm, exploration, seed, step, value)
        for seed, curve in enumerate(seeds)
        for step, value in curve.items()
    ]


def rows(points: list[Point], threshold: float = 5.0) -> dict[str, sample_efficiency.Efficiency]:
    return {row.algorithm: row for row in summarise(points, {ENV: (threshold,)})}


@pytest.mark.parametrize(
    ("values", "steps", "touched"),
    [
        ([1.0, 5.0, 9.0, 6.0], 20, 20),
        ([8.0, 7.0, 6.0], 10, 10),
        ([9.0, 1.0, 2.0, 1.0], None, 10),  # luck
        ([9.0, 9.0, 4.9, 9.0, 9.0, 5.0, 0.0], 40, 10),
        ([1.0, 2.0, 9.0, 9.0], None, 30),  # it ends too soon to tell
        ([9.0, 9.0], None, 10),
        ([1.0, 4.9], None, None),
    ],
)
def test_a_return_is_reached_with_the_first_of_three_evaluations_in_a_row(values, steps, touched, monkeypatch):
    monkeypatch.setattr(sample_efficiency, "IN_A_ROW", ASKED)
    points = curves("es", {10 * (i + 1): value for i, value in enumerate(values)})
    for given in (points, points[::-1]):
        assert reaches(given, {ENV: (5.0,)}) == [
            Reach(ENV, 5.0, "es", "none", 0, steps, 10 * len(values), touched),
        ]


def test_seeds_that_only_touched_a_return_are_counted_apart(monkeypatch):
    monkeypatch.setattr(sample_efficiency, "IN_A_ROW", ASKED)
    found = rows(curves("ddpg", {10: 9.0, 20: 0.0, 30: 0.0}, {10: 5.0, 20: 5.0, 30: 5.0}, {10: 0.0}))["ddpg"]
    assert (found.seeds, found.reached, found.touched) == (3, 1, 2)


def test_a_task_may_have_several_returns_to_reach_or_none():
    points = curves("es", {10: 1.0, 20: 2.0}) + curves("ddpg", {10: 9.0}, env="Other-v0")
    assert [(r.threshold, r.steps) for r in reaches(points, {ENV: (1.0, 2.0, 3.0)})] == [(1, 10), (2, 20), (3, None)]


def test_the_ratio_is_of_medians_over_seeds():
    es = curves("es", {900: 5.0}, {100: 5.0}, {300: 5.0})
    found = rows(es + curves("ddpg", {10: 5.0}, {40: 5.0}, {20: 5.0}))
    assert (found["es"].steps, found["ddpg"].steps) == (300, 20)
    assert (found["ddpg"].ratio, found["ddpg"].is_bound) == (15.0, False)


def test_a_seed_that_was_stopped_before_it_got_there_is_no_fast_one_in_a_ratio():
    es, others = curves("es", {900: 5.0}), curves("ddpg", {100: 5.0}, {300: 5.0}, {20: 0.0})  # the last was cut short
    found = rows(es + others)["ddpg"]
    assert (found.steps, found.ratio, found.is_bound) == (300, 900 / 300, False)
    found = rows(curves("es", {100: 5.0}, {300: 5.0}, {20: 0.0}) + curves("ddpg", {10: 5.0}))["ddpg"]
    assert (found.ratio, found.is_bound) == (300 / 10, False)


def test_a_seed_that_never_got_there_is_the_slowest_but_not_infinitely_slow_for_the_median():
    found = rows(curves("es", {100: 5.0}, {50: 5.0}, {80: 0.0}))["es"]
    assert (found.steps, found.reached, found.seeds, found.within) == (100, 2, 3, 80)


@pytest.mark.parametrize("seeds", [({100: 5.0}, {400: 0.0}, {600: 0.0}), ({100: 5.0}, {400: 0.0})])
def test_unless_most_seeds_got_there_the_median_did_not(seeds):
    found = rows(curves("es", *seeds))["es"]
    assert (found.steps, found.reached, found.within) == (math.inf, 1, 400)


def test_where_one_agent_did_not_get_there_the_ratio_is_a_bound():
    late, soon = ({800: 0.0}, {600: 0.0}, {500: 5.0}), ({10: 5.0}, {20: 5.0}, {30: 5.0})
    over = rows(curves("es", *late) + curves("trpo", *soon))["trpo"]
    assert (over.ratio, over.is_bound) == (600 / 20, True)
    under = rows(curves("es", *soon) + curves("trpo", *late))["trpo"]
    assert (under.ratio, under.is_bound) == (20 / 600, True)


@pytest.mark.parametrize("points", [curves("es", {9: 0.0}) + curves("ddpg", {9: 0.0}), curves("ddpg", {9: 5.0})])
def test_where_nothing_can_be_compared_there_is_no_ratio(points):
    assert math.isnan(rows(points)["ddpg"].ratio)


def test_the_last_evaluation_counts_until_the_next():
    values = carried_forward([(10, 1.0), (25, 2.0)], [5, 10, 24, 25, 99])
    np.testing.assert_equal(values, [math.nan, 1.0, 1.0, 2.0, 2.0])


def test_agents_with_other_evaluation_steps_are_compared_where_the_shortest_run_ends():
    es = curves("es", {11: 1.0, 29: 2.0, 47: 9.0}, {13: 3.0, 31: 8.0})
    found = rows(es + curves("ddpg", {10: 4.0, 30: 6.0}))
    assert {name: (row.common_step, row.common_return) for name, row in found.items()} == {
        "es": (30, 2.5),  # of 2 and 3
        "ddpg": (30, 6.0),
    }


def test_seeds_that_were_evaluated_at_different_steps_are_aligned_from_first_to_last():
    points = aligned(curves("es", {10: 1.0, 30: 2.0}, {20: 5.0, 40: 6.0}))
    assert [(p.seed, p.step, p.value) for p in points] == [
        *((0, 10, 1.0), (0, 20, 1.0), (0, 30, 2.0)),
        *((1, 20, 5.0), (1, 30, 5.0), (1, 40, 6.0)),
    ]


def test_the_report_tells_reached_from_not_reached_and_keeps_both_files(tmp_path, capsys):
    points = curves("es", {100: 0.0}) + curves("ddpg", {10: 5.0}) + curves("trpo", {20: 1.0}, env="Other-v0")
    report(points, {ENV: (5.0,)}, tmp_path / "summary.csv")
    printed = capsys.readouterr().out
    (es,) = [line for line in printed.splitlines() if "> 100 " in line]
    (ddpg,) = [line for line in printed.splitlines() if " over 10.0 " in line]
    assert "│ es " in es
    assert "1 of 1" in ddpg
    assert "Other-v0: no return to be reached is known for it" in printed
    by_seed = list(csv.DictReader((tmp_path / "thresholds.csv").read_text().splitlines()))
    assert [(r["algorithm"], r["seed"], r["steps"], r["within"], r["touched"]) for r in by_seed] == [
        ("es", "0", "", "100", ""),
        ("ddpg", "0", "10", "10", "10"),
    ]
    summary = list(csv.DictReader((tmp_path / "summary.csv").read_text().splitlines()))
    assert [(r["algorithm"], r["steps"], r["reached"], r["ratio"], r["is_bound"]) for r in summary] == [
        ("es", "", "0", "", "False"),
        ("ddpg", "10.0", "1", "10.0", "True"),
    ]


def test_es_gets_the_paper_s_25_times_the_steps_and_agents_have_directories_of_their_own(tmp_path):
    scale = CurveScale(envs=("paramnoise/SparseMountainCar-v0",), seeds=1, steps=1_000)
    runs = FIGURE.grid(scale, FIGURE.methods, tmp_path)
    assert {each.name: each.config.steps for each in runs} == {
        "SparseMountainCar-v0/es/seed-0": 25_000,
        "SparseMountainCar-v0/ddpg/seed-0": 1_000,
        "SparseMountainCar-v0/trpo/seed-0": 1_000,
    }


def test_every_task_of_the_comparison_has_a_return_to_be_reached():
    assert {env for scale in FIGURE.scales.values() for env in scale.envs} == set(FIGURE.thresholds)


def test_a_dot_marks_each_seed_that_reached_a_return(tmp_path, monkeypatch):
    monkeypatch.setattr(plt, "close", lambda figure: None)
    env = "Hopper-v4"
    points = curves("es", {100: 1_500.0}, {150: 0.0}, env=env) + curves("trpo", {20: 1_000.0}, env=env)
    plots.plot_sample_efficiency(FIGURE, points, tmp_path / "es.png")
    (axis,) = plt.gcf().axes
    monkeypatch.undo()
    dots = [collection.get_offsets().tolist() for collection in axis.collections if len(collection.get_offsets())]
    assert [[100, 1_000]] in dots
    assert [[20, 1_000]] in dots
    assert axis.get_xscale() == "log"
    assert (tmp_path / "es.png").read_bytes().startswith(b"\x89PNG")
    plt.close("all")
