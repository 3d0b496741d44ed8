"""What a sweep shows on its way."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from paramnoise.figures import sweep_display
from paramnoise.figures.base import FIGURES
from paramnoise.figures.curve_runs import CurveRun
from paramnoise.figures.curves import CurveScale
from paramnoise.figures.pieces import Progress
from paramnoise.figures.sweep_display import SweepDisplay, duration
from paramnoise.parallel.sweep import Event


def three_runs(out: Path) -> list[CurveRun]:
    figure = FIGURES["ddpg-sparse"]
    return figure.grid(CurveScale(envs=("Pendulum-v1",), seeds=1, steps=1_000), figure.methods[:3], out)


def console() -> Console:
    return Console(file=io.StringIO(), width=120)


def shown(screen: Console) -> str:
    return screen.file.getvalue()


def finish(each: CurveRun) -> None:
    each.directory.write_config(each.config)
    each.directory.write_summary({"status": "finished", "steps": 1_000, "final_eval_return_mean": -250.0})


def test_each_end_is_a_line_and_failures_are_kept(tmp_path):
    runs, screen = three_runs(tmp_path), console()
    display = SweepDisplay("figure", runs, runs, screen)
    finish(runs[0])
    for each, state, reason in (
        (runs[0], "finished", None),
        (runs[1], "failed", "it [diverged]"),
        (runs[2], "stopped", None),
    ):
        display.follow(Event(each, "started"))
        display.follow(Event(each, state, reason))
    assert shown(screen).splitlines() == [
        "[1/3] Pendulum-v1/none/seed-0: return -250.0 after 1,000 steps",
        "[2/3] Pendulum-v1/gaussian/seed-0: failed: it [diverged]",
        "[2/3] Pendulum-v1/ou/seed-0: stopped after 0 steps",
    ]
    assert display.finished == 1
    assert display.failures == {"Pendulum-v1/gaussian/seed-0": "failed: it [diverged]"}


def test_the_table_has_the_runs_under_way_and_the_time_left(tmp_path):
    runs, screen = three_runs(tmp_path), console()
    display = SweepDisplay("figure", runs, runs[1:], screen)
    display.follow(Event(runs[1], "started"))
    display.follow(Event(runs[1], "progress", Progress(600, -7.25, 50.0)))
    screen.print(display.table())
    headline, _, _, _, row, _ = shown(screen).splitlines()
    assert headline.strip() == "figure: 1 of 3 finished, 1 running, 1 waiting; 50 steps/s, 0:00:28 left"
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["Pendulum-v1/gaussian/seed-0", "running", "600", "1,000", "-7.2", "50", "0:00:08"]


def test_a_run_that_has_not_been_heard_of_is_starting(tmp_path):
    runs, screen = three_runs(tmp_path), console()
    display = SweepDisplay("figure", runs, runs, screen)
    display.follow(Event(runs[0], "started"))
    screen.print(display.table())
    assert "starting" in shown(screen)
    assert "steps/s, " not in shown(screen)


def test_a_piece_without_a_rate_counts_as_the_others_do(tmp_path):
    runs, screen = three_runs(tmp_path), console()
    display = SweepDisplay("figure", runs, runs, screen)
    finish(runs[0])
    for each, reports in ((runs[0], [(100, 0.0), (900, 200.0)]), (runs[1], [(100, 0.0)])):
        display.follow(Event(each, "started"))
        for step, rate in reports:
            display.follow(Event(each, "progress", Progress(step, None, rate)))
    display.follow(Event(runs[0], "finished"))
    screen.print(display.table())
    assert "1 running, 1 waiting; 200 steps/s, 0:00:10 left" in shown(screen)  # (900 + 1,000) / 200, rounded


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 2), (1e9, 0)])
def test_without_a_terminal_the_state_of_the_whole_is_a_line_now_and_then(tmp_path, monkeypatch, seconds, lines):
    monkeypatch.setattr(sweep_display, "LINE_SECONDS", seconds)
    runs, screen = three_runs(tmp_path), console()
    display = SweepDisplay("figure", runs, runs, screen)
    display.follow(Event(runs[0], "started"))
    for step in (10, 20):
        display.follow(Event(runs[0], "progress", Progress(step, None, 10.0)))
    assert len(shown(screen).splitlines()) == lines


@pytest.mark.parametrize(
    ("steps", "rate", "text"),
    [(59, 1.0, "0:00:59"), (3_600, 1.0, "1:00:00"), (90_061, 1.0, "25:01:01")],
)
def test_durations_are_hours_minutes_and_seconds(steps, rate, text):
    assert duration(steps, rate) == text
