"""Where a sweep runs: what is asked for, and what is refused before anything starts."""

import importlib.util
from pathlib import Path

import pytest

from paramnoise.cli import main
from paramnoise.parallel import sweep
from paramnoise.parallel.engine import Engine
from paramnoise.parallel.process import cores
from paramnoise.validation import UsageError


def test_worker_processes_are_the_default_and_as_many_as_cores():
    run_all = Engine().connect()
    assert (run_all.func, run_all.keywords) == (sweep.run_all, {"workers": cores(), "whole_machine": False})
    assert str(Engine(workers=3)) == "3 workers"
    assert Engine().place(Path("runs")) == Path("runs")


@pytest.mark.parametrize("command", ["reproduce ddpg-sparse", "reproduce chain", "train es --env CartPole-v1"])
def test_without_the_extra_one_line_says_how_to_install_it(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find_spec(name))
    assert main([*command.split(), "--engine", "ray"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install 'paramnoise[ray]'" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["reproduce ddpg-sparse", "reproduce chain", "train es --env CartPole-v1"])
def test_an_address_of_a_cluster_without_its_engine_is_refused(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--ray-address", "auto"]) == 2
    assert "auto" in capsys.readouterr().err


def test_workers_are_at_least_one():
    with pytest.raises(UsageError, match="workers must be at least 1, not 0"):
        Engine(workers=0)
