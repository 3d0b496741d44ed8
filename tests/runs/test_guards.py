"""Parameters that are not finite end a run with one line, and never reach a checkpoint."""

from pathlib import Path

import jax
import numpy as np
import pytest
from test_run import CONFIG, assert_same_arrays, progress, run_and_stop

import paramnoise as pn
from paramnoise.cli import main
from paramnoise.runs import files
from paramnoise.runs import run as runs
from paramnoise.runs.directory import RunDirectory
from paramnoise.validation import RunError


def poison(loop) -> None:
    """Makes one weight infinite, as a last train step could, after which no loss was measured."""
    state, own = loop.snapshot()
    leaves, structure = jax.tree.flatten(state)
    index = [leaf.ndim for leaf in leaves].index(2)
    leaves[index] = leaves[index].at[0, 0].set(np.inf)
    loop.restore(jax.tree.unflatten(structure, leaves), own)


def poisons_at(monkeypatch, step: int) -> None:
    """From now on, loops are poisoned just before their row of that step."""
    make = runs.make_loop

    def make_poisoned(configs, env):
        loop = make(configs, env)
        run = loop.run

        def poisoned(*args, **kwargs):
            for rows in run(*args, **kwargs):
                if loop.step == step:
                    poison(loop)
                yield rows

        loop.run = poisoned
        return loop

    monkeypatch.setattr(runs, "make_loop", make_poisoned)


def test_a_run_with_an_infinite_weight_fails_and_goes_on_from_its_last_good_checkpoint(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        poisons_at(patch, 80)
        with pytest.raises(RunError, match=r"^network/\S*weight is not finite by step 80: ") as caught:
            runs.run(CONFIG, tmp_path / "run", checkpoint_seconds=0)
    summary = RunDirectory(tmp_path / "run").summary()
    assert (summary["status"], summary["steps"], summary["reason"]) == ("failed", 80, str(caught.value))
    assert [row["step"] for row in progress(tmp_path / "run")] == ["40"]
    runs.run(CONFIG, tmp_path / "run", resume=True)
    runs.run(CONFIG, tmp_path / "sound")
    assert progress(tmp_path / "run") == progress(tmp_path / "sound")
    assert_same_arrays(tmp_path / "run", tmp_path / "sound")
    assert "reason" not in RunDirectory(tmp_path / "run").summary()


def test_the_command_prints_one_line_and_exits_with_1(tmp_path, monkeypatch, capsys):
    poisons_at(monkeypatch, 40)
    words = "train dqn --env CartPole-v1 --hidden-sizes 8 --batch-size 4 --buffer-size 64 --learning-starts 8"
    words += " --target-every 4 --steps 40 --eval-episodes 2"
    assert main([*words.split(), "--run-dir", str(tmp_path / "run")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "not finite by step 40" in line
    assert not (tmp_path / "run/checkpoint").exists()


def test_an_agent_with_an_infinite_weight_is_not_saved_over_a_good_one(tmp_path):
    agent = pn.DQN("CartPole-v1", hidden_sizes=(8,), batch_size=4, buffer_size=64)
    agent.save(tmp_path)
    before = {file: file.read_bytes() for file in Path(tmp_path).rglob("*") if file.is_file()}
    poison(agent._loop)
    with pytest.raises(RunError, match="not finite by step 0"):
        agent.save(tmp_path)
    assert {file: file.read_bytes() for file in Path(tmp_path).rglob("*") if file.is_file()} == before


def test_checkpoints_are_written_when_they_are_due_and_at_the_end(tmp_path, monkeypatch):
    saved = []
    stage = files.stage_loop
    monkeypatch.setattr(files, "stage_loop", lambda loop, *args: (saved.append(loop.step), stage(loop, *args))[1])
    runs.run(CONFIG, tmp_path / "rarely", checkpoint_seconds=1_000)
    assert saved == [120]
    saved.clear()
    runs.run(CONFIG, tmp_path / "often", checkpoint_seconds=0)
    assert saved == [40, 80, 120]
    saved.clear()
    run_and_stop(monkeypatch, tmp_path / "stopped", 33, checkpoint_seconds=1_000)
    assert saved == [66]
