"""Runs: decided by their seed, undisturbed by evaluation, and resumed as if never interrupted."""

import contextlib
import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import jax
import numpy as np
import pytest

from paramnoise.agents import DQNConfig
from paramnoise.cli import main
from paramnoise.explorations import NoisyNet, ParameterNoise
from paramnoise.loops.evaluation import EVALUATION_STREAM
from paramnoise.loops.vector import episode_seed
from paramnoise.networks.policies import noise_free_actions
from paramnoise.runs import run as runs
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.directory import WALL_CLOCK_COLUMNS, RunDirectory
from paramnoise.runs.display import StopFlag, stop_on_signals
from paramnoise.runs.loop import make_loop
from paramnoise.validation import UsageError

# Two environments, and all that changes over a run: sigma, policies renewed by age, a schedule, a ring that wraps.
CONFIG = RunConfig(
    algorithm="dqn",
    env="CartPole-v1",
    agent=DQNConfig(hidden_sizes=(8,), batch_size=4, buffer_size=64, learning_starts=8, train_every=3, target_every=6),
    exploration=ParameterNoise(adapt_every=3, epsilon=0.1, max_age=9, anneal_steps=100),
    num_envs=2,
    steps=120,
    eval_every=40,
    eval_episodes=2,
)


def config(**changes) -> RunConfig:
    return dataclasses.replace(CONFIG, **changes)


def test_a_run_of_before_there_were_pools_goes_on():
    before = "6e44eadbb1dbef3136aa53794ae2df623b16b47deb00cd421e1fc25964eda19b"  # as that version computed it
    shared = {"exploration": "parameter", "exploration_settings": {"pool": 2}}
    assert make_config("dqn", "CartPole-v1", exploration="parameter").digest() == before
    assert make_config("dqn", "CartPole-v1", **shared).digest() != before


def progress(path: Path) -> list[dict[str, str]]:
    """The rows of a run, but for the columns of the clock."""
    return [{k: v for k, v in row.items() if k not in WALL_CLOCK_COLUMNS} for row in RunDirectory(path).rows()]


def arrays(path: Path) -> dict[str, np.ndarray]:
    (data,) = (path / "checkpoint").glob("arrays-*.npz")
    with np.load(data) as file:
        return dict(file)


def assert_same_arrays(path: Path, other: Path, parts: tuple[str, ...] = ("",)) -> None:
    one, two = ({k: v for k, v in arrays(p).items() if k.startswith(parts)} for p in (path, other))
    assert one.keys() == two.keys()
    assert len(one) > 5
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], err_msg=name, strict=True)


class StopAfter(StopFlag):
    """A signal that comes when it was asked for that often."""

    def __init__(self, questions: int):
        super().__init__()
        self.left = questions

    def __bool__(self) -> bool:
        self.left -= 1
        if self.left < 0:
            self.signal = signal.SIGTERM
        return super().__bool__()


def run_and_stop(monkeypatch, path: Path, vector_steps: int, **how) -> dict:
    with monkeypatch.context() as patch:
        patch.setattr(runs, "stop_on_signals", lambda: contextlib.nullcontext(StopAfter(vector_steps)))
        return runs.run(CONFIG, path, **how)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("uninterrupted")
    summary = runs.run(CONFIG, path)
    assert summary["status"] == "finished"
    return path


def test_a_run_leaves_the_rows_and_the_summary_of_the_contract(uninterrupted):
    rows, summary = RunDirectory(uninterrupted).rows(), RunDirectory(uninterrupted).summary()
    assert [int(row["step"]) for row in rows] == [40, 80, 120]
    ended = np.diff([0, *(int(row["episodes"]) for row in rows)])
    returns = np.array([float(row["train_return_mean"]) for row in rows])
    running = arrays(uninterrupted)["own/running_return"].sum()
    assert np.nansum(ended * returns) + running == pytest.approx(120)  # CartPole pays 1 a step
    assert running < 120
    assert float(rows[-1]["sigma"]) != CONFIG.exploration.sigma
    assert int(rows[-1]["adaptations"]) == 40
    assert summary["steps"] == 120
    assert summary["final_eval_return_mean"] == float(rows[-1]["eval_return_mean"])
    assert summary["best_eval_return_mean"] == max(float(row["eval_return_mean"]) for row in rows)
    assert float(rows[0]["wall_time"]) < float(rows[-1]["wall_time"]) <= summary["wall_time"]


def test_the_same_seed_gives_the_same_run(uninterrupted, tmp_path):
    runs.run(CONFIG, tmp_path)
    assert progress(tmp_path) == progress(uninterrupted)
    assert_same_arrays(tmp_path, uninterrupted)


def test_another_seed_gives_another_run(uninterrupted, tmp_path):
    runs.run(config(seed=1), tmp_path)
    assert progress(tmp_path) != progress(uninterrupted)


@pytest.mark.parametrize("vector_steps", [0, 1, 20, 33])
def test_an_interrupted_run_ends_as_the_uninterrupted_one(uninterrupted, tmp_path, monkeypatch, vector_steps):
    path = tmp_path / "run"
    summary = run_and_stop(monkeypatch, path, vector_steps)
    assert (summary["status"], summary["steps"]) == ("interrupted", 2 * vector_steps)
    assert len(progress(path)) == vector_steps // 20
    assert runs.run(CONFIG, path, resume=True)["status"] == "finished"
    assert progress(path) == progress(uninterrupted)
    assert_same_arrays(path, uninterrupted)
    assert "signal" not in RunDirectory(path).summary()


def test_a_run_with_all_extensions_of_dqn_is_resumed_as_if_never_interrupted(tmp_path, monkeypatch):
    extensions = {"double_q": True, "dueling": True, "n_step": 3, "prioritized": True, "noisy_sigma": 0.5}
    changed = config(agent=dataclasses.replace(CONFIG.agent, **extensions), exploration=NoisyNet())
    monkeypatch.setattr(sys.modules[__name__], "CONFIG", changed)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    runs.run(CONFIG, whole)
    for vector_steps in (19, 20):
        run_and_stop(monkeypatch, parts, vector_steps, resume=vector_steps > 19)
    runs.run(CONFIG, parts, resume=True)
    assert progress(parts) == progress(whole)
    assert_same_arrays(parts, whole)
    priorities = arrays(whole)["state/experience/priorities/levels/0"]
    assert len(np.unique(priorities[priorities > 0])) > 20  # those of errors, not all the first one
    assert 0.4 < float(progress(whole)[-1]["noise_scale"]) != 0.5  # it is learned


def test_a_run_may_be_interrupted_again_and_again(uninterrupted, tmp_path, monkeypatch):
    run_and_stop(monkeypatch, tmp_path, 11)
    assert run_and_stop(monkeypatch, tmp_path, 13, resume=True)["steps"] == 48
    runs.run(CONFIG, tmp_path, resume=True)
    assert progress(tmp_path) == progress(uninterrupted)
    assert_same_arrays(tmp_path, uninterrupted)


def test_rows_that_a_killed_run_wrote_after_its_checkpoint_are_written_once(uninterrupted, tmp_path, monkeypatch):
    run_and_stop(monkeypatch, tmp_path, 21)
    RunDirectory(tmp_path).append({**RunDirectory(tmp_path).rows()[0], "step": "80", "episodes": "999"})
    runs.run(CONFIG, tmp_path, resume=True)
    assert progress(tmp_path) == progress(uninterrupted)


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_anew(uninterrupted, tmp_path):
    RunDirectory(tmp_path).claim(CONFIG, resume=False)
    runs.run(CONFIG, tmp_path, resume=True)
    assert_same_arrays(tmp_path, uninterrupted)


def test_a_finished_run_goes_on_to_a_later_end(uninterrupted, tmp_path):
    runs.run(config(steps=80), tmp_path)
    runs.run(CONFIG, tmp_path, resume=True)
    assert progress(tmp_path) == progress(uninterrupted)
    assert_same_arrays(tmp_path, uninterrupted)


def test_a_damaged_checkpoint_is_not_resumed(tmp_path, monkeypatch):
    run_and_stop(monkeypatch, tmp_path, 3)
    (data,) = (tmp_path / "checkpoint").glob("arrays-*.npz")
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(UsageError, match="checksum"):
        runs.run(CONFIG, tmp_path, resume=True)


def test_evaluation_does_not_change_training(uninterrupted, tmp_path):
    runs.run(config(eval_every=6, eval_episodes=3), tmp_path)
    assert len(progress(tmp_path)) == 20
    trained = ("state/learner", "state/exploration", "state/experience", "state/key", "state/step", "own/env")
    assert_same_arrays(tmp_path, uninterrupted, trained)


def test_evaluation_is_that_of_the_clean_policy_on_seeds_of_its_own():
    noisy = config(exploration=dataclasses.replace(CONFIG.exploration, sigma=30.0))
    loop = make_loop([noisy], "CartPole-v1")
    ((row,),) = loop.run(40, eval_every=40, eval_episodes=2)
    returns = []
    for i in range(2):
        env, ended, total = gym.make("CartPole-v1"), False, 0.0
        obs, _ = env.reset(seed=episode_seed(EVALUATION_STREAM + 40, i, 0))
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(int(noise_free_actions(loop.policy(), obs[None])[0]))
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    assert row["eval_return_mean"] == np.mean(returns)
    assert row["eval_return_median"] == np.median(returns)
    clean, acting = (jax.tree.leaves(policy) for policy in (loop.policy(), loop.state().exploration.policies))
    assert max(float(np.abs(a - c).max()) for a, c in zip(acting, clean, strict=True)) > 1
    np.testing.assert_array_equal(jax.tree.leaves(loop.state().learner.network.behaviour)[0], clean[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_the_flag_and_the_second_is_for_the_handler_before(number):
    heard = []
    outer = signal.signal(number, lambda *_: heard.append(number))
    try:
        mine = signal.getsignal(number)
        with stop_on_signals() as stop:
            assert not stop
            signal.raise_signal(number)
            assert stop
            assert stop.signal == number
            assert not heard
            signal.raise_signal(number)
            assert heard == [number]
        assert signal.getsignal(number) is mine
    finally:
        signal.signal(number, outer)


def test_a_process_that_is_terminated_saves_and_can_be_resumed(tmp_path):
    words = (
        "train dqn --env CartPole-v1 --num-envs 2 --hidden-sizes 8 --batch-size 4 --buffer-size 64 --learning-starts 8"
    )
    words += " --train-every 3 --target-every 6 --steps 3000 --eval-every 300 --eval-episodes 2"
    words += " --exploration parameter adapt_every:3 epsilon:0.1 max_age:9 anneal_steps:100 --run-dir"
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "paramnoise", *words.split(), str(killed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (killed / "progress.csv").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + signal.SIGTERM, "")
    stopped_at = RunDirectory(killed).summary()["steps"]
    assert f"interrupted at step {stopped_at:,}" in out
    assert 300 <= stopped_at < 3000
    assert main([*words.split(), str(killed), "--resume"]) == 0
    assert main([*words.split(), str(whole)]) == 0
    assert progress(killed) == progress(whole)
    assert_same_arrays(killed, whole)
