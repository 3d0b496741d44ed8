"""What a module outside the package registers works by name everywhere, as what the package registers."""

import contextlib
import copy
import io
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import paramnoise as pn
from paramnoise import plugins
from paramnoise.agents.base import AGENTS
from paramnoise.api import agent as agents
from paramnoise.cli import main
from paramnoise.envs.base import ENVS
from paramnoise.explorations import base as explorations
from paramnoise.figures.base import FIGURES

EXAMPLE = "plugin_example"
PLUGIN = f"--plugin {EXAMPLE}"
TRAIN = "train tiny-dqn --env Corridor"
REGISTRIES = (AGENTS, ENVS, FIGURES, explorations._REGISTERED, gym.registry, plugins._loaded, agents._CLASSES)
HINT = f"made with plug-in {EXAMPLE}: pass --plugin {EXAMPLE}"


@contextlib.contextmanager
def restored():
    """Afterwards everything is registered that was before, and nothing else."""
    before = [{name: copy.copy(entry) for name, entry in each.items()} for each in REGISTRIES]
    named, module, path = os.environ.get(plugins.VARIABLE), sys.modules.get(EXAMPLE), list(sys.path)
    try:
        yield
    finally:
        for registry, entries in zip(REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(entries)
        for where, name, value in ((os.environ, plugins.VARIABLE, named), (sys.modules, EXAMPLE, module)):
            where.pop(name, None)
            if value is not None:
                where[name] = value
        sys.path[:] = path


@pytest.fixture(scope="module")
def bare():
    """What is registered without a plug-in."""
    return [set(each) for each in REGISTRIES]


@pytest.fixture(scope="module")
def trained(bare, tmp_path_factory):
    """A run of the plug-in's agent on its environment, what it printed, and the plug-in in place."""
    path = tmp_path_factory.mktemp("trained") / "run"
    with restored():
        yield path, output(f"{PLUGIN} {TRAIN} --run-dir {path}")


@pytest.fixture
def without(trained, bare):
    """As in a process without the plug-in."""
    with restored():
        for registry, names in zip(REGISTRIES, bare, strict=True):
            for name in set(registry) - names:
                del registry[name]
        explorations._REGISTERED.pop("coin", None)
        os.environ.pop(plugins.VARIABLE)
        del sys.modules[EXAMPLE]
        yield
        assert EXAMPLE not in sys.modules


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def output(command: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(command.split()) == 0
    return printed.getvalue()


def shown_help(command: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    return " ".join(printed.getvalue().replace("│", " ").split())


def complaint(capsys, command: str) -> str:
    assert main(command.split()) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


def test_an_agent_trains_by_name_with_the_plug_in_s_exploration_and_the_environment_s_preset(trained):
    path, printed = trained
    assert printed.startswith("tiny-dqn on example/Corridor-v0, exploration coin, seed 0")
    assert "from the preset of example/Corridor-v0: gamma, heads" in printed
    held = json.loads((path / "config.json").read_text())
    assert held["plugins"] == [EXAMPLE]
    assert held["config"]["exploration"] == {"kind": "coin", "heads": 0.75}
    assert (held["config"]["agent"]["gamma"], held["config"]["agent"]["hidden_sizes"]) == (0.9, [8])
    assert held["config"]["steps"] == 40


def test_a_run_of_a_plug_in_goes_on(trained, tmp_path):
    shutil.copytree(trained[0], tmp_path / "run")
    assert "finished: 60 steps" in output(f"--plugin={EXAMPLE} {TRAIN} --steps 60 --resume --run-dir run")


def test_a_run_of_a_plug_in_is_evaluated(trained):
    printed = output(f"{PLUGIN} evaluate {trained[0]} --episodes 3")
    assert "tiny-dqn on example/Corridor-v0 after 40 steps" in printed
    assert "over 3 episodes" in printed


def test_a_registered_agent_has_a_class_without_writing_one(trained, tmp_path):
    agent = pn.load(trained[0])
    cls = pn.agent_class("tiny-dqn")
    assert type(agent) is cls
    assert (cls.__name__, cls.__module__) == ("TinyDqn", EXAMPLE)
    assert agent.learn(10, eval_episodes=1, progress=False).step == 50
    agent.save(tmp_path / "agent")
    assert cls.load(tmp_path / "agent").evaluate(2).returns == agent.evaluate(2).returns
    made = cls("Corridor", exploration="coin", seed=3, gamma=0.5)
    assert (made.config.env, made.config.seed, made.config.agent.gamma) == ("example/Corridor-v0", 3, 0.5)
    assert made.predict(np.zeros(1, np.float32))[0] in (0, 1)


def test_the_class_of_a_name_is_the_public_one_or_a_user_s_own(trained):
    assert pn.agent_class("dqn") is pn.DQN
    with restored():

        class Mine(pn.Agent):
            algorithm = "tiny-dqn"

        assert pn.agent_class("tiny-dqn") is Mine
        assert type(pn.load(trained[0])) is Mine
    with pytest.raises(pn.UsageError, match="did you mean tiny-dqn"):
        pn.agent_class("tiny-dnq")


def test_an_exploration_works_for_our_agents_by_name_and_as_an_object(trained):
    coin = sys.modules[EXAMPLE].Coin(heads=0.9)
    assert pn.DQN("CartPole-v1", exploration="coin").config.exploration == sys.modules[EXAMPLE].Coin()
    assert pn.DQN("CartPole-v1", exploration=coin).config.exploration.heads == 0.9
    with pytest.raises(pn.UsageError, match="'coin' does not fit ddpg"):
        pn.DDPG("Pendulum-v1", exploration="coin")


def test_an_environment_is_listed_with_its_line_of_help(trained):
    _, _, listed = output("envs").partition("Registered by plug-ins:\n")
    assert listed.splitlines()[0].split(maxsplit=1) == [
        "example/Corridor-v0",
        "a corridor of a plug-in; length:N sets its length",
    ]


def test_help_names_what_a_plug_in_registers(trained):
    assert (
        "tiny-dqn Train a tiny DQN. Explorations: none, epsilon-greedy, noisy, parameter, coin; by default coin."
        in (shown_help(f"{PLUGIN} train"))
    )
    assert "coin; by default epsilon-greedy" in shown_help(f"{PLUGIN} train dqn")
    assert "--heads" not in shown_help(f"{PLUGIN} train tiny-dqn")
    assert "Units of each hidden layer" in shown_help(f"{PLUGIN} train tiny-dqn")
    assert "corridor Reproduce corridor: learning curves" in shown_help(f"{PLUGIN} reproduce")


def test_a_figure_is_reproduced_by_worker_processes_that_know_the_plug_in(trained):
    printed = output(f"{PLUGIN} reproduce corridor --workers 1 --out here")
    assert "2 runs, 0 on disk" in printed
    results = Path("here/corridor/results.csv").read_text()
    assert {line.split(",")[2] for line in results.splitlines()[1:]} == {"coin", "epsilon-greedy"}
    held = json.loads(next(Path("here/corridor").rglob("coin/seed-0/config.json")).read_text())
    assert held["plugins"] == [EXAMPLE]
    assert output(f"{PLUGIN} plot corridor --out here").strip().endswith("corridor.png")


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("evaluate {}", "unknown agent 'tiny-dqn'"),
        (f"{TRAIN} --resume --run-dir {{}}", "unknown agent 'tiny-dqn'"),
        ("train dqn --env CartPole-v1 --exploration coin --resume --run-dir {}", "unknown exploration 'coin'"),
        ("train dqn --env CartPole-v1 --resume --run-dir {}", "unknown agent 'tiny-dqn'"),
    ],
)
def test_a_run_whose_plug_in_is_missing_says_which_and_imports_nothing(trained, capsys, command, named):
    line = complaint(capsys, command.format(trained[0]))
    assert named in line
    assert line.count(HINT) == 1


@pytest.mark.usefixtures("without")
def test_loading_names_a_missing_plug_in_and_not_what_cannot_be_a_module(trained, tmp_path):
    with pytest.raises(pn.UsageError, match=HINT):
        pn.load(trained[0])
    shutil.copytree(trained[0], tmp_path / "run")
    held = json.loads((tmp_path / "run/config.json").read_text())
    (tmp_path / "run/config.json").write_text(json.dumps({**held, "plugins": ["two\nlines", 3]}))
    with pytest.raises(pn.UsageError, match="unknown agent 'tiny-dqn'") as caught:
        pn.load(tmp_path / "run")
    assert "plug-in" not in str(caught.value)


@pytest.mark.usefixtures("without")
def test_an_environment_that_only_a_plug_in_knows_is_explained_too(trained, tmp_path):
    shutil.copytree(trained[0], tmp_path / "run")
    held = json.loads((tmp_path / "run/config.json").read_text())
    held["config"].update(algorithm="dqn", exploration={"kind": "none"})
    (tmp_path / "run/config.json").write_text(json.dumps(held))
    with pytest.raises(pn.UsageError, match=f"example/Corridor-v0.*{HINT}"):
        pn.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("--plugin", "needs the name of a module"),
        ("--plugin nowhere_to_be_found envs", "No module named 'nowhere_to_be_found'"),
        ("--plugin=broken envs", "'broken' cannot be imported: NameError: name 'nothing' is not defined"),
        ("envs --plugin broken", "--plugin comes before the command"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_one_line(capsys, command, named):
    Path("broken.py").write_text("import os\nnothing\n")
    with restored():
        line = complaint(capsys, command)
    assert named in line
    assert ("broken.py:2)" in line) == ("NameError" in named)


def test_a_plug_in_in_the_current_directory_is_found_by_option_and_by_variable():
    Path("mine.py").write_text("import paramnoise as pn\npn.register_env('mine/Task-v0', help='of ' + __name__)\n")
    command = [sys.executable, "-P", "-c", "import sys; from paramnoise.cli import main; sys.exit(main(sys.argv[1:]))"]
    for words, variable in ([["--plugin", "mine", "envs"], ""], [["envs"], "mine"]):
        environment = {**os.environ, plugins.VARIABLE: variable}
        done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=True)
        assert "of mine" in done.stdout
        assert done.stderr == ""


def test_an_installed_package_registers_by_its_entry_point_and_a_broken_one_is_a_warning(tmp_path, monkeypatch, caplog):
    for name, code in {"good_plugin": "good = True", "bad_plugin": "import nowhere_to_be_found"}.items():
        (tmp_path / f"{name}.py").write_text(code)
        facts = tmp_path / f"{name}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[paramnoise.plugins]\nmine = {name}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with restored(), caplog.at_level(logging.WARNING, "paramnoise"):
        plugins.load_known_plugins()
        assert plugins.loaded_plugins()[-1] == "good_plugin"
    (warning,) = caplog.messages
    assert "plug-in 'bad_plugin' cannot be imported: ModuleNotFoundError" in warning
    assert "named by the installed package bad_plugin" in warning
    assert "\n" not in warning


def test_a_broken_plug_in_of_the_variable_is_a_warning(monkeypatch, caplog):
    monkeypatch.setenv(plugins.VARIABLE, "nowhere_to_be_found")
    with restored(), caplog.at_level(logging.WARNING, "paramnoise"):
        plugins.load_known_plugins()
    assert [plugins.VARIABLE in message for message in caplog.messages] == [True]
