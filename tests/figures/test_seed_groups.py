"""Figures whose seeds train side by side: which runs are together, and what of them is on disk."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from paramnoise.cli import main
from paramnoise.figures.base import FIGURES
from paramnoise.figures.curves import CurveArguments, CurveScale
from paramnoise.figures.pieces import SilentLine
from paramnoise.parallel.engine import Engine
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.run import run_together
from paramnoise.validation import UsageError

TINY = CurveScale(envs=("Pendulum-v1",), seeds=2, steps=60, eval_every=30, eval_episodes=1)
ASKED = {field.name: getattr(TINY, field.name) for field in dataclasses.fields(TINY)}


def sweep(tmp_path, figure="ddpg-dense", side_by_side=True, **asked):
    args = CurveArguments(scale="smoke", side_by_side=side_by_side, **{**ASKED, **asked})
    return FIGURES[figure].sweep(args, tmp_path, Engine(whole_machine=side_by_side))


def test_the_seeds_of_a_task_and_method_are_a_group(tmp_path):
    asked = sweep(tmp_path)
    assert [piece.name for piece in asked.todo] == [
        f"Pendulum-v1/{method} (seeds 0, 1)" for method in FIGURES["ddpg-dense"].by_name
    ]
    assert "8 runs, 0 on disk, 4 groups to train" in asked.headline
    assert len(asked.runs) == 8


def test_agents_that_do_not_learn_from_replay_train_seed_by_seed(tmp_path):
    names = [piece.name for piece in sweep(tmp_path, "es").todo]
    assert sorted(names) == sorted(
        [
            "Pendulum-v1/ddpg (seeds 0, 1)",
            *(f"Pendulum-v1/{name} (seed {s})" for name in ("es", "trpo") for s in (0, 1)),
        ]
    )


def test_a_trained_group_is_ordinary_runs_that_are_not_trained_again(tmp_path):
    asked = sweep(tmp_path, explorations=("parameter",))
    (group,) = asked.todo
    assert group.train(SilentLine())
    assert group.result().startswith("return -")
    assert asked.write()
    for seed in (0, 1):
        folder = tmp_path / "ddpg-dense/Pendulum-v1/parameter" / f"seed-{seed}"
        assert json.loads((folder / "summary.json").read_text())["steps"] == 60
        assert RunDirectory(folder).config().seed == seed
    curves = [each.curve() for each in asked.runs]
    assert [[point.step for point in curve] for curve in curves] == [[30, 60]] * 2
    assert not np.array_equal(*[[point.value for point in curve] for curve in curves])
    assert sweep(tmp_path, explorations=("parameter",)).todo == []
    longer = sweep(tmp_path, explorations=("parameter",), steps=90).todo
    assert [piece.name for piece in longer] == ["Pendulum-v1/parameter (seeds 0, 1)"]
    for more in ({"seeds": 1}, {"side_by_side": False}):  # those that were trained together go on alone, too
        (alone,) = sweep(tmp_path, explorations=("parameter",), **{"steps": 90, **more}).todo
        assert alone.train(SilentLine())
        assert alone.stopped_after() == 90
    assert sweep(tmp_path, explorations=("parameter",), steps=90).todo == []
    assert main(f"evaluate {tmp_path}/ddpg-dense/Pendulum-v1/parameter/seed-1 --episodes 1".split()) == 0


def test_seeds_that_a_kill_left_at_different_steps_go_on_apart(tmp_path):
    (group,) = sweep(tmp_path, explorations=("parameter",)).todo
    assert group.train(SilentLine())
    shutil.rmtree(group.runs[1].directory.checkpoint)
    longer = sweep(tmp_path, explorations=("parameter",), steps=90)
    assert [piece.name for piece in longer.todo] == [f"Pendulum-v1/parameter (seed {seed})" for seed in (0, 1)]
    runs = longer.runs
    with pytest.raises(UsageError, match="at different steps: go on with each alone"):
        run_together([each.config for each in runs], [each.directory.path for each in runs], resume=True)
