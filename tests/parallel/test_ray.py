"""Ray: sweeps and populations on a small local cluster, whose workers die; results are those of this process alone.

The cluster has two nodes of one CPU each. Run with `make test-ray`.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import pytest

from paramnoise.cli import main
from paramnoise.figures.atari_figure import ATARI, AtariScale
from paramnoise.parallel.sweep import Event, Line
from paramnoise.runs.config import make_config
from paramnoise.runs.display import StopFlag
from paramnoise.runs.loop import make_loop
from paramnoise.validation import RunError, UsageError

pytestmark = pytest.mark.ray
ray = pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")

from ray.cluster_utils import Cluster  # noqa: E402

from paramnoise.parallel import ray_sweep  # noqa: E402
from paramnoise.parallel.ray_cluster import connect, machine_share  # noqa: E402

SWEEP = (
    "reproduce ddpg-sparse --scale smoke --envs Pendulum-v1 --eval-every 400 --eval-episodes 1 --steps 1200 "
    "--explorations none gaussian --seeds 4"
)
ES = {"hidden_sizes": (4,), "pairs": 6, "table_size": 10_000}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one CPU; this process has joined it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks, which are followed by exec at once
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    connect(made.address, cpus=0)
    yield made
    ray.shutdown()
    made.shutdown()


def workers_at(name: str) -> list:
    """The processes of our cluster that are at a task or in an actor of that name."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(f"ray::{name}" in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def results(out: Path) -> str:
    return (out / "ddpg-sparse/results.csv").read_text()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("undisturbed")
    assert main(f"{SWEEP} --workers 2 --out {out}".split()) == 0
    return results(out)


def kill_a_run_under_way(out: Path, killed: list[int]) -> None:
    """Waits for a run with an evaluation and without an end, and kills a worker with SIGKILL."""
    while not killed:
        time.sleep(0.02)
        begun = [file for file in out.rglob("progress.csv") if not file.with_name("summary.json").exists()]
        if begun and (processes := workers_at("_piece")):
            processes[0].kill()
            killed.append(processes[0].pid)


def test_eight_runs_finish_as_undisturbed_though_a_worker_is_killed(cluster, undisturbed, tmp_path, capsys):
    killed: list[int] = []
    threading.Thread(target=kill_a_run_under_way, args=(tmp_path, killed), daemon=True).start()
    assert main(f"{SWEEP} --engine ray --ray-address {cluster.address} --out {tmp_path}".split()) == 0
    assert len(killed) == 1
    assert not psutil.pid_exists(killed[0])
    assert "[8/8]" in capsys.readouterr().out
    assert results(tmp_path) == undisturbed


def test_ctrl_c_leaves_checkpoints_and_a_second_call_goes_on(cluster, undisturbed, tmp_path):
    command = f"{SWEEP} --engine ray --ray-address {cluster.address} --out {tmp_path}"
    process = subprocess.Popen(
        [sys.executable, "-m", "paramnoise", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    while process.poll() is None and not list(tmp_path.rglob("progress.csv")):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, printed
    assert "the same command goes on from here" in printed
    assert list(tmp_path.rglob("checkpoint.json"))
    assert len(list(tmp_path.rglob("config.json"))) < 8
    assert main(command.split()) == 0
    assert results(tmp_path) == undisturbed


class Piece(NamedTuple):
    """A piece of work leaves a file of its name when it starts."""

    folder: Path
    name: str


def do(piece: Piece, line: Line) -> bool:
    """Does what its name says."""
    again = (piece.folder / piece.name).exists()
    (piece.folder / piece.name).write_text(str(os.getpid()))
    kind = piece.name.split("-")[0]
    if kind == "diverge":
        raise RunError("loss is nan\nby step 7")
    if kind == "bug":
        raise ValueError("no such thing")
    if kind == "die" or (kind == "stumble" and not again):
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "report":
        line.report(lambda: "half done")
        started = time.monotonic()
        while time.monotonic() < started + 2.5:
            assert not line.should_stop()
    while kind == "wait" and not line.should_stop():
        time.sleep(0.01)
    return not line.should_stop()


def sweep(folder: Path, *names: str, stop: StopFlag | None = None):
    pieces = [Piece(folder, name) for name in names]
    return ray_sweep.run_all(do, pieces, None, lambda: bool(stop), folder / "logs" / "log")


def ends(events: list[Event]) -> dict[str, tuple[str, str | None]]:
    return {e.task.name: (e.state, e.detail) for e in events if e.state not in ("started", "progress")}


def test_each_piece_starts_once_and_ends_once_and_those_that_died_are_tried_again(cluster, tmp_path):
    events = list(sweep(tmp_path, "a", "stumble", "diverge", "bug", "die", "report", "b"))
    names = [event.task.name for event in events if event.state == "started"]
    assert sorted(names) == ["a", "b", "bug", "die", "diverge", "report", "stumble"]
    ended = ends(events)
    assert {name for name, end in ended.items() if end == ("finished", None)} == {"a", "b", "report", "stumble"}
    assert ended["diverge"] == ("failed", "loss is nan by step 7")
    assert ended["bug"] == ("failed", "ValueError: no such thing")
    assert ended["die"][0] == "failed"
    assert "its process died 4 times" in ended["die"][1]
    assert "half done" in [event.detail for event in events if event.state == "progress"]
    log = (tmp_path / "logs/log").read_text()
    assert "no such thing" in log
    assert "task_name" not in log


def test_a_stop_ends_running_pieces_and_leaves_the_rest_unrun(cluster, tmp_path):
    stop, events = StopFlag(), []
    for event in sweep(tmp_path, "wait-1", "wait-2", "wait-3", "wait-4", stop=stop):
        events.append(event)
        if len(events) == 2:  # both CPUs are taken, by whichever two Ray took first
            stop.signal = signal.SIGINT
    started = {event.task.name for event in events[:2]}
    assert ends(events) == dict.fromkeys(started, ("stopped", None))
    assert {file.name for file in tmp_path.glob("wait*")} == started


def es(env="Pendulum-v1", **settings) -> list[dict[str, float]]:
    """The rows of a short run: 5 generations of 12 episodes of 200 steps."""
    config = make_config("es", "Pendulum-v1", agent={**ES, **settings}, num_envs=2)
    loop = make_loop([config], env)
    rows = [row for rows in loop.run(12_000, eval_every=2_400, eval_episodes=1) for row in rows]
    loop.close()
    return rows


@pytest.fixture(scope="module")
def alone() -> list[dict[str, float]]:
    rows = es()
    assert len(rows) == 5
    return rows


def test_a_population_on_actors_gives_the_curve_of_one_process(cluster, alone):
    assert es(engine="ray", workers=2, ray_address=cluster.address) == alone


def test_more_actors_than_the_cluster_has_cpus_for_are_not_waited_for(cluster, alone):
    assert es(engine="ray", workers=5, ray_address=cluster.address) == alone


def test_an_actor_that_is_killed_is_replaced_and_its_work_done_again(cluster, alone):
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            time.sleep(0.02)
            if processes := workers_at("_Worker.do"):
                processes[0].kill()
                killed.append(processes[0].pid)

    threading.Thread(target=kill, daemon=True).start()
    assert es(engine="ray", workers=2, ray_address=cluster.address) == alone
    assert len(killed) == 1


class Deadly(gym.Wrapper):
    """An environment that takes its process with it."""

    def step(self, action):
        os.kill(os.getpid(), signal.SIGKILL)


def test_episodes_that_kill_every_actor_end_the_run(cluster):
    with pytest.raises(RunError, match="4 Ray actors died over task 0"):
        es(lambda: Deadly(gym.make("Pendulum-v1")), engine="ray", workers=1, ray_address=cluster.address)


class Broken(gym.Wrapper):
    """An environment with a bug."""

    def step(self, action):
        raise KeyError("no such joint")


def test_an_error_in_an_actor_is_one_line(cluster):
    with pytest.raises(RunError, match="KeyError: 'no such joint'"):
        es(lambda: Broken(gym.make("Pendulum-v1")), engine="ray", workers=1, ray_address=cluster.address)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense:port", "ray://127.0.0.1:1"])
def test_an_address_where_nobody_answers_is_refused(address, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(UsageError, match=f"no Ray cluster answers at '{address}'"):
        connect(address, 1)


@pytest.mark.parametrize(
    ("gpus", "nodes", "workers", "share"),
    [
        (0, [8, 8], None, {"num_cpus": 8}),
        (0, [8, 8, 0], 2, {"num_cpus": 8}),
        (0, [8, 8], 3, {"num_cpus": 4}),
        (0, [2], 4, {"num_cpus": 0.5}),
        (4, [8, 8], None, {"num_cpus": 1, "num_gpus": 1}),
        (4, [8, 8], 8, {"num_cpus": 1, "num_gpus": 0.5}),
        (1, [8], 3, {"num_cpus": 1, "num_gpus": 1 / 3}),
    ],
)
def test_a_piece_that_fills_a_machine_asks_for_a_share_of_the_gpus_or_of_a_node(
    monkeypatch, gpus, nodes, workers, share
):
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"GPU": float(gpus), "CPU": float(sum(nodes))})
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": float(cpus)}} for cpus in nodes])
    assert machine_share(workers) == share


def test_atari_on_ray_gives_the_results_of_this_machine(cluster, tmp_path, monkeypatch, capsys):
    pytest.importorskip("ale_py")
    small = {
        "convolutions": ((2, 16, 16),),
        "hidden_sizes": (4,),
        "batch_size": 4,
        "buffer_size": 200,
        "learning_starts": 16,
    }
    tiny = AtariScale(
        envs=("Pong",), seeds=2, steps=40, eval_every=40, eval_episodes=1, log_every=10, num_envs=2, agent=small
    )
    monkeypatch.setitem(ATARI.scales, "smoke", tiny)
    command = "reproduce atari --scale smoke --explorations epsilon-greedy epsilon-greedy-two-heads"
    assert main(f"{command} --out {tmp_path / 'local'}".split()) == 0
    capsys.readouterr()
    assert main(f"{command} --engine ray --ray-address {cluster.address} --out {tmp_path / 'ray'}".split()) == 0
    assert f"2 groups to train, Ray at {cluster.address}" in capsys.readouterr().out
    for name in ("results.csv", "scores.csv"):
        assert (tmp_path / "ray/atari" / name).read_text() == (tmp_path / "local/atari" / name).read_text()
