"""Every kind of results as points, in which a larger value is better."""

import math

import pytest

from paramnoise.claims import sources
from paramnoise.figures.chain_results import Outcome, write_results
from paramnoise.figures.curve_distances import Distance, write_distances
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_results import write_results as write_curves


@pytest.mark.parametrize(
    "read",
    [
        sources.curves,
        sources.agents,
        sources.chains,
        sources.exploring_scores,
        sources.noise_free_scores,
        sources.relative_distances,
    ],
)
def test_a_figure_that_was_not_run_has_no_points(read, tmp_path):
    assert read(tmp_path / "figure") == []


def test_a_chain_is_better_the_sooner_it_is_solved_and_its_budget_is_that_of_unsolved_runs(tmp_path):
    rows = [Outcome(20, "dqn", "parameter", 0, 150, True), Outcome(20, "dqn", "epsilon-greedy", 0, 300, False)]
    write_results(rows, tmp_path / "results.csv")
    assert sources.chains(tmp_path) == [
        Point("Chain-20", "dqn", "parameter", 0, 300, -150.0),
        Point("Chain-20", "dqn", "epsilon-greedy", 0, 300, -math.inf),
    ]


def test_chains_that_are_all_solved_had_budget_enough(tmp_path):
    write_results([Outcome(20, "dqn", "parameter", 0, 150, True)], tmp_path / "results.csv")
    assert [point.step for point in sources.chains(tmp_path)] == [2_000]


def test_a_figure_of_agents_has_them_as_methods(tmp_path):
    write_curves([Point("Task-v0", "trpo", "parameter", 0, 10, 1.0)], tmp_path / "results.csv")
    assert [point.exploration for point in sources.agents(tmp_path)] == ["trpo"]


def test_distances_are_in_units_of_their_threshold(tmp_path):
    write_distances([Distance("Task-v0", "ddpg", "parameter", 0, 10, 0.3, 0.2)], tmp_path / "distances.csv")
    assert sources.relative_distances(tmp_path) == [Point("Task-v0", "ddpg", "parameter", 0, 10, pytest.approx(1.5))]
