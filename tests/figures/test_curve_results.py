"""Learning curves as a file and as numbers."""

import pytest

from paramnoise.figures.curve_results import Band, Point, bands, read_results, write_results
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
