"""The queue of the evidence: what it counts, how it is stopped and goes on, and what it writes down."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "experiments"))

import evidence
from evidence_queue import QUEUE, Asked, Item, find
from evidence_status import Left, left, show_status

from paramnoise.figures.base import FIGURES
from paramnoise.parallel.engine import Engine

TINY = Item("ddpg-sparse", {"envs": ("Pendulum-v1",), "explorations": ("none", "ou")})
# A figure that says when it began, and ends at a clean place when it is asked to; it does not end by itself.
ENDLESS = """
import signal, sys, time
def end(*_):
    open(sys.argv[1], "a").write("asked ")
    sys.exit(128 + signal.SIGTERM)
signal.signal(signal.SIGTERM, end)
open(sys.argv[1], "a").write("began ")
while True:
    time.sleep(0.01)
"""
# Sends SIGTERM to a process once the figure has begun.
WATCH = """
import os, signal, sys, time
while not os.path.getsize(sys.argv[1]):
    time.sleep(0.01)
os.kill(int(sys.argv[2]), signal.SIGTERM)
"""


def asked(out: Path, *items: Item, workers: int = 2) -> Asked:
    return Asked(out=out, scale="smoke", workers=workers, items=items)


def leave(out: Path, item: Item, number: int, steps: int, seconds: float) -> None:
    """Leaves one of a figure's runs as training would, so far."""
    figure = find(item)
    runs = figure.sweep(asked(out).arguments(item), out, Engine()).runs
    each = runs[number]
    each.directory.write_config(each.config)
    each.directory.write_rows([{"step": steps, "eval_return_mean": 1.0, "wall_time": seconds}])
    status = "finished" if steps == each.config.steps else "interrupted"
    summary = {"status": status, "steps": steps, "final_eval_return_mean": 1.0}
    each.directory.write_summary(summary)


def state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_queue_is_of_figures_that_exist_and_has_each_once():
    names = [item.figure for item in QUEUE]
    assert names[0] == "trpo-sparse"
    on_a_gpu, made_of_the_others = {"atari", "ablations-atari", "rivals-atari"}, {"rivals"}
    assert set(names) == set(FIGURES) - on_a_gpu - made_of_the_others
    assert len(names) == len(set(names))


@pytest.mark.parametrize("item", QUEUE, ids=lambda item: item.figure)
def test_an_item_is_asked_of_its_figure_as_its_command_asks_it(item: Item, tmp_path: Path):
    from paramnoise.cli import main

    order = Asked(out=tmp_path, scale="paper", workers=3, items=QUEUE)
    arguments = order.arguments(item)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(find(item)), "reproduce", lambda self, args: seen.append((self.name, args)) or 0)
        assert main(order.command(item)[3:]) == 0
    assert seen == [(item.figure, arguments)]


def test_what_is_left_is_counted_in_runs_and_steps_and_the_rate_is_measured(tmp_path: Path):
    assert left(asked(tmp_path), TINY) == Left(0, 2, 4_000, None)
    leave(tmp_path, TINY, 0, 2_000, 20.0)
    leave(tmp_path, TINY, 1, 1_500, 5.0)
    assert left(asked(tmp_path), TINY) == Left(1, 2, 500, (100 + 300) / 2)


def test_status_says_how_many_hours_are_left_where_that_is_known(tmp_path: Path, capsys):
    leave(tmp_path, TINY, 1, 1_000, 1_800.0)
    assert show_status(asked(tmp_path, TINY, Item("ablations-chain"))) == 0
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if "ddpg-sparse" in line]
    assert [cell.strip() for cell in line.split("│")[1:-1]] == ["ddpg-sparse", "0 of 2", "3,000", "1", "0.8"]
    assert printed.splitlines()[-1] == "0.8 hours left, and those of 1 more without an evaluation yet"


def test_a_figure_that_is_on_disk_is_drawn_and_what_made_it_is_written_down_once(tmp_path: Path):
    for number in (0, 1):
        leave(tmp_path, TINY, number, 2_000, 1.0)
    order = asked(tmp_path, TINY)
    assert evidence.run_queue(order, None) == 0
    assert (tmp_path / "ddpg-sparse/ddpg-sparse.png").exists()
    path = tmp_path / "ddpg-sparse/provenance.json"
    (entry,) = json.loads(path.read_text())
    assert entry["command"].startswith("paramnoise reproduce ddpg-sparse --scale smoke --out ")
    assert (entry["seeds"], entry["machine"]["cores"]) == (1, evidence.cores())
    assert {"paramnoise", "jax", "python"} <= set(entry["versions"])
    assert set(entry) == {"command", "seeds", "versions", "git_commit", "git_describe", "machine", "since"}
    evidence.record(order, TINY)
    assert len(json.loads(path.read_text())) == 1
    evidence.record(asked(tmp_path, TINY, workers=1), TINY)
    assert len(json.loads(path.read_text())) == 2


def test_the_queue_stops_in_time_by_asking_its_figure_to_and_begins_no_other(tmp_path: Path, monkeypatch, capfd):
    notes = tmp_path / "notes"
    monkeypatch.setattr(Asked, "command", lambda self, item: [sys.executable, "-c", ENDLESS, str(notes)])
    monkeypatch.setattr(evidence, "_is_past", lambda deadline: deadline and notes.exists() and notes.read_text())
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert evidence.run_queue(asked(tmp_path, TINY, Item("chain")), 1 / 60) == 0
    assert notes.read_text() == "began asked "
    assert "stopped after 0.0166667 minutes; the same command goes on" in capfd.readouterr().out
    assert not (tmp_path / "chain").exists()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
    assert evidence.main(["pause", "--out", str(tmp_path)]) == 2  # nothing runs any more


def test_a_queue_without_minutes_has_no_end_in_time():
    now = evidence.time.monotonic()
    assert [evidence._is_past(deadline) for deadline in (None, now - 1, now + 60)] == [False, True, False]


def test_a_signal_is_passed_on_to_the_figure_and_ends_the_queue(tmp_path: Path, monkeypatch):
    notes = tmp_path / "notes"
    monkeypatch.setattr(Asked, "command", lambda self, item: [sys.executable, "-c", ENDLESS, str(notes)])
    notes.touch()
    watcher = subprocess.Popen([sys.executable, "-c", WATCH, str(notes), str(os.getpid())])
    assert evidence.run_queue(asked(tmp_path, TINY, Item("chain")), None) == 128 + signal.SIGTERM
    assert watcher.wait() == 0
    assert notes.read_text() == "began asked "


def test_a_figure_that_cannot_be_run_ends_the_queue_and_failed_runs_do_not(tmp_path: Path, monkeypatch):
    statuses = {"ddpg-sparse": 1, "chain": 0, "es": 2, "ablations": 0}
    begun = []

    def command(self: Asked, item: Item) -> list[str]:
        begun.append(item.figure)
        return [sys.executable, "-c", f"raise SystemExit({statuses[item.figure]})"]

    monkeypatch.setattr(evidence, "record", lambda order, item: None)
    monkeypatch.setattr(Asked, "command", command)
    assert evidence.run_queue(asked(tmp_path, TINY, Item("chain")), None) == 1
    assert evidence.run_queue(asked(tmp_path, Item("es"), Item("ablations")), None) == 2
    assert begun == ["ddpg-sparse", "chain", "es"]


def test_the_figure_at_work_is_paused_and_goes_on_and_no_second_queue_begins(tmp_path: Path, capsys):
    figure = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
    try:
        with (tmp_path / "queue.pid").open("w") as held:
            held.write(f"{figure.pid}\n")
            held.flush()
            fcntl.flock(held, fcntl.LOCK_EX)
            assert evidence.main(["pause", "--out", str(tmp_path)]) == 0
            os.waitid(os.P_PID, figure.pid, os.WSTOPPED)
            assert state_of(figure.pid) == "T"
            assert evidence.main(["resume", "--out", str(tmp_path)]) == 0
            os.waitid(os.P_PID, figure.pid, os.WCONTINUED)
            assert state_of(figure.pid) in "RSD"
            assert evidence.main(["run", "--out", str(tmp_path), "--figures", "chain"]) == 2
    finally:
        figure.kill()
        figure.wait()
    printed = capsys.readouterr().err
    assert printed == f"a queue, or a figure that it left, runs on {tmp_path} (process group {figure.pid})\n"


@pytest.mark.parametrize("words", ["pause", "resume", "run --figures nothing", "status --figures nothing"])
def test_what_cannot_be_done_is_one_line(words: str, tmp_path: Path, capsys):
    assert evidence.main([*words.split(), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
