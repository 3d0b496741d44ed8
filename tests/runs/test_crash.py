"""A run that dies at any moment leaves a whole checkpoint, and ends, once resumed, as if it had never died."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from test_run import CONFIG, assert_same_arrays, progress

from paramnoise.runs import checkpoint
from paramnoise.runs import run as runs
from paramnoise.runs.directory import RunDirectory

OPERATIONS = ("fsync", "replace", "unlink")
"""Between two of these nothing changes that the next start could see."""


class Crash(BaseException):
    """The end of a process, as far as one process can show it."""


def crash_before(patch: pytest.MonkeyPatch, nth: int) -> None:
    """From now on, the process dies just before its nth operation on files."""
    left = itertools.count(nth, -1)

    def dying(operation):
        def run(*args, **kwargs):
            if next(left) == 0:
                raise Crash
            return operation(*args, **kwargs)

        return run

    for name in OPERATIONS:
        patch.setattr(os, name, dying(getattr(os, name)))


def crashes(monkeypatch, nth: int, work) -> bool:
    """Whether work was cut short by a crash before its nth operation."""
    with monkeypatch.context() as patch:
        crash_before(patch, nth)
        try:
            work()
        except Crash:
            return True
    return False


def save(directory: Path, value: float) -> None:
    checkpoint.save(directory, {"weights": jnp.full(3, value)}, {"returns": np.full(2, value)}, {"step": int(value)})


def test_a_crash_at_any_point_of_writing_leaves_the_old_or_the_new_checkpoint_whole(tmp_path, monkeypatch):
    held = []
    for nth in itertools.count():
        directory = tmp_path / str(nth)
        save(directory, 1.0)
        if not crashes(monkeypatch, nth, lambda: save(directory, 2.0)):  # noqa: B023
            break
        state, own, facts = checkpoint.load(directory, {"weights": jnp.zeros(3)})
        held.append(facts["step"])
        assert set(state["weights"].tolist()) == set(own["returns"].tolist()) == {facts["step"]}
        save(directory, 3.0)
        assert len(list(directory.iterdir())) == 2  # nothing of the crash is left
    # Arrays: what a kill left goes, content, name, folder; the index likewise; then the old arrays go.
    assert held == [1.0] * 7 + [2.0] * 2


@pytest.mark.parametrize("nth", [1, 5, 9, 19])
def test_a_run_that_crashes_while_it_writes_is_resumed_as_if_it_had_not(tmp_path, monkeypatch, nth, whole):
    path = tmp_path / "run"
    assert crashes(monkeypatch, nth, lambda: runs.run(CONFIG, path, checkpoint_seconds=0))
    runs.run(CONFIG, path, resume=RunDirectory(path).exists())
    assert progress(path) == progress(whole)
    assert_same_arrays(path, whole)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole")
    runs.run(CONFIG, path)
    return path


KILLS = {
    "train ddpg --env Pendulum-v1 --num-envs 2 --hidden-sizes 16 16 --batch-size 16 --buffer-size 50000"
    " --learning-starts 0 --exploration parameter --steps 60000 --eval-every 400": 20,
    # In one compiled program.
    "train dqn --env paramnoise/Chain-v0 --num-envs 4 --exploration parameter --steps 20000 --eval-every 500": 3,
    "train pqn --env paramnoise/Chain-v0 --num-envs 4 --exploration parameter --steps 60000 --eval-every 2000": 3,
    "train ppo --env paramnoise/Chain-v0 --num-envs 4 --batch-size 256 --steps 60000 --eval-every 2000": 3,
}
"""Commands, and how often each is killed. Their steps are more than a fast machine takes before the last kill."""


def start(train: str, path: Path) -> subprocess.Popen:
    resume = ["--resume"] if (path / "config.json").exists() else []
    words = [*train.split(), "--eval-episodes", "1", "--checkpoint-seconds", "0", "--run-dir", str(path), *resume]
    command = [sys.executable, "-m", "paramnoise", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen, happens) -> None:
    deadline = time.monotonic() + 120
    while not happens():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def is_writing(directory: Path) -> bool:
    """Whether a checkpoint is being written: something lies there under a name that does not last."""
    try:
        return any(file.name.endswith(".tmp") for file in directory.iterdir())
    except FileNotFoundError:
        return False


def killed(train: str, path: Path, delay: float, while_writing: bool) -> bool:
    """Goes on with the run, kills it `delay` seconds after its first row; returns whether this hit a checkpoint."""
    with start(train, path) as process:
        wait_for(process, lambda: process.stdout.readline().startswith("step "))
        time.sleep(delay)
        if while_writing:
            wait_for(process, lambda: is_writing(path / "checkpoint"))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    return is_writing(path / "checkpoint")


def finished(train: str, path: Path) -> Path:
    with start(train, path) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, (out, err)
    assert RunDirectory(path).summary()["status"] == "finished"
    return path


@pytest.mark.slow
@pytest.mark.parametrize("train", KILLS, ids=lambda train: train.split()[1])
def test_a_run_that_is_killed_at_many_moments_ends_as_the_uninterrupted_one(tmp_path, train):
    draw, kills = random.Random(0), KILLS[train]
    hit = [killed(train, tmp_path / "killed", draw.uniform(0.0, 0.3), while_writing=i % 2 == 0) for i in range(kills)]
    assert kills // 6 <= sum(hit) < kills
    assert RunDirectory(tmp_path / "killed").summary() is None
    often, once = finished(train, tmp_path / "killed"), finished(train, tmp_path / "once")
    assert progress(often) == progress(once)
    assert_same_arrays(often, once)
