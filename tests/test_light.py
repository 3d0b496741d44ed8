"""What imports little: the package itself, the first page of help, and all other help without a backend."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest

import paramnoise as pn
from paramnoise.envs.base import ENVS
from paramnoise.gymnasium_ids import IDS

INIT = ast.parse(Path(pn.__file__).read_text())


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def run_all(commands: list[str], then: str) -> str:
    """What a fresh interpreter prints that runs commands one after the other, and then some code."""
    run = f"""
import contextlib, sys
from paramnoise.cli import main
for words in {commands}:
    with contextlib.suppress(SystemExit):
        main(words.split())
"""
    return python(run + then)


def test_the_first_page_of_the_command_line_is_without_jax():
    then = "print(sorted({'jax', 'equinox', 'paramnoise.cli'} & set(sys.modules)))"
    assert run_all(["--version", "--help", "trian"], then).endswith("\n['paramnoise.cli']\n")


def test_help_errors_and_lists_start_no_backend():
    commands = [
        "train ddpg --help",
        "train ddpg --env Pendulum-v1 --stpes 3",
        "envs --search chain",
        "reproduce --help",
    ]
    then = "from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    assert run_all(commands, then).endswith("\nFalse\n")


def test_our_ids_are_known_to_gymnasium_once_the_package_is_imported():
    code = """
import sys, paramnoise, gymnasium
assert "jax" not in sys.modules
print(gymnasium.make("paramnoise/Chain-v0").observation_space.shape)
"""
    assert python(code) == "(20,)\n"


def test_the_ids_that_are_known_early_are_those_of_the_families():
    ours = {name for name in ENVS if name.startswith("paramnoise/")}
    assert ours == set(IDS)
    for name, (place, steps) in IDS.items():
        assert (gym.spec(name).entry_point, gym.spec(name).max_episode_steps) == (f"paramnoise.envs.{place}", steps)


def test_every_public_name_is_what_a_type_checker_takes_it_for():
    (checked,) = [node for node in INIT.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    seen = {alias.name: node.module for node in checked.body for alias in node.names}
    assert sorted(seen) == sorted(pn.__all__)
    for name, module in seen.items():
        assert getattr(pn, name) is getattr(importlib.import_module(module), name)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'SARSA'"):
        pn.SARSA  # noqa: B018
    assert {"DQN", "noise"} <= set(dir(pn))
