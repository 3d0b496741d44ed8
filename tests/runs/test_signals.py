"""Signals: a command that is stopped at any moment ends without a traceback, and without a crash."""

import os
import signal
import subprocess
import sys
import time

import pytest

from paramnoise.parallel.worker import Worker
from paramnoise.runs.display import stop_on_signals

HANGS = """
import time
import gymnasium as gym, numpy as np

class Hangs(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        Hangs.steps += 1
        if Hangs.steps == 200:
            print("hangs", flush=True)
            time.sleep(1000)
        return np.zeros(4, np.float32), 1.0, False, Hangs.steps % 5 == 0, {}

gym.register("Hangs-v0", Hangs)
"""
TRAIN = "train dqn --env Hangs-v0 --hidden-sizes 8 --batch-size 4 --buffer-size 64 --learning-starts 8 --steps 1000"
TRAIN += " --target-every 4 --eval-every 20 --eval-episodes 2 --checkpoint-seconds 0 --run-dir"


def started(*words, cwd) -> subprocess.Popen:
    """A command that finds the modules of its working directory first."""
    command = [sys.executable, "-m", "paramnoise", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(cwd), *sys.path])}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment
    )


@pytest.mark.parametrize("module", ["gymnasium", "jax"])
def test_ctrl_c_while_the_command_imports_leaves_no_traceback(module, tmp_path):
    (tmp_path / f"{module}.py").write_text("import time\nprint('imports', flush=True)\ntime.sleep(100)\n")
    with started("train", "dqn", "--env", "CartPole-v1", "--help", cwd=tmp_path) as process:
        assert process.stdout.readline() == "imports\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (-signal.SIGINT, "")


def test_a_hanging_step_ends_at_the_second_signal_and_the_checkpoint_of_before_is_there(tmp_path):
    (tmp_path / "hangs.py").write_text(HANGS)
    with started("--plugin", "hangs", *TRAIN.split(), str(tmp_path / "run"), cwd=tmp_path) as process:
        while process.stdout.readline() not in ("hangs\n", ""):
            pass
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
    assert (process.returncode, error) == (-signal.SIGINT, "")
    assert (tmp_path / "run/checkpoint/checkpoint.json").exists()


@pytest.mark.parametrize("is_ignored", [False, True])
def test_the_end_of_a_terminal_stops_work_unless_it_is_ignored(is_ignored):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert bool(stop) != is_ignored
    finally:
        signal.signal(signal.SIGHUP, before)


def serve(connection) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(os.getpid(), number)
    connection.send("alive")


def test_a_worker_leaves_the_signals_of_a_terminal_to_its_parent():
    worker = Worker(serve)
    assert worker.receive() == "alive"
    worker.end(by_force=True)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
