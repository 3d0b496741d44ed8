"""Nothing lost, nobody let in: hostile and damaged run directories, two writers, jobs that are put back."""

import json
import os
import subprocess
import sys

import pytest
from test_api import QUIET, tiny

import paramnoise as pn
from paramnoise.cli import main
from paramnoise.runs import lock
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import RunDirectory
from paramnoise.validation import UsageError


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    tiny().learn(40, log_dir=path, eval_every=20, **QUIET)
    return path


@pytest.fixture
def run(finished, tmp_path):
    subprocess.run(["cp", "-r", finished, tmp_path / "run"], check=True)
    return tmp_path / "run"


def refused(*arguments, capsys):
    assert main([*map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("command", ["evaluate", "resume", "delta"])
def test_a_stored_id_that_names_a_module_is_not_made(command, run, capsys, monkeypatch):
    (run / "payload.py").write_text("raise SystemExit('the payload ran')")
    monkeypatch.chdir(run)
    monkeypatch.syspath_prepend(str(run))
    held = json.loads((run / "config.json").read_text())
    held["config"]["env"] = "payload:Env-v0"
    (run / "config.json").write_text(json.dumps(held))
    assert "importing that would run its code" in refused(command, run, capsys=capsys)
    with pytest.raises(UsageError, match="name it yourself"):
        pn.load(run)
    with pytest.raises(SystemExit, match="the payload ran"):  # who names it trusts it
        pn.load(run, env="payload:Env-v0")


def test_two_processes_never_write_one_run(run, capsys):
    hold = f"with only_writer(Path({str(run)!r})): print(1, flush=True); input()"
    code = f"from pathlib import Path; from paramnoise.runs.lock import only_writer\n{hold}"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        before = (run / "progress.csv").read_bytes()
        error = refused("resume", run, "--steps", 60, capsys=capsys)
        assert f"is being written by process {other.pid} on " in error
        with pytest.raises(UsageError, match="is being written by process"):
            pn.load(run).learn(20, log_dir=run, eval_every=20, **QUIET)
        assert (run / "progress.csv").read_bytes() == before
        other.kill()
    with lock.only_writer(run):  # a killed process holds nothing
        pass


def test_what_a_link_points_to_is_never_written(run, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in (".config.json.tmp", ".summary.json.tmp"):
        (run / name).symlink_to(precious)
    agent = pn.load(run)
    agent.learn(20, log_dir=run, eval_every=20, **QUIET)
    write_atomically(run / "summary.json", lambda file: file.write(b"{}"))
    assert precious.read_text() == "precious"
    (run / "progress.csv").unlink()
    (run / "progress.csv").symlink_to(precious)
    with pytest.raises((OSError, UsageError)):
        agent.learn(20, log_dir=run, eval_every=20, **QUIET)
    assert precious.read_text() == "precious"


def damage_row(run):
    text = (run / "progress.csv").read_text()
    (run / "progress.csv").write_text(text.replace("\n20,", "\n21,"))


def delete_rows(run):
    (run / "progress.csv").unlink()


def double_rows(run):
    text = (run / "progress.csv").read_text()
    (run / "progress.csv").write_text(text + text.split("\n", 1)[1])


def change_config(run):
    text = (run / "config.json").read_text()
    assert '"gamma": 0.99' in text
    (run / "config.json").write_text(text.replace('"gamma": 0.99', '"gamma": 0.98'))


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (damage_row, "progress.csv"),
        (delete_rows, "progress.csv"),
        (double_rows, "progress.csv"),
        (change_config, "config.json"),
    ],
)
def test_a_file_that_the_checkpoint_does_not_know_is_refused_and_nothing_is_written(damage, name, run, capsys):
    damage(run)
    before = {file: file.read_bytes() for file in run.rglob("*.*") if file.is_file()}
    error = refused("resume", run, "--steps", 60, capsys=capsys)
    assert f"{name} is damaged" in error
    assert f"{name} is damaged" in refused("delta", run, capsys=capsys)
    with pytest.raises(UsageError, match="is damaged"):
        pn.load(run)
    assert {file: file.read_bytes() for file in run.rglob("*.*") if file.is_file() and file.name != ".lock"} == {
        file: content for file, content in before.items() if file.name != ".lock"
    }


def test_a_job_that_is_put_back_needs_one_command(tmp_path, capsys):
    tiny_words = ["--hidden-sizes", "8", "--batch-size", "4", "--learning-starts", "8", "--target-every", "4"]
    words = ["train", "dqn", "--env", "CartPole-v1", *tiny_words, "--eval-every", "20", "--eval-episodes", "2"]
    job = [*words, "--run-dir", str(tmp_path / "run"), "--resume-or-start"]
    assert main([*job, "--steps", "40"]) == 0
    assert main([*job, "--steps", "60"]) == 0
    assert [row["step"] for row in RunDirectory(tmp_path / "run").rows()] == ["20", "40", "60"]
    assert os.path.exists(tmp_path / "run" / "best")
