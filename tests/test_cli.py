"""Every command runs; every bad input is one line on stderr, status 2, and nothing written."""

import contextlib
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import paramnoise as pn
from paramnoise.agents.base import Spaces
from paramnoise.cli import main
from paramnoise.envs.base import Preset, preset
from paramnoise.runs.config import make_config
from paramnoise.runs.display import settings_lines

SMALL = "--hidden-sizes 8 --batch-size 4 --buffer-size 64 --learning-starts 8 --target-every 4"
TINY = f"{SMALL} --steps 40 --eval-every 20 --eval-episodes 2"
TRAIN = f"train dqn --env CartPole-v1 {TINY}"
REPRODUCE = "reproduce chain --scale smoke --lengths 5 --episodes 20 --seeds 1 --workers 1 --out"


def files(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def output(*words: str) -> str:
    """What a command prints, once it is sure that it succeeded."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([part for word in words for part in word.split()]) == 0
    return printed.getvalue()


def complaint(capsys, command: str) -> str:
    """The one line with which a command is refused, once it is sure that nothing was written."""
    before = files(Path.cwd())
    status = main(command.split())
    printed = capsys.readouterr()
    assert status == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("paramnoise: error: ")
    assert files(Path.cwd()) == before
    return printed.err


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("trained") / "run"
    return path, output(TRAIN, f"--run-dir {path}")


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("reproduced")
    return path, output(REPRODUCE, str(path))


def test_training_prints_its_settings_and_its_progress(trained):
    path, printed = trained
    lines = printed.splitlines()
    assert lines[0] == "dqn on CartPole-v1, exploration epsilon-greedy, seed 0"
    assert all(text in printed for text in ("hidden_sizes [8]", "epsilon_start", "steps 40", str(path)))
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["20", "40"]
    assert lines[-1].startswith("finished: 40 steps")
    assert ("from the preset of CartPole-v1" in printed) == (preset("CartPole-v1", {}) != Preset())


def test_training_leaves_a_run_directory(trained):
    path, _ = trained
    assert {file.name for file in path.iterdir()} == {
        "config.json",
        "progress.csv",
        "summary.json",
        "checkpoint",
        "best",
        ".lock",
    }
    assert json.loads((path / "summary.json").read_text())["status"] == "finished"


def test_bootstrapped_dqn_trains_with_its_own_exploration():
    printed = output(f"train bootstrapped-dqn --env CartPole-v1 {TINY} --num-heads 2 --run-dir run")
    assert "exploration bootstrap" in printed
    assert "num_heads 2" in printed
    assert "finished: 40 steps" in printed


def test_an_exploration_takes_fields_by_name():
    output(TRAIN, "--num-envs 2 --run-dir run --exploration parameter delta:0.07 max_age:None")
    held = json.loads(Path("run/config.json").read_text())["config"]
    assert held["exploration"]["kind"] == "parameter"
    assert held["exploration"]["delta"] == 0.07
    assert held["exploration"]["max_age"] is None


def test_noisy_layers_come_with_their_exploration_and_train_from_the_command_line():
    printed = output(TRAIN, "--exploration noisy --run-dir run")
    assert "exploration noisy" in printed
    assert "noisy_sigma 0.5" in printed
    assert json.loads(Path("run/config.json").read_text())["config"]["agent"]["noisy_sigma"] == 0.5
    assert "noise_scale" in Path("run/progress.csv").read_text().splitlines()[0]


def test_time_limits_are_terminal_if_the_command_says_so():
    assert "terminal_time_limits True" in output(TRAIN, "--terminal-time-limits --run-dir run")
    assert json.loads(Path("run/config.json").read_text())["config"]["terminal_time_limits"] is True


@pytest.mark.parametrize(("env", "option"), [("paramnoise/Chain-v0", "--env-kwargs"), ("Chain", "--env_kwargs")])
def test_the_preset_of_a_task_applies_is_printed_and_can_be_overridden(env, option):
    words = "--hidden-sizes 8 --batch-size 4 --buffer-size 64 --steps 20 --run-dir run"
    printed = output(f"train dqn --env {env} {option} length:5 {words}")
    assert "from the preset of paramnoise/Chain-v0" in printed
    held = json.loads(Path("run/config.json").read_text())["config"]
    assert held["env"] == "paramnoise/Chain-v0"
    assert held["env_kwargs"] == {"length": 5}
    assert held["agent"]["learning_starts"] == 5 * 14
    assert held["agent"]["gamma"] == 0.999
    assert held["agent"]["hidden_sizes"] == [8]
    assert held["exploration"]["anneal_steps"] == 100 * 14
    assert held["eval_every"] == 50 * 14


def test_the_default_run_directory_is_numbered_on_a_second_run_and_resumed_last():
    base = Path("runs/dqn/CartPole-v1/epsilon-greedy")
    output(TRAIN)
    assert [path.name for path in base.iterdir()] == ["seed-0"]
    first = files(base / "seed-0")
    output(TRAIN)
    assert files(base / "seed-0") == first
    assert sorted(path.name for path in base.iterdir()) == ["seed-0", "seed-0-2"]
    printed = output(TRAIN.replace("--steps 40", "--steps 60"), "--resume")
    assert printed.splitlines()[-1].endswith("seed-0-2")
    assert "finished: 60 steps" in printed
    assert sorted(path.name for path in base.iterdir()) == ["seed-0", "seed-0-2"]


def test_resume_goes_on_with_the_settings_of_the_directory(trained, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(trained[0], path)
    held = json.loads((path / "config.json").read_text())["config"]
    printed = output(f"resume {path} --steps 60")
    assert "finished: 60 steps" in printed
    assert json.loads((path / "config.json").read_text())["config"] == {**held, "steps": 60}
    assert [row.split(",")[0] for row in (path / "progress.csv").read_text().splitlines()[1:]] == ["20", "40", "60"]


def test_settings_are_shown_where_they_apply_with_the_values_that_they_come_to(trained):
    _, vectors = trained
    assert not any(name in vectors for name in ("convolutions", "precision", "replay_on"))
    pixels = make_config("dqn", "Pong", exploration="parameter", replay_on="auto")
    agent, exploration, run = settings_lines(pixels, Spaces((4, 84, 84), 6, is_discrete=True))[1:4]
    assert "convolutions [(32, 8, 4)" in agent
    assert "auto" not in agent + run
    assert "replay_on host" in run
    assert "delta 1.79 to " in exploration  # log 6: all actions at random
    continuous = make_config("ddpg", "Pendulum-v1", exploration="parameter")
    exploration = settings_lines(continuous, Spaces((3,), 1, is_discrete=False))[2]
    assert "delta 0.2, sigma 0.2" in exploration
    assert "anneal_steps" not in exploration


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("train ddpg", ["gaussian: Independent Gaussian noise", "theta:0.15", "delta:None", "How strongly the noise"]),
        ("train ddpg --env SparseMountainCar", ["delta:0.6", "adapt_every:50"]),
        ("train trpo", ["scaling:boundary", "max_backtracks:60"]),
        ("train dqn", ["noisy: The noise of the network's own noisy layers", "--noisy-sigma", "--n-step", "--dueling"]),
        ("train dqn --exploration noisy", ["(default: 0.5)"]),
        ("train ppo", ["scaling:adaptive", "adapt_every:50"]),
    ],
)
def test_the_help_of_an_agent_has_the_settings_of_its_explorations(capsys, command, named):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert [text for text in named if text not in printed] == []


def test_an_unknown_exploration_is_answered_with_those_that_fit_the_agent(capsys):
    assert "choose from none, epsilon-greedy, noisy, parameter\n" in complaint(capsys, f"{TRAIN} --exploration wander")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("resume run --steps 1e2", "--steps takes {None}|INT: '1e2' is none of these; see paramnoise resume --help"),
        (f"{TRAIN} --optimizer foo", "unknown optimizer 'foo': none is registered"),
        (f"{TRAIN} --exploration parameter delta:0.1 delta:0.2", "--exploration has delta twice"),
    ],
)
def test_a_wrong_word_is_answered_with_what_is_wrong_with_it(capsys, command, words):
    assert complaint(capsys, command) == f"paramnoise: error: {words}\n"


def test_what_noise_does_to_a_policy_is_a_table_by_sigma(trained):
    path, _ = trained
    before = files(path)
    printed = output(f"delta {path} --sigmas 0.001 1 --states 7").splitlines()
    assert printed[0].startswith("dqn on CartPole-v1 after 40 steps, in 7 states")
    assert printed[1].split() == ["sigma", "distance", "quartiles", "as", "epsilon", "actions", "changed"]
    small, large = (line.split() for line in printed[2:4])
    assert (small[0], large[0]) == ("0.001", "1")
    assert float(small[1]) < float(large[1])
    assert files(path) == before


def test_runs_are_drawn_from_their_directories(trained):
    assert output(f"plot {trained[0]} {trained[0].parent} --out deep/two.png").strip() == "deep/two.png"
    assert Path("deep/two.png").read_bytes().startswith(b"\x89PNG")


def test_a_search_among_environments_looks_at_ids_and_help():
    found = [line.split()[0] for line in output("envs --search CHEETAH").splitlines()]
    assert found == ["HalfCheetah-v4", "paramnoise/SparseHalfCheetah-v0", "brax/halfcheetah", "HalfCheetah-v5"]
    assert "paramnoise/Chain-v0" in output("envs --search chain")
    assert "CartPole" not in output("envs --search chain")


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"paramnoise {pn.__version__}\n"


def test_evaluation_says_what_it_evaluated_and_repeats_by_its_seed(trained):
    path, _ = trained
    before = files(path)
    printed = output(f"evaluate {path} --episodes 3 --seed 4")
    assert "dqn on CartPole-v1 after 40 steps" in printed
    assert "over 3 episodes" in printed
    assert output(f"evaluate {path} --episodes 3 --seed 4") == printed
    assert files(path) == before


def test_reproducing_the_chain_leaves_results_a_figure_and_a_run_per_seed(reproduced):
    path, printed = reproduced
    assert "3 cells, 0 on disk" in printed
    assert (path / "chain/results.csv").read_text().splitlines() == [
        "length,algorithm,exploration,seed,episodes,solved",
        "5,dqn,parameter,0,20,False",
        "5,bootstrapped-dqn,bootstrap,0,20,False",
        "5,dqn,epsilon-greedy,0,20,False",
    ]
    assert (path / "chain/chain.png").read_bytes().startswith(b"\x89PNG")
    for exploration in ("parameter", "bootstrap", "epsilon-greedy"):
        progress = (path / f"chain/Chain-5/{exploration}/seed-0/progress.csv").read_text().splitlines()
        assert len(progress) == 1 + 20


def test_reproducing_again_runs_nothing(reproduced):
    path, _ = reproduced
    runs = files(path / "chain/Chain-5")
    stamps = {file: file.stat().st_mtime_ns for file in runs}
    printed = output(REPRODUCE, str(path))
    assert "3 cells, 3 on disk" in printed
    assert "[1/3]" not in printed
    assert {file: file.stat().st_mtime_ns for file in files(path / "chain/Chain-5")} == stamps


def test_plotting_draws_the_figure_again(reproduced):
    path, _ = reproduced
    (path / "chain/chain.png").unlink()
    assert output(f"plot chain --out {path}").strip() == str(path / "chain/chain.png")
    assert (path / "chain/chain.png").read_bytes().startswith(b"\x89PNG")


def test_the_list_of_environments_has_ours_and_gymnasium_s():
    printed = output("envs")
    assert all(env in printed for env in ("paramnoise/Chain-v0", "CartPole-v1", "FrozenLake-v1", "MontezumaRevenge"))


COMMANDS = "train;train dqn;train ddpg;resume;evaluate;delta;reproduce;reproduce chain;plot;plot chain;envs"


@pytest.mark.parametrize("command", ["", *COMMANDS.split(";")])
def test_every_command_has_help(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr()
    assert f"usage: paramnoise {command}".strip() in printed.out
    assert printed.err == ""


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("", "train"),
        ("fly", "train"),
        ("train", "dqn"),
        ("train sarsa --env CartPole-v1", "dqn"),
        (f"train dqn {TINY}", "--env"),
        (f"train dqn --env NoSuchTask-v0 {TINY}", "NoSuchTask-v0"),
        (f"train dqn --env Pendulum-v1 {TINY}", "discrete"),
        (f"train dqn --env FrozenLake-v1 --env-kwargs map_name:bogus {TINY}", "bogus"),
        (f"train dqn --env paramnoise/Chain-v0 --env-kwargs length:2 {TINY}", "at least 3, not 2"),
        (f"{TRAIN} --exploration wander", "epsilon-greedy"),
        (f"{TRAIN} --exploration gaussian", "parameter"),
        (f"{TRAIN} --exploration parameter bogus:1", "delta"),
        (f"{TRAIN} --exploration parameter delta", "key:value"),
        (f"{TRAIN} --exploration parameter delta:-1", "delta must be above 0, not -1"),
        (f"{TRAIN} --exploration parameter delta:much", "much"),
        (f"{TRAIN} --exploration parameter adapt_every:2.5", "2.5"),
        (f"{TRAIN} --env-kwargs gravity", "key:value"),
        (f"{TRAIN} --env-kwargs bogus:1", "bogus"),
        (f"{TRAIN} --steps -5", "steps must be at least 1, not -5"),
        (f"{TRAIN} --steps many", "--steps"),
        (f"{TRAIN} --num-envs 0", "num_envs must be at least 1, not 0"),
        (f"{TRAIN} --gamma 1.5", "gamma must be between 0 and 1, not 1.5"),
        (f"{TRAIN} --bogus 1", "--bogus"),
        (f"{TRAIN} --resume", "nothing to resume"),
        (f"{TRAIN} --run-dir thesis", "thesis"),
        (f"{TRAIN} --run-dir thesis/chapter.txt", "chapter.txt"),
        ("resume nowhere", "nothing to resume"),
        ("resume", "missing RUN_DIR"),
        (f"{TRAIN} --device tpu", "cpu"),
        (f"{TRAIN} --device gpu", "JAX"),
        ("evaluate nowhere --device gpu", "JAX"),
        ("delta nowhere", "nowhere"),
        ("delta thesis --sigmas 0", "above 0"),
        ("plot thesis", "thesis holds no run"),
        ("plot thesis --out thesis.pdf", ".png"),
        ("envs --search atlantis", "atlantis"),
        ("evaluate nowhere", "nowhere"),
        ("evaluate thesis", "thesis"),
        ("evaluate thesis --episodes 0", "episodes must be at least 1, not 0"),
        ("plot chain --out nowhere", "reproduce chain"),
        ("plot figure-0", "chain"),
        ("reproduce chain --lengths 2", "at least 3, not 2"),
        ("reproduce chain --explorations wander", "bootstrap"),
        ("reproduce chain --scale huge", "smoke"),
        ("reproduce chain --seeds 0", "seeds must be at least 1, not 0"),
        ("reproduce chain --workers 0", "workers must be at least 1, not 0"),
    ],
)
def test_bad_input_is_one_line_that_names_what_is_wrong_or_allowed(capsys, command, named):
    Path("thesis").mkdir()
    Path("thesis/chapter.txt").write_text("precious")
    assert named in complaint(capsys, command)


@pytest.mark.parametrize(
    ("command", "near"),
    [
        ("trian dqn", "train"),
        ("train dnq", "dqn"),
        ("train bootstraped_dqn", "bootstrapped-dqn"),
        ("plot chian", "chain"),
        (f"{TRAIN} --learning_rat 1", "--learning-rate"),
        (f"train dqn --enf CartPole-v1 {TINY}", "--env"),
        (f"{TRAIN} --exploration paramter", "parameter"),
        (f"{TRAIN} --exploration parameter detla:0.1", "delta"),
        ("envs --search pnog", "Pong"),
        ("reproduce chain --scale papr", "paper"),
    ],
)
def test_a_word_that_is_nearly_right_is_answered_with_the_right_one(capsys, command, near):
    assert f"did you mean {near}?" in complaint(capsys, command)


def test_an_error_is_the_same_line_on_a_terminal_and_in_a_pipe(capsys):
    words = ["train", "dqn", "--env", "CartPole-v1", "--steps", "many"]
    line = complaint(capsys, " ".join(words))
    assert "--steps takes INT: 'many' is no whole number;" in line
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "paramnoise", *words]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "60"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        assert process.wait() == 2
    os.close(theirs)
    assert os.read(ours, 10_000).decode().replace("\r\n", "\n") == line
    os.close(ours)


@pytest.mark.parametrize(("more", "named"), [("", "--resume"), ("--seed 1", "seed"), ("--seed 1 --resume", "seed")])
def test_a_run_directory_that_is_taken_is_left_alone(trained, capsys, more, named):
    path, _ = trained
    before = files(path)
    assert named in complaint(capsys, f"{TRAIN} {more} --run-dir {path}")
    assert files(path) == before


@pytest.mark.parametrize("content", ["", "length,algorithm,exploration,seed,episodes,solved\n", "a,b\n1,2\n"])
def test_results_without_a_result_are_not_plotted(capsys, content):
    Path("runs/chain").mkdir(parents=True)
    Path("runs/chain/results.csv").write_text(content)
    assert "results.csv" in complaint(capsys, "plot chain")
