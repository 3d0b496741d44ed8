"""Learning curves as a file and as numbers."""

import pytest

from paramnoise.experiments.curve_results import Band, Final, Point, bands, finals, read_results, write_results
from paramnoise.validation import UsageError


def points(exploration: str, *curves: list[float], env: str = "Task-v0") -> list[Point]:
    """A curve per seed, an evaluation every 10 steps."""
    return [
        Point(env, "ddpg", exploration, seed, 10 * (i + 1), value)
        for seed, curve in enumerate(curves)
        for i, value in enumerate(curve)
    ]


def test_results_survive_their_file(tmp_path):
    path = tmp_path / "new" / "results.csv"
    both = points("none", [1.5, -2.0]) + points("ou", [0.1], env="paramnoise/Other-v0")
    write_results(both, path)
    assert path.read_text().splitlines() == [
        "env,algorithm,exploration,seed,step,return",
        "Task-v0,ddpg,none,0,10,1.5",
        "Task-v0,ddpg,none,0,20,-2.0",
        "paramnoise/Other-v0,ddpg,ou,0,10,0.1",
    ]
    assert read_results(path) == both


@pytest.mark.parametrize("text", ["", "env,algorithm,exploration,seed,step,return\n", "a,b\n1,2\n", "env,seed\nx,y\n"])
def test_a_file_without_curves_is_refused(tmp_path, text):
    path = tmp_path / "results.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"results\.csv"):
        read_results(path)


def test_a_band_is_the_median_and_the_quartiles_over_seeds():
    (line,) = bands(points("none", [1.0], [5.0], [3.0], [2.0], [4.0])).values()
    assert line == [Band(10, 2.0, 3.0, 4.0, 5)]


def test_lines_are_kept_apart_and_steps_in_order():
    mixed = points("none", [1.0, 2.0]) + points("ou", [3.0]) + points("none", [4.0], env="Other-v0")
    found = bands(reversed(mixed))
    assert {line: [band.step for band in own] for line, own in found.items()} == {
        ("Other-v0", "none"): [10],
        ("Task-v0", "ou"): [10],
        ("Task-v0", "none"): [10, 20],
    }


def test_seeds_that_did_not_get_to_the_end_are_counted_and_not_mixed_in():
    done, partly = points("none", [0.0, 6.0], [0.0, 8.0], [100.0]), points("ou", [1.0], [2.0])
    assert finals(done + partly) == [
        Final("Task-v0", "none", 20, Band(20, 6.5, 7.0, 7.5, 2), 3),
        Final("Task-v0", "ou", 20, None, 2),
    ]


def test_each_task_has_an_end_of_its_own():
    both = points("none", [1.0, 2.0]) + points("none", [3.0], env="Other-v0")
    assert [(final.env, final.step) for final in finals(both)] == [("Task-v0", 20), ("Other-v0", 10)]
