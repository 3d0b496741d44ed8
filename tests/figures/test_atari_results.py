"""results.csv and scores.csv of the Atari figure."""

import math

import pytest

from paramnoise.figures.atari_results import Score, carried, read_scores, write_curves, write_scores
from paramnoise.figures.curve_results import Point, read_results
from paramnoise.validation import UsageError


def point(seed: int, step: int, value: float, env: str = "Pong") -> Point:
    return Point(env, "dqn", "parameter", seed, step, value)


def test_results_are_tidy_and_tell_frames(tmp_path):
    path = tmp_path / "new" / "results.csv"
    points = [point(0, 250, -20.5), point(2, 500, 3.0)]
    write_curves(points, path)
    assert path.read_text().splitlines() == [
        "env,algorithm,exploration,seed,step,frames,return",
        "Pong,dqn,parameter,0,250,1000,-20.5",
        "Pong,dqn,parameter,2,500,2000,3.0",
    ]
    assert read_results(path) == points


def test_scores_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "scores.csv"
    assert read_scores(path) == []
    scores = [Score("Pong", "epsilon-greedy", 1, 250, 10, -3.25, -4.0)]
    write_scores(scores, path)
    assert path.read_text().splitlines() == [
        "env,exploration,seed,step,frames,episodes,mean,median",
        "Pong,epsilon-greedy,1,250,1000,10,-3.25,-4.0",
    ]
    assert read_scores(path) == scores


@pytest.mark.parametrize(
    "text", ["env,seed\nPong,0\n", "env,exploration,seed,step,episodes,mean,median\nPong,x,a,1,1,1,1\n"]
)
def test_another_file_is_no_scores(tmp_path, text):
    (tmp_path / "scores.csv").write_text(text)
    with pytest.raises(UsageError, match="does not hold scores"):
        read_scores(tmp_path / "scores.csv")


def test_a_return_is_carried_on_over_rows_in_which_no_game_ended():
    nan = math.nan
    values = {0: [1.0, nan, 3.0, nan], 1: [nan, 5.0, nan, nan], 2: [nan, nan, nan, nan]}
    points = [point(seed, 10 * (i + 1), value) for seed, curve in values.items() for i, value in enumerate(curve)]
    other = [point(0, 10, 7.0, "Enduro")]
    # Both seeds have a return from step 20 on; the third has none at all.
    assert carried(points + other) == [
        *(point(0, step, value) for step, value in ((20, 1.0), (30, 3.0), (40, 3.0))),
        *(point(1, step, 5.0) for step in (20, 30, 40)),
        *other,
    ]
