"""Event files: the numbers of progress.csv, each once, also after a resume."""

import math
import struct
import sys
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event
from test_run import CONFIG, run_and_stop

from paramnoise.cli import main
from paramnoise.runs import run as runs
from paramnoise.runs.directory import RunDirectory


def events(path: Path) -> list[Event]:
    """What the one event file of a run holds: records of a length, its checksum, the data and its checksum."""
    (file,) = (path / "tensorboard").iterdir()
    content, found = file.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        found.append(Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    return found


def scalars(path: Path) -> list[tuple[int, str, float]]:
    return [(event.step, value.tag, value.simple_value) for event in events(path) for value in event.summary.value]


def expected(path: Path) -> list[tuple[int, str, float]]:
    """The finite numbers of progress.csv."""
    return [
        (int(row["step"]), column, pytest.approx(float(text), rel=1e-6))
        for row in RunDirectory(path).rows()
        for column, text in row.items()
        if column != "step" and text and math.isfinite(float(text))
    ]


def test_the_event_file_holds_the_numbers_of_progress(tmp_path):
    runs.run(CONFIG, tmp_path, tensorboard=True)
    assert sorted(scalars(tmp_path)) == sorted(expected(tmp_path), key=lambda point: point[:2])
    assert {"eval_return_mean", "sigma", "q_loss", "steps_per_second"} <= {tag for _, tag, _ in scalars(tmp_path)}


def test_a_resumed_run_has_every_point_once_and_a_clock_without_gaps(tmp_path, monkeypatch):
    run_and_stop(monkeypatch, tmp_path, 21, tensorboard=True)
    RunDirectory(tmp_path).append({**RunDirectory(tmp_path).rows()[0], "step": "80", "eval_return_mean": "-1"})
    runs.run(CONFIG, tmp_path, resume=True, tensorboard=True)
    assert sorted(scalars(tmp_path)) == sorted(expected(tmp_path), key=lambda point: point[:2])
    times = {event.step: event.wall_time for event in events(tmp_path) if event.summary.value}
    clock = {int(row["step"]): float(row["wall_time"]) for row in RunDirectory(tmp_path).rows()}
    assert times[120] - times[40] == pytest.approx(clock[120] - clock[40], abs=1e-3)


def test_without_the_extra_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    words = f"train dqn --env CartPole-v1 --steps 20 --tensorboard --run-dir {tmp_path / 'run'}"
    assert main(words.split()) == 2
    assert "pip install 'paramnoise[tensorboard]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
