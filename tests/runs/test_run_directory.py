"""The run directory: whose it is, what is never overwritten, and the order of columns."""

import dataclasses
import importlib.metadata
import json
from pathlib import Path

import numpy as np
import pytest

from paramnoise import __version__
from paramnoise.explorations import BootstrapHead, EpsilonGreedy, NoNoise, ParameterNoise
from paramnoise.runs import checkpoint
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.directory import RunDirectory
from paramnoise.validation import UsageError


def config(**changes) -> RunConfig:
    return make_config("dqn", "CartPole-v1", **{"exploration": ParameterNoise(delta=0.1), "steps": 100, **changes})


def row(step: int, **more) -> dict:
    return {"wall_time": 0.5, "step": step, "q_loss": 0.25, "sigma": 0.01, "eval_return_mean": 9.0, **more}


def files(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.fixture
def held(tmp_path) -> RunDirectory:
    """A directory that holds a run, with progress."""
    directory = RunDirectory(tmp_path / "run")
    directory.claim(config(), resume=False)
    directory.append(row(50))
    directory.write_summary({"status": "interrupted"})
    return directory


def refusal(directory: RunDirectory, wanted: RunConfig, resume: bool) -> str:
    """The message with which a claim is refused, once it is sure that no file changed."""
    before = files(directory.path.parent)
    with pytest.raises(UsageError) as caught:
        directory.claim(wanted, resume)
    assert files(directory.path.parent) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_new_directory_is_made_with_the_config_and_the_versions(tmp_path):
    directory = RunDirectory(tmp_path / "deep" / "run")
    directory.claim(config(), resume=False)
    assert directory.config() == config()
    written = json.loads((directory.path / "config.json").read_text())
    assert {"paramnoise", "jax", "gymnasium", "numpy", "python"} <= set(written["versions"])
    assert "git_commit" in written


def test_sources_on_the_path_that_are_not_installed_write_directories_and_checkpoints(tmp_path, monkeypatch):
    found = importlib.metadata.version

    def version(package: str) -> str:
        if package == "paramnoise":
            raise importlib.metadata.PackageNotFoundError(package)
        return found(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    directory = RunDirectory(tmp_path / "run")
    directory.claim(config(), resume=False)
    checkpoint.save(directory.checkpoint, {"weights": np.ones(2)}, {}, {"step": 0})
    assert json.loads((directory.path / "config.json").read_text())["versions"]["paramnoise"] == __version__
    assert json.loads((directory.checkpoint / checkpoint.INDEX).read_text())["made_by"] == __version__


def test_an_empty_directory_is_taken(tmp_path):
    RunDirectory(tmp_path).claim(config(), resume=False)
    assert (tmp_path / "config.json").exists()


def test_the_same_config_is_taken_again_only_to_resume(held):
    assert "--resume" in refusal(held, config(), resume=False)
    held.claim(config(), resume=True)
    assert [r["step"] for r in held.rows()] == ["50"]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "--seed is 0 there and 1 here"),
        ({"num_envs": 2}, "--num-envs is 4 there and 2 here"),
        ({"agent": {"gamma": 0.5}}, "--gamma is 0.99 there and 0.5 here"),
        ({"exploration": ParameterNoise(delta=0.2)}, "delta of --exploration is 0.1 there and 0.2 here"),
        ({"exploration": EpsilonGreedy()}, ": --exploration is parameter there and epsilon-greedy here"),
        (
            {"env_kwargs": {"sutton_barto_reward": True}},
            "--env-kwargs is {} there and {'sutton_barto_reward': True} here",
        ),
    ],
)
def test_another_config_is_refused_and_the_differing_field_named(held, changes, named, resume):
    assert refusal(held, config(**changes), resume).endswith(named)


def test_fields_that_agree_are_not_named(held):
    message = refusal(held, config(seed=1), resume=True)
    assert not any(name in message for name in ("gamma", "delta", "num_envs", "steps"))


@pytest.mark.parametrize("resume", [False, True])
def test_a_foreign_directory_is_refused(tmp_path, resume):
    foreign = tmp_path / "thesis"
    foreign.mkdir()
    (foreign / "chapter.txt").write_text("precious")
    assert str(foreign) in refusal(RunDirectory(foreign), config(), resume)


@pytest.mark.parametrize("resume", [False, True])
def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path, resume):
    (tmp_path / "run").write_text("precious")
    assert str(tmp_path / "run") in refusal(RunDirectory(tmp_path / "run"), config(), resume)


def test_where_there_is_nothing_to_resume_nothing_is_made(tmp_path):
    assert "nothing to resume" in refusal(RunDirectory(tmp_path / "run"), config(), resume=True)
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_may_go_on_for_longer(held):
    held.claim(config(steps=500), resume=True)
    assert held.config().steps == 500
    assert len(held.rows()) == 1


def test_a_run_whose_environment_takes_a_tuple_can_be_resumed(tmp_path):
    wanted = make_config("dqn", "FrozenLake-v1", {"desc": ("SF", "FG")})
    RunDirectory(tmp_path).claim(wanted, resume=False)
    RunDirectory(tmp_path).claim(wanted, resume=True)
    assert RunDirectory(tmp_path).config().env_kwargs == {"desc": ["SF", "FG"]}


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", '{"config": "text"}', '{"config": {"algorithm": "dqn", "agent": null, "exploration": null}}'],
)
def test_a_damaged_config_is_refused(held, content):
    (held.path / "config.json").write_text(content)
    refusal(held, config(), resume=True)


def test_columns_are_in_the_order_of_the_contract(held):
    first = "step,episodes,eval_return_mean,eval_return_median,train_return_mean,sigma,distance,delta"
    header, *lines = (held.path / "progress.csv").read_text().splitlines()
    assert header == f"{first},q_loss,steps_per_second,wall_time"
    assert lines == ["50,,9.0,,,0.01,,,0.25,,0.5"]


def test_rows_are_appended_below_one_header(held):
    held.append(row(100))
    held.append(row(150))
    assert [r["step"] for r in held.rows()] == ["50", "100", "150"]
    assert (held.path / "progress.csv").read_text().count("step,episodes") == 1


def test_a_directory_without_progress_has_no_rows(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.forget_after(10)
    assert directory.rows() == []
    assert directory.summary() is None


@pytest.mark.parametrize(
    ("step", "left"), [(49, []), (50, ["50"]), (120, ["50", "100"]), (1_000, ["50", "100", "150"])]
)
def test_rows_after_a_checkpoint_are_forgotten_and_the_others_kept_as_they_were(held, step, left):
    for later in (100, 150):
        held.append(row(later))
    before = held.rows()
    held.forget_after(step)
    assert held.rows() == before[: len(left)]
    assert [r["step"] for r in held.rows()] == left


def test_a_row_can_be_appended_after_all_were_forgotten(held):
    held.forget_after(0)
    held.append(row(20))
    assert [r["step"] for r in held.rows()] == ["20"]


def test_writing_rows_replaces_all_of_them(held):
    held.write_rows([row(1), row(2)])
    assert [r["step"] for r in held.rows()] == ["1", "2"]
    assert [file.name for file in held.path.iterdir() if "progress" in file.name] == ["progress.csv"]


@pytest.mark.parametrize(
    "original",
    [
        config(),
        config(exploration=ParameterNoise(max_age=3, epsilon=0.01), seed=4, num_envs=3, eval_every=7, eval_episodes=2),
        config(exploration=NoNoise(), agent={"hidden_sizes": (3, 5), "policy_head": True}),
        config(exploration="epsilon-greedy", exploration_settings={"anneal_steps": 9}),
        make_config("bootstrapped-dqn", "paramnoise/Chain-v0", {"length": 7}, exploration=BootstrapHead()),
    ],
)
def test_a_config_survives_json(original):
    text = json.dumps(original.to_json())
    assert RunConfig.from_json(json.loads(text)) == original
    assert set(json.loads(text)) == {field.name for field in dataclasses.fields(RunConfig)}


def test_a_config_of_before_a_setting_was_there_has_the_setting_s_default(held):
    path = held.path / "config.json"
    written = json.loads(path.read_text())
    assert written["config"].pop("terminal_time_limits") is False
    path.write_text(json.dumps(written))
    assert held.config() == config()
    held.claim(config(), resume=True)
    assert "terminal-time-limits" in refusal(held, config(terminal_time_limits=True), resume=True)


@pytest.mark.parametrize("change", [{"algorithm": "sarsa"}, {"steps": 0}, {"bogus": 1}, {"agent": {"bogus": 1}}])
def test_json_that_is_no_config_is_refused(change):
    with pytest.raises(UsageError):
        RunConfig.from_json({**config().to_json(), **change})


@pytest.mark.parametrize("kept", range(0, 200, 7))
def test_a_row_that_was_cut_short_by_a_kill_is_no_row(held, kept):
    whole = (held.path / "progress.csv").read_text()
    held.append(row(120, sigma=0.02))
    longer = (held.path / "progress.csv").read_text()
    (held.path / "progress.csv").write_text(longer[: min(len(whole) + kept, len(longer) - 1)])
    assert [r["step"] for r in held.rows()] == ["50"]
    held.forget_after(120)
    assert (held.path / "progress.csv").read_text() == whole
    held.append(row(120, sigma=0.02))
    assert (held.path / "progress.csv").read_text() == longer


def test_a_header_that_was_cut_short_is_written_anew(held):
    whole = (held.path / "progress.csv").read_text()
    (held.path / "progress.csv").write_text("step,epis")
    held.forget_after(120)
    held.append(row(50))
    assert (held.path / "progress.csv").read_text() == whole


def test_a_resumed_run_has_no_summary_until_it_ends(held):
    held.forget_after(50)
    assert held.summary() is None
    assert len(held.rows()) == 1


def test_a_directory_whose_first_start_was_killed_is_taken(tmp_path):
    (tmp_path / ".config.json.tmp").write_text("{")
    RunDirectory(tmp_path).claim(config(), resume=False)
    assert RunDirectory(tmp_path).config() == config()
