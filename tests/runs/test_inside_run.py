"""Runs inside one compiled program: the same by the command line and by Python, and resumed exactly after a crash."""

import numpy as np
import pytest
from test_crash import crashes
from test_run import assert_same_arrays, progress

import paramnoise as pn
from paramnoise.cli import main
from paramnoise.runs import run as runs
from paramnoise.runs.config import make_config
from paramnoise.runs.directory import RunDirectory

SETTINGS = {"hidden_sizes": (8,), "rollout_steps": 8, "minibatches": 2}
RUN = {"num_envs": 3, "eval_every": 48, "eval_episodes": 1}
NOISE = pn.ParameterNoise(delta=0.05, adapt_every=5)
CHAIN = ("paramnoise/Chain-v0", {"length": 5})
CONFIG = make_config("pqn", *CHAIN, exploration=NOISE, agent=SETTINGS, steps=192, **RUN)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    words = (
        "train pqn --env paramnoise/Chain-v0 --env-kwargs length:5 --hidden-sizes 8 --rollout-steps 8 --minibatches 2"
    )
    words += (
        " --num-envs 3 --eval-every 48 --eval-episodes 1 --steps 192 --exploration parameter delta:0.05 adapt_every:5"
    )
    assert main([*words.split(), "--run-dir", str(path)]) == 0
    return path


def test_the_same_seed_gives_the_same_curve_through_the_command_line_and_through_python(whole):
    assert RunDirectory(whole).config() == CONFIG
    agent = pn.PQN(CHAIN[0], env_kwargs=CHAIN[1], exploration=NOISE, **SETTINGS, **RUN)
    agent.learn(192, progress=False)
    clock = ("steps_per_second", "wall_time")
    ours = [{name: value for name, value in row.items() if name not in clock} for row in agent.history]
    theirs = [
        {name: float(value) for name, value in row.items() if name not in clock} for row in RunDirectory(whole).rows()
    ]
    np.testing.assert_equal(ours, theirs)
    assert [row["step"] for row in ours] == [48, 96, 144, 192]


def test_a_run_that_crashes_while_it_writes_is_resumed_as_if_it_had_not(tmp_path, monkeypatch, whole):
    path = tmp_path / "run"
    assert crashes(monkeypatch, 9, lambda: runs.run(CONFIG, path, checkpoint_seconds=0))
    runs.run(CONFIG, path, resume=RunDirectory(path).exists())
    assert progress(path) == progress(whole)
    assert_same_arrays(path, whole)
