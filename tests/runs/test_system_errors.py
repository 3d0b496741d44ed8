"""An error of the operating system, or of somebody's environment, is one line; the last checkpoint is kept."""

import errno
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from test_api import QUIET, tiny

import paramnoise as pn
from paramnoise.cli import main
from paramnoise.runs.directory import RunDirectory
from paramnoise.validation import RunError, system_error

WORDS = "train dqn --env CartPole-v1 --hidden-sizes 8 --batch-size 4 --buffer-size 64 --learning-starts 8"
WORDS += " --target-every 4 --steps 40 --eval-every 20 --eval-episodes 2 --checkpoint-seconds 0 --run-dir"


class Breaks(gym.Env):
    """Raises at its hundredth step, whoever counts."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        Breaks.steps += 1
        if Breaks.steps == 100:
            raise ZeroDivisionError("the\nsimulator broke")
        return np.zeros(4, np.float32), 1.0, False, Breaks.steps % 5 == 0, {}


def stopped(capsys, *words) -> str:
    """The one line with which a command ends, once it is sure of its status."""
    assert main([*map(str, words)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("paramnoise: stopped: ")
    return line


def full_after(monkeypatch, path, writes: int) -> None:
    """From now on the disk takes so many writes of the run, and no more."""
    fsync, left = os.fsync, iter(range(writes))

    def failing(descriptor):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)


@pytest.mark.parametrize("writes", [9, 12, 15])
def test_a_full_disk_is_one_line_and_the_checkpoint_before_goes_on(writes, tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        full_after(patch, tmp_path, writes)
        line = stopped(capsys, *WORDS.split(), tmp_path / "run")
    assert f"{tmp_path / 'run'}/" in line
    assert "No space left on device" in line
    assert not list((tmp_path / "run").rglob("*.tmp"))
    assert main([*WORDS.split(), str(tmp_path / "run"), "--resume"]) == 0
    assert RunDirectory(tmp_path / "run").summary()["status"] == "finished"


def test_what_cannot_be_a_run_directory_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert "Not a directory" in stopped(capsys, *WORDS.split(), tmp_path / "file/run")
    assert "name too long" in stopped(capsys, *WORDS.split(), tmp_path / ("long" * 100))
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").mkdir()
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "config.json is damaged: it is not a plain file" in capsys.readouterr().err


def test_a_name_with_line_breaks_or_escapes_is_told_in_one_line(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "a\nb\x1b[2J")]) == 2
    assert "a\\nb\\x1b[2J is not a run directory" in capsys.readouterr().err


def test_an_error_of_the_system_tells_where_and_what():
    assert system_error(OSError(errno.EACCES, "Permission denied", "there")) == "there: Permission denied"
    assert system_error(OSError("no\nnumber")) == "no number"


def test_an_error_of_a_callback_stays_what_it_is(tmp_path):
    def lose_touch(agent, row):
        raise ConnectionError("no server")

    with pytest.raises(ConnectionError, match="no server"):
        tiny().learn(20, log_dir=tmp_path / "run", callback=lose_touch, eval_every=20, **QUIET)


def test_an_output_that_cannot_be_written_is_one_line():
    code = "from paramnoise.cli import entry; import sys; sys.argv[1:] = ['--version']; entry()"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "paramnoise: stopped: No space left on device\n")


def test_what_an_environment_raises_is_one_line_with_its_traceback_in_a_file_until_the_run_goes_on(tmp_path):
    Breaks.steps = 0
    agent = tiny(Breaks).learn(20, log_dir=tmp_path / "run", eval_every=20, **QUIET)
    with pytest.raises(RunError) as caught:
        agent.learn(180, log_dir=tmp_path / "run", eval_every=20, **QUIET)
    line, file = "step of Breaks raised ZeroDivisionError: the simulator broke", tmp_path / "run/traceback.txt"
    assert str(caught.value) == f"{line} (traceback: {file})"
    summary = RunDirectory(tmp_path / "run").summary()
    assert (summary["status"], summary["reason"]) == ("failed", line)
    assert 'raise ZeroDivisionError("the\\nsimulator broke")' in file.read_text()
    again = pn.load(tmp_path / "run", Breaks)
    assert again.step == 20
    again.learn(180, log_dir=tmp_path / "run", eval_every=20, **QUIET)
    assert not file.exists()
