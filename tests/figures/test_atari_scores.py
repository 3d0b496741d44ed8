"""The table of Atari scores."""

import math

import pytest

from paramnoise.envs.atari_games import GAMES
from paramnoise.figures.atari_figure import ATARI
from paramnoise.figures.atari_results import Score
from paramnoise.figures.atari_scores import PUBLISHED, report, rows


def scores(env: str, exploration: str, curves: list[dict[int, float]]) -> list[Score]:
    """The evaluations of a seed per curve, whose median games are given by step."""
    return [
        Score(env, exploration, seed, step, 10, 1_000.0, median)
        for seed, curve in enumerate(curves)
        for step, median in curve.items()
    ]


def test_the_papers_columns_are_those_of_its_statements():
    assert sorted(PUBLISHED) == sorted(GAMES)
    # "performs better than ES on 15 of 21": 13 wins and 2 ties.
    assert sum(game.parameter > game.es for game in PUBLISHED.values()) == 13
    assert sum(game.parameter == game.es for game in PUBLISHED.values()) == 2
    halves = [2 * value for game in PUBLISHED.values() for value in (game.epsilon_greedy, game.parameter)]
    assert all(value.is_integer() for value in halves)  # medians of an even number of games
    assert all(game.random < game.human for game in PUBLISHED.values())


def test_a_score_is_the_median_over_seeds_where_all_runs_of_the_game_were_evaluated():
    found = scores("Pong", "parameter", [{500: 1.0, 1_000: 4.0}, {500: 3.0, 1_000: 9.0}, {500: 2.0, 1_000: 5.0}])
    found += scores("Pong", "epsilon-greedy", [{500: 7.0}])
    (row,) = rows(found, ATARI.methods)
    assert (row.game, row.frames, row.last_frames) == ("Pong", 2_000, 4_000)
    assert (row.seeds, row.ours[:2], row.published) == ((3, 1, 0), (2.0, 7.0), PUBLISHED["Pong"])
    assert math.isnan(row.ours[2])
    (row,) = rows(found[:6], ATARI.methods)
    assert (row.frames, row.last_frames, row.ours[0]) == (4_000, 4_000, 5.0)


def test_the_table_says_the_frames_of_every_column(tmp_path, capsys):
    found = scores("Freeway", "parameter", [{1_000_000: 31.5}]) + scores("Freeway", "epsilon-greedy", [{250_000: 1.0}])
    found += scores("Asterix", "epsilon-greedy-two-heads", [{250_000: 1234.5}, {250_000: 1234.5}])
    report(found[:1] + found[2:], ATARI.methods, tmp_path / "scores.md")
    header, _, freeway, asterix, _, note = (tmp_path / "scores.md").read_text().splitlines()
    assert header.split(" | ")[3:9] == [
        "ours: parameter",
        "ours: epsilon-greedy",
        "ours: epsilon-greedy-two-heads",
        "paper: ES, 1,000M",
        "paper: epsilon-greedy, 40M",
        "paper: parameter, 40M",
    ]
    assert freeway == "| Freeway | 4M | 1 | 31.5 |  |  | 31 | 32 | 31.5 | 0 | 29.6 |"
    assert asterix == "| Asterix | 1M | 2 |  |  | 1,234.5 |  |  |  |  |  |"
    assert note == (
        "Our scores are after the frames in their row, the paper's after 40M (ES: 1,000M); "
        "fewer frames do not compare with more."
    )
    printed = capsys.readouterr().out
    assert "1,234.5" in printed
    assert "fewer frames do not compare with more" in printed
    assert printed.splitlines()[-1] == str(tmp_path / "scores.md")


def test_runs_of_unequal_length_are_compared_where_the_shortest_ends(tmp_path, capsys):
    found = scores("Pong", "parameter", [{250_000: 1.0, 500_000: 2.0}, {250_000: 3.0}])
    found += scores("Enduro", "parameter", [{10: 1.0}, {20: 1.0}])
    report(found, ATARI.methods, tmp_path / "scores.md")
    lines = (tmp_path / "scores.md").read_text().splitlines()
    assert lines[2].startswith("| Pong | 1M of 2M | 2 | 2 |")
    assert "Enduro: not in the table" in capsys.readouterr().out
    assert not any("Enduro" in line for line in lines)


@pytest.mark.parametrize(("counts", "shown"), [((2, 2), "2"), ((1, 3), "1 to 3")])
def test_the_number_of_seeds_is_told(tmp_path, counts, shown):
    found = [
        score
        for method, count in zip(("parameter", "epsilon-greedy"), counts, strict=True)
        for score in scores("Pong", method, [{250: 0.0}] * count)
    ]
    report(found, ATARI.methods, tmp_path / "scores.md")
    assert (tmp_path / "scores.md").read_text().splitlines()[2].split(" | ")[2] == shown
