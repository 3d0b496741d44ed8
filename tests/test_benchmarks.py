import os
import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import compiled
import loops
import side_by_side
from harness import Plan, Window, measure, ratio_table

CORE = {min(os.sched_getaffinity(0))}


def scribe(path: Path, name: str) -> Window:
    """A contender that notes who was asked, for how many steps, and on how many cores."""

    def window(steps: int) -> int:
        with path.open("a") as file:
            file.write(f"{name}:{steps}:{len(os.sched_getaffinity(0))} ")
        return steps

    return window


def broken() -> Window:
    raise RuntimeError("no such library")


def test_contenders_warm_up_and_then_take_turns_on_the_cores_they_were_given(tmp_path: Path):
    notes = tmp_path / "notes"
    rates = measure({name: partial(scribe, notes, name) for name in "ab"}, Plan(5, 3, 2), CORE)
    assert notes.read_text().split() == ["a:3:1", "b:3:1", "a:5:1", "b:5:1", "a:5:1", "b:5:1"]
    assert [len(values) for values in rates.values()] == [2, 2]


def test_a_contender_that_fails_ends_the_run_and_is_named():
    with pytest.raises(SystemExit, match="the broken one ended early"):
        measure({"the broken one": broken}, Plan(1, 1, 1), CORE)


def test_a_ratio_is_taken_round_by_round():
    table = ratio_table({"one core": {"a": [2.0, 30.0, 8.0], "b": [1.0, 10.0, 2.0]}}, [("a", "b")])
    assert list(table.columns[1].cells) == ["3.00 (2.00 to 4.00)"]


def test_seeds_side_by_side_warm_up_and_then_take_turns():
    asked: list[tuple[str, int]] = []
    windows = [lambda steps, name=name: asked.append((name, steps)) or steps for name in "ab"]
    taken = side_by_side.measure(windows, steps=5, warm_up=3, repeats=2)
    assert asked == [("a", 3), ("b", 3), ("a", 5), ("b", 5), ("a", 5), ("b", 5)]
    assert [len(own) for own in taken] == [2, 2]


def test_a_run_on_an_environment_in_jax_is_asked_for_so_many_steps_and_takes_hardly_more(monkeypatch):
    monkeypatch.setattr(loops, "STEPS", 50)
    call = loops.run("paramnoise/Chain-v0", "epsilon-greedy", length=5)
    assert 50 <= call() <= 200  # 8 steps, 32, 128: each piece is at most four times the last


@pytest.mark.parametrize("agent", compiled.ENVS)
def test_a_peer_learns_as_often_and_from_as_much_as_ours(agent: str):
    num_envs = 64
    ours, theirs = compiled.settings(agent, None, False, num_envs), compiled.rejax_settings(agent, num_envs)
    if agent in compiled.EPOCHS:
        rows = theirs["num_steps"] * num_envs
        size = ours.minibatch_size if agent == "ppo" else rows // ours.minibatches
        assert (ours.epochs, size) == (theirs["num_epochs"], rows // theirs["num_minibatches"])
        assert (ours.batch_size if agent == "ppo" else ours.rollout_steps * num_envs) == rows
    else:
        assert num_envs // ours.train_every * ours.train_steps == theirs["num_epochs"]
        assert all(getattr(ours, name) == theirs[name] for name in ("batch_size", "buffer_size"))
        assert compiled.PER_CALL % compiled.POLICY_DELAY == 0
    if agent in ("sac", "td3"):
        assert ours.tau == pytest.approx(1 - theirs["polyak"])
