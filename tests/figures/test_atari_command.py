"""`paramnoise reproduce atari` and `paramnoise plot atari`: what they train, write and print."""

import contextlib
import csv
import dataclasses
import io
import math
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from handmade_runs import TINY, finish, groups, leave, row

from paramnoise.cli import main
from paramnoise.figures import base
from paramnoise.figures.atari_figure import ATARI

SMOKE = "reproduce atari --scale smoke"
SMALL_AGENT = {
    "convolutions": ((2, 16, 16),),
    "hidden_sizes": (4,),
    "batch_size": 4,
    "buffer_size": 200,
    "learning_starts": 16,
}


def call(command: str) -> tuple[int, str]:
    """The exit status of a command, and what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = main(command.split())
    return status, printed.getvalue()


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture(autouse=True)
def _tiny_and_in_a_directory_of_its_own(tmp_path, monkeypatch):
    pytest.importorskip("ale_py")
    monkeypatch.setitem(ATARI.scales, "smoke", TINY)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def finished(tmp_path) -> Path:
    for value, group in zip((5.0, 3.0, 1.0), groups(tmp_path), strict=True):
        finish(group, value)
    return tmp_path


def test_finished_runs_are_not_trained_again_and_make_results_table_and_figure(finished):
    status, printed = call(f"{SMOKE} --out {finished}")
    assert status == 0
    assert "6 runs, 6 on disk, 0 groups to train" in printed
    points, scores = rows_of(finished / "atari/results.csv"), rows_of(finished / "atari/scores.csv")
    assert (len(points), len(scores)) == (24, 12)
    assert points[1] == dict(
        env="Pong", algorithm="dqn", exploration="parameter", seed="0", step="20", frames="80", **{"return": "5.0"}
    )
    assert math.isnan(float(points[0]["return"]))
    (line,) = [line for line in (finished / "atari/scores.md").read_text().splitlines() if line.startswith("| Pong")]
    assert line.startswith("| Pong | 0.00016M | 2 | 26.5 | 24.5 | 22.5 | 21 | 21 | 20 |")
    assert "26.5" in printed
    assert printed.splitlines()[-1] == str(finished / "atari/atari.png")


def test_the_figure_is_in_frames_and_begins_with_the_first_games(finished, monkeypatch):
    monkeypatch.setattr(plt, "close", lambda figure: None)
    call(f"{SMOKE} --out {finished}")
    (axis,) = plt.gcf().axes
    assert [line.get_label() for line in axis.lines] == [method.label for method in ATARI.methods]
    assert axis.lines[0].get_xdata().tolist() == [step * 4 / 1e6 for step in (20, 30, 40)]
    assert axis.lines[0].get_ydata().tolist() == [5.5, 5.5, 6.5]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("million frames", "score while exploring")
    monkeypatch.undo()
    plt.close("all")


def test_all_is_made_again_from_the_two_files_alone(finished, tmp_path_factory):
    _, before = call(f"{SMOKE} --out {finished}")
    out = tmp_path_factory.mktemp("elsewhere")
    (out / "atari").mkdir()
    for name in ("results.csv", "scores.csv"):
        (out / "atari" / name).write_bytes((finished / "atari" / name).read_bytes())
    status, printed = call(f"plot atari --out {out}")
    assert status == 0
    assert (out / "atari/scores.md").read_text() == (finished / "atari/scores.md").read_text()
    assert (out / "atari/atari.png").read_bytes().startswith(b"\x89PNG")
    assert printed.replace(str(out), str(finished)) in before


def test_without_matplotlib_all_but_the_figure_is_made(finished, monkeypatch, capsys):
    monkeypatch.setattr(base, "can_draw", lambda: False)
    status, printed = call(f"{SMOKE} --out {finished}")
    assert (status, "matplotlib" in printed.splitlines()[-1]) == (0, True)
    assert {path.name for path in (finished / "atari").iterdir()} == {"Pong", "results.csv", "scores.csv", "scores.md"}
    assert main(f"plot atari --out {finished}".split()) == 2
    assert "matplotlib" in capsys.readouterr().err


def test_a_part_of_the_grid_can_be_asked_for(finished):
    status, _ = call(f"{SMOKE} --explorations epsilon-greedy --seeds 1 --steps 20 --envs pong --out {finished}")
    assert status == 0
    points = rows_of(finished / "atari/results.csv")
    assert {(each["exploration"], each["seed"]) for each in points} == {("epsilon-greedy", "0")}
    assert [each["step"] for each in points] == ["10", "20"]


def test_runs_in_which_no_game_has_ended_make_no_figure(tmp_path, monkeypatch):
    (group, *_) = groups(tmp_path)
    for run in group.runs:
        leave(run, [row(10, math.nan), row(40, math.nan, -21.0)])
    status, printed = call(f"{SMOKE} --explorations parameter --out {tmp_path}")
    assert (status, printed.splitlines()[-1]) == (0, "no figure, since no game has ended yet")
    assert rows_of(tmp_path / "atari/scores.csv")[0]["mean"] == "-21.0"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--envs Pongg", "did you mean Pong"),
        ("--explorations wander", "parameter, epsilon-greedy, epsilon-greedy-two-heads"),
        ("--steps 0", "steps must be at least 1, not 0"),
        ("--seeds 0", "seeds must be at least 1, not 0"),
        ("--log-every 0", "log_every must be at least 1, not 0"),
        ("--num-envs 0", "num_envs must be at least 1, not 0"),
        ("--workers 0", "workers must be at least 1, not 0"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(capsys, words, named):
    status = main(["reproduce", "atari", *words.split()])
    printed = capsys.readouterr()
    assert (status, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert named in printed.err
    assert list(Path.cwd().iterdir()) == []


def test_a_run_of_another_config_in_the_way_is_an_error_before_anything_runs(finished, capsys):
    assert main(f"{SMOKE} --eval-episodes 5 --out {finished}".split()) == 2
    assert "another config: --eval-episodes is 3 there and 5 here" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["reproduce", "plot"])
def test_the_figure_has_commands_with_help(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "atari", "--help"])
    assert stop.value.code == 0
    assert f"usage: paramnoise {command} atari" in capsys.readouterr().out


def test_a_figure_without_results_is_not_drawn(capsys):
    assert main(["plot", "atari"]) == 2
    assert "reproduce atari" in capsys.readouterr().err


def test_a_group_is_trained_in_one_process_and_could_go_on_together(tmp_path, monkeypatch):
    tiny = dataclasses.replace(TINY, eval_every=40, eval_episodes=1, agent=SMALL_AGENT)
    monkeypatch.setitem(ATARI.scales, "smoke", tiny)
    status, printed = call(f"{SMOKE} --explorations epsilon-greedy-two-heads --out {tmp_path}")
    assert (status, "2 runs, 0 on disk, 1 group to train" in printed) == (0, True), printed
    assert "[1/1] Pong/epsilon-greedy-two-heads (seeds 0, 1): return -2" in printed
    group = groups(tmp_path, tiny)[2]
    for run in group.runs:
        assert run.directory.summary()["steps"] == 40
        assert [int(each["step"]) for each in run.directory.rows()] == [10, 20, 30, 40]
        assert run.saved_at() == 40
    assert [each["step"] for each in rows_of(tmp_path / "atari/scores.csv")] == ["40", "40"]
    assert "no game has ended yet" in printed
