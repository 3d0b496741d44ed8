"""Learning-curve figures from the command line: what is left on disk, and what a stop or a failure costs."""

import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paramnoise.cli import main
from paramnoise.envs.base import ENVS
from paramnoise.figures import base
from paramnoise.figures.base import FIGURES
from paramnoise.figures.curves import CurveScale

ENV = "Reacher-v4"  # its returns tell two policies apart after a few steps
TINY = "--scale smoke --envs Reacher-v4 --eval-every 150 --eval-episodes 1 --workers 1"
# Two short runs and no parameter noise: few programs to compile.
SWEEP = f"reproduce ddpg-sparse {TINY} --explorations none gaussian --steps 300"


def call(command: str) -> tuple[int, str]:
    """The exit status of a command, and what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = main(command.split())
    return status, printed.getvalue()


def files(path: Path) -> dict[Path, tuple[bytes, int]]:
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.rglob("*") if file.is_file()}


def run_of(out: Path, exploration: str) -> Path:
    return out / "ddpg-sparse/Reacher-v4" / exploration / "seed-0"


def results(out: Path) -> str:
    return (out / "ddpg-sparse/results.csv").read_text()


def stop_early(out: Path, exploration: str, steps: int, total: int = 300) -> None:
    """Leaves a run that was stopped after some steps."""
    figure = FIGURES["ddpg-sparse"]
    scale = CurveScale(envs=(ENV,), seeds=1, steps=total, eval_every=150, eval_episodes=1)
    methods = [method for method in figure.methods if method.exploration == exploration]
    (each,) = figure.grid(scale, methods, out)

    class Line:
        asked = 0

        def should_stop(self) -> bool:
            self.asked += 1
            return self.asked > steps

        def report(self, progress) -> None:
            pass

    assert not each.train(Line())


@pytest.fixture(scope="module", autouse=True)
def _without_a_preset():
    """These runs are too short for the task's preset: they learn from the first steps on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(ENVS, ENV)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("undisturbed")
    status, printed = call(f"{SWEEP} --out {out}")
    assert status == 0
    return out, printed


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_sweep_leaves_a_run_directory_per_run(undisturbed):
    out, _ = undisturbed
    for exploration in ("none", "gaussian"):
        names = {file.name for file in run_of(out, exploration).iterdir()}
        assert names == {"config.json", "progress.csv", "summary.json", "checkpoint", "best", ".lock"}
        config = json.loads((run_of(out, exploration) / "config.json").read_text())["config"]
        assert (config["env"], config["exploration"]["kind"], config["steps"]) == (ENV, exploration, 300)


def test_results_are_the_evaluations_of_all_runs(undisturbed):
    out, _ = undisturbed
    rows = list(csv.DictReader(results(out).splitlines()))
    assert [(row["exploration"], row["step"]) for row in rows] == [
        ("none", "150"),
        ("none", "300"),
        ("gaussian", "150"),
        ("gaussian", "300"),
    ]
    assert {(row["env"], row["algorithm"], row["seed"]) for row in rows} == {(ENV, "ddpg", "0")}
    assert len({row["return"] for row in rows}) == 4
    for exploration in ("none", "gaussian"):
        progress = list(csv.DictReader((run_of(out, exploration) / "progress.csv").read_text().splitlines()))
        own = [row["return"] for row in rows if row["exploration"] == exploration]
        assert own == [row["eval_return_mean"] for row in progress]


def test_the_figure_and_a_table_are_made(undisturbed):
    out, printed = undisturbed
    assert (out / "ddpg-sparse/ddpg-sparse.png").read_bytes().startswith(b"\x89PNG")
    assert "2 runs, 0 on disk" in printed
    assert "[2/2] Reacher-v4/gaussian/seed-0: return" in printed
    (line,) = [line for line in printed.splitlines() if "gaussian" in line and "300" in line and "to" in line]
    assert "Reacher-v4" in line
    rows = list(csv.DictReader((out / "ddpg-sparse/summary.csv").read_text().splitlines()))
    assert [(row["exploration"], row["step"], row["seeds"]) for row in rows] == [
        ("none", "300", "1"),
        ("gaussian", "300", "1"),
    ]
    assert rows[0]["iqm"] == results(out).splitlines()[2].rpartition(",")[2]


def test_a_second_call_runs_nothing(undisturbed):
    out, _ = undisturbed
    before = files(out / "ddpg-sparse/Reacher-v4")
    status, printed = call(f"{SWEEP} --out {out}")
    assert status == 0
    assert "2 runs, 2 on disk" in printed
    assert files(out / "ddpg-sparse/Reacher-v4") == before


def test_fewer_steps_are_served_from_disk(undisturbed, tmp_path):
    out, _ = undisturbed
    whole = results(out)
    status, printed = call(f"{SWEEP.replace('--steps 300', '--steps 150')} --out {out}")
    assert (status, "2 runs, 2 on disk" in printed) == (0, True)
    assert results(out).splitlines() == [line for line in whole.splitlines() if ",300," not in line]
    call(f"{SWEEP} --out {out}")
    assert results(out) == whole


def test_the_figure_is_drawn_again_from_the_results_alone(undisturbed, tmp_path):
    out, _ = undisturbed
    (tmp_path / "ddpg-sparse").mkdir()
    (tmp_path / "ddpg-sparse/results.csv").write_text(results(out))
    status, printed = call(f"plot ddpg-sparse --out {tmp_path}")
    assert status == 0
    assert printed.splitlines()[-1] == str(tmp_path / "ddpg-sparse/ddpg-sparse.png")
    assert (tmp_path / "ddpg-sparse/ddpg-sparse.png").read_bytes().startswith(b"\x89PNG")


def test_steps_until_a_return_is_reached_come_from_the_results_alone(tmp_path):
    (tmp_path / "es").mkdir()
    curves = [("es", "none", 90_000, 990.0), ("ddpg", "parameter", 15_000, 1000.0), ("trpo", "parameter", 20_000, 80.0)]
    rows = [
        f"InvertedPendulum-v4,{agent},{kind},0,{times * step},{value}"
        for agent, kind, step, value in curves
        for times in (1, 2, 3)
    ]
    (tmp_path / "es/results.csv").write_text("\n".join(["env,algorithm,exploration,seed,step,return", *rows, ""]))
    status, printed = call(f"plot es --out {tmp_path}")
    assert status == 0
    assert "> 60,000" in printed
    assert {file.name for file in (tmp_path / "es").iterdir()} == {
        "results.csv",
        "thresholds.csv",
        "summary.csv",
        "es.png",
    }
    summary = list(csv.DictReader((tmp_path / "es/summary.csv").read_text().splitlines()))
    assert [(row["algorithm"], row["ratio"], row["is_bound"]) for row in summary] == [
        ("es", "1.0", "False"),
        ("ddpg", "6.0", "False"),
        ("trpo", "1.5", "True"),
    ]


def test_agents_of_the_comparison_are_chosen_by_name(capsys):
    assert main(["reproduce", "es", "--explorations", "parameter"]) == 2
    assert "choose from es, ddpg, trpo" in capsys.readouterr().err


def test_without_matplotlib_results_are_written_and_no_figure(undisturbed, monkeypatch, capsys):
    out, _ = undisturbed
    whole = results(out)
    for file in (out / "ddpg-sparse").glob("*.*"):
        file.unlink()
    monkeypatch.setattr(base, "can_draw", lambda: False)
    status, printed = call(f"{SWEEP} --out {out}")
    assert (status, results(out)) == (0, whole)
    assert "matplotlib" in printed.splitlines()[-1]
    assert not list((out / "ddpg-sparse").glob("*.png"))
    assert main(f"plot ddpg-sparse --out {out}".split()) == 2
    assert "matplotlib" in capsys.readouterr().err


def test_an_unfinished_and_a_shorter_run_go_on_to_the_results_of_an_undisturbed_sweep(undisturbed, tmp_path):
    out, _ = undisturbed
    stop_early(tmp_path, "none", steps=200)
    call(f"{SWEEP.replace('none', '').replace('--steps 300', '--steps 210')} --out {tmp_path}")
    assert results(tmp_path).count("gaussian") == 2
    status, printed = call(f"{SWEEP} --out {tmp_path}")
    assert (status, "2 runs, 0 on disk" in printed) == (0, True)
    assert results(tmp_path) == results(out)


def test_a_failed_run_is_listed_costs_no_other_and_is_tried_again(undisturbed, tmp_path):
    out, _ = undisturbed
    stop_early(tmp_path, "none", steps=10)
    (arrays,) = (run_of(tmp_path, "none") / "checkpoint").glob("arrays-*")
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[:-1])
    status, printed = call(f"{SWEEP} --out {tmp_path}")
    assert status == 1
    reasons = [line for line in printed.splitlines() if line.startswith("Reacher-v4/none/seed-0 failed:")]
    assert len(reasons) == 1
    assert "damaged" in reasons[0]
    assert "1 of 2 runs failed" in printed
    assert "gaussian,0,300" in results(tmp_path)
    arrays.write_bytes(whole)
    assert call(f"{SWEEP} --out {tmp_path}")[0] == 0
    assert results(tmp_path) == results(out)


def test_ctrl_c_leaves_checkpoints_and_results_and_the_same_command_goes_on(undisturbed, tmp_path):
    out, _ = undisturbed
    long = f"{SWEEP.replace('--steps 300', '--steps 100000')} --out {tmp_path}"
    process = subprocess.Popen(
        [sys.executable, "-m", "paramnoise", *long.split()],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    progress = run_of(tmp_path, "none") / "progress.csv"
    while process.poll() is None and not progress.exists():
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, printed
    assert "interrupted: 0 of 2 runs are finished" in printed
    summary = json.loads((run_of(tmp_path, "none") / "summary.json").read_text())
    assert (summary["status"], summary["steps"] < 100_000) == ("interrupted", True)
    assert (run_of(tmp_path, "none") / "checkpoint/checkpoint.json").exists()
    assert results(tmp_path).splitlines()[1] == results(out).splitlines()[1]
    assert not run_of(tmp_path, "gaussian").exists()
    assert "2 of 2 runs are not finished" in printed


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--envs NoSuchTask-v0", "SparseMountainCar"),
        ("--envs CartPole-v1", "continuous"),
        ("--explorations wander", "none, gaussian, ou, parameter"),
        ("--explorations epsilon-greedy", "none, gaussian, ou, parameter"),
        ("--steps 0", "steps must be at least 1, not 0"),
        ("--seeds 0", "seeds must be at least 1, not 0"),
        ("--eval-every 0", "eval_every must be at least 1, not 0"),
        ("--eval-episodes -1", "eval_episodes must be at least 1, not -1"),
        ("--workers 0", "workers must be at least 1, not 0"),
        ("--scale huge", "smoke"),
        ("--bogus 1", "--bogus"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(capsys, words, named):
    status = main(["reproduce", "ddpg-sparse", *words.split()])
    printed = capsys.readouterr()
    assert (status, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert named in printed.err
    assert list(Path.cwd().iterdir()) == []


def test_a_run_of_another_config_in_the_way_is_an_error_before_anything_runs(undisturbed, capsys):
    out, _ = undisturbed
    before = files(out)
    command = f"{SWEEP.replace('--eval-episodes 1', '--eval-episodes 2')} --seeds 2 --out {out}"
    assert main(command.split()) == 2
    assert "another config: --eval-episodes is 1 there and 2 here" in capsys.readouterr().err
    assert files(out) == before


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("command", ["reproduce", "plot"])
def test_every_figure_has_commands_with_help(capsys, command, name):
    with pytest.raises(SystemExit) as stop:
        main([command, name, "--help"])
    assert stop.value.code == 0
    assert f"usage: paramnoise {command} {name}" in capsys.readouterr().out


def test_a_figure_without_results_is_not_drawn(capsys):
    assert main(["plot", "ddpg-dense"]) == 2
    assert "reproduce ddpg-dense" in capsys.readouterr().err
