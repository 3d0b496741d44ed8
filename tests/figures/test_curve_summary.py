"""What learning curves come to: the step of the comparison, the numbers, and how they are shown."""

import csv

import pytest

from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_summary import compare, improvements, over_tasks, report, summarise
from paramnoise.figures.statistics import Estimate

CARTPOLE, CAR = "paramnoise/SparseCartpoleSwingup-v0", "paramnoise/SparseMountainCar-v0"  # up to 500, up to 1


def points(exploration: str, *curves: list[float], env: str = "Task-v0") -> list[Point]:
    """A curve per seed, an evaluation every 1,000 steps."""
    return [
        Point(env, "ddpg", exploration, seed, 1_000 * (i + 1), value)
        for seed, curve in enumerate(curves)
        for i, value in enumerate(curve)
    ]


def at_the_end(exploration: str, *scores: float, env: str = "Task-v0") -> list[Point]:
    return points(exploration, *([score] for score in scores), env=env)


def by_line(found: list[Point]) -> dict[tuple[str, str], tuple[int, int, list[float]]]:
    return {
        (env, exploration): (task.step, task.last_step, scores.tolist())
        for env, task in compare(found).items()
        for exploration, scores in task.scores.items()
    }


def test_whole_runs_are_compared_at_their_end():
    both = points("none", [0.0, 6.0], [0.0, 8.0]) + points("ou", [1.0, 2.0])
    assert by_line(both) == {("Task-v0", "none"): (2_000, 2_000, [6.0, 8.0]), ("Task-v0", "ou"): (2_000, 2_000, [2.0])}


def test_runs_of_unequal_length_are_compared_where_the_shortest_of_their_task_ends():
    cut = points("none", [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) + points("ou", [7.0, 8.0], [9.0, 10.0, 11.0])
    other = points("ou", [1.0, 2.0, 3.0], env="Other-v0")
    assert by_line(cut + other) == {
        ("Task-v0", "none"): (2_000, 3_000, [2.0, 5.0]),
        ("Task-v0", "ou"): (2_000, 3_000, [8.0, 10.0]),
        ("Other-v0", "ou"): (3_000, 3_000, [3.0]),
    }


def test_a_step_counts_only_if_every_run_was_evaluated_there():
    found = points("none", [1.0, 2.0]) + [Point("Task-v0", "ddpg", "ou", 0, step, 5.0) for step in (1_000, 1_500)]
    assert by_line(found)["Task-v0", "ou"] == (1_000, 2_000, [5.0])
    assert compare(found[:1] + found[-1:]) == {}


def test_a_summary_has_quartiles_and_the_interquartile_mean():
    (row,) = summarise(compare(at_the_end("none", 9.0, 1.0, 2.0, 3.0, -100.0)))
    assert (row.env, row.exploration, row.seeds, row.step) == ("Task-v0", "none", 5, 1_000)
    assert (row.q25, row.median, row.q75, row.iqm) == (1.0, 2.0, 3.0, 2.0)
    assert row.low < row.iqm < row.high


def two_tasks() -> list[Point]:
    return (
        at_the_end("none", 0.0, 100.0, env=CARTPOLE)
        + at_the_end("parameter", 400.0, 100.0, env=CARTPOLE)
        + at_the_end("none", 0.0, 0.0, env=CAR)
        + at_the_end("parameter", 0.5, 1.0, env=CAR)
    )


def test_tasks_are_put_together_between_the_bounds_of_their_returns():
    together = over_tasks(compare(two_tasks()))
    assert together["none"].value == (0 + 0) / 2  # of 0, 0.2, 0, 0
    assert together["parameter"].value == (0.5 + 0.8) / 2  # of 0.8, 0.2, 0.5, 1
    assert all(estimate.low <= estimate.value <= estimate.high for estimate in together.values())


def test_what_other_runs_reach_does_not_change_a_normalised_number():
    better = at_the_end("ou", 500.0, 500.0, env=CARTPOLE) + at_the_end("ou", 1.0, 1.0, env=CAR)
    without, beside = over_tasks(compare(two_tasks())), over_tasks(compare(two_tasks() + better))
    assert beside == {**without, "ou": Estimate(1.0, 1.0, 1.0)}


def test_only_tasks_that_all_explorations_have_are_put_together():
    found = two_tasks() + at_the_end("ou", 2.0, 3.0, env=CAR)
    assert over_tasks(compare(found)) == {}


def test_a_task_without_bounds_is_in_no_normalised_number_and_is_named(tmp_path, capsys):
    unknown = at_the_end("none", 7.0, 7.0) + at_the_end("parameter", 9.0, 9.0)
    assert over_tasks(compare(two_tasks() + unknown)) == over_tasks(compare(two_tasks()))
    report(two_tasks() + unknown, tmp_path / "summary.csv", ["parameter"])
    assert "normalised: without Task-v0, as no bounds of its return are registered" in capsys.readouterr().out


def test_parameter_noise_is_held_against_each_other_exploration_on_the_tasks_of_both():
    found = (
        at_the_end("parameter", 1.0, 3.0)
        + at_the_end("none", 2.0, 2.0)
        + at_the_end("parameter", 5.0, 6.0, env="Other-v0")
        + at_the_end("ou", 0.0, 1.0, env="Other-v0")
    )
    assert improvements(compare(found), "parameter") == {"none": Estimate(0.5, 0.0, 1.0), "ou": Estimate(1.0, 1.0, 1.0)}
    assert improvements(compare(at_the_end("none", 1.0, 2.0)), "parameter") == {}


def test_each_subject_of_a_report_is_held_against_each_other_exploration(tmp_path, capsys):
    found = [point for name in ("none", "parameter", "parameter-x") for point in at_the_end(name, 1.0, 2.0)]
    report(found, tmp_path / "summary.csv", ["parameter", "parameter-x", "absent"])
    lines = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if "improvement" in line]
    first, second = (["none", "parameter-x"], ["none", "parameter"])
    assert lines == [
        *(f"parameter over {other}" for other in first),
        *(f"parameter-x over {other}" for other in second),
    ]


def test_a_report_shows_and_keeps_the_numbers(tmp_path, capsys):
    cut = points("none", [1.0, 9.0], [3.0]) + points("parameter", [500.0, 9.0], env="paramnoise/Other-v0")
    cut += points("parameter", [0.25, 9.0], [0.5, 9.0])
    report(cut, tmp_path / "summary.csv", ["parameter"])
    printed = capsys.readouterr().out.splitlines()
    cells = {tuple(cell.strip() for cell in line.split("│")[1:-1]) for line in printed if line.startswith("│")}
    assert cells == {
        ("Task-v0", "none", "1,000 of 2,000", "2.00 (1.50 to 2.50)", "2.00 (1.00 to 3.00)", "2"),
        ("Task-v0", "parameter", "1,000 of 2,000", "0.38 (0.31 to 0.44)", "0.38 (0.25 to 0.50)", "2"),
        ("Other-v0", "parameter", "2,000", "9.00 (9.00 to 9.00)", "9.00 (no interval)", "1"),
    }
    assert printed[-5:] == [
        "normalised: without Task-v0, as no bounds of its return are registered",
        "normalised: without Other-v0, as no bounds of its return are registered",
        "a task with runs of unequal length is compared at the last step that all its runs have reached",
        "parameter over none: probability of improvement 0.00 (0.00 to 0.00)",
        str(tmp_path / "summary.csv"),
    ]
    with (tmp_path / "summary.csv").open() as file:
        rows = list(csv.reader(file))
    assert ",".join(rows[0]) == "env,exploration,seeds,step,last_step,median,q25,q75,iqm,low,high"
    assert rows[1] == ["Task-v0", "none", "2", "1000", "2000", "2.0", "1.5", "2.5", "2.0", "1.0", "3.0"]
    assert rows[3] == ["paramnoise/Other-v0", "parameter", "1", "2000", "2000", "9.0", "9.0", "9.0", "9.0", "", ""]


def test_a_report_says_which_task_it_cannot_compare_and_puts_several_together(tmp_path, capsys):
    apart = [Point("Apart-v0", "ddpg", "none", seed, 10 + seed, 1.0) for seed in range(2)]
    tasks = [
        point
        for env, most in ((CARTPOLE, 500.0), (CAR, 1.0))
        for point in at_the_end("none", 0.0, most / 2, env=env) + at_the_end("parameter", 0.0, most, env=env)
    ]
    report(apart + tasks, tmp_path / "summary.csv", ["parameter"])
    printed = capsys.readouterr().out
    assert "Apart-v0: not compared, since its runs have no evaluation at the same step" in printed
    (line,) = [line for line in printed.splitlines() if "all, normalised" in line and "none" in line]
    assert "0.25 (" in line
    assert "normalised: SparseCartpoleSwingup-v0 from 0 to 500 (nothing to a reward in every step)" in printed
    assert "normalised: SparseMountainCar-v0 from 0 to 1 (nothing to the goal)" in printed


@pytest.mark.parametrize(
    ("score", "shown"), [(0.125, "0.12"), (-9.5, "-9.50"), (12.34, "12.3"), (-123.4, "-123"), (12345.6, "12346")]
)
def test_returns_are_shown_with_three_digits_or_more(score, shown, tmp_path, capsys):
    report(at_the_end("none", score, score), tmp_path / "summary.csv", ["parameter"])
    assert f"{shown} ({shown} to {shown})" in capsys.readouterr().out
