"""Independent work in worker processes: all of it, errors and all, until someone asks to stop."""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

from paramnoise.parallel.process import cores
from paramnoise.parallel.sweep import Event, Line, run_all, share_of
from paramnoise.runs.display import StopFlag
from paramnoise.validation import RunError


class Task(NamedTuple):
    """A task leaves a file of its name when it starts."""

    folder: Path
    name: str


def do(task: Task, line: Line) -> bool:
    """Does what its name says."""
    assert not line.should_stop()
    (task.folder / task.name).write_text(str(os.getpid()))
    kind = task.name.split("-")[0]
    if kind == "diverge":
        raise RunError("loss is nan\nby step 7")
    if kind == "bug":
        print("said before")
        raise ValueError("no such thing")
    if kind in ("kill", "term"):
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGTERM)
    if kind == "report":
        line.report(lambda: "half done")
        line.report(lambda: "too soon")
    while kind == "wait" and not line.should_stop():
        time.sleep(0.01)
    return not line.should_stop()


def sweep(folder: Path, *names: str, workers: int = 2, stop: StopFlag | None = None):
    tasks = [Task(folder, name) for name in names]
    return run_all(do, tasks, workers, lambda: bool(stop), folder / "logs" / "log")


def ends(events: list[Event]) -> dict[str, tuple[str, str | None]]:
    """How each task ended."""
    return {
        event.task.name: (event.state, event.detail) for event in events if event.state not in ("started", "progress")
    }


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> tuple[Path, list[Event]]:
    folder = tmp_path_factory.mktemp("mixed")
    return folder, list(sweep(folder, "a", "kill-1", "diverge", "term", "b", "bug", "kill-2", "report", "c"))


def test_every_task_is_run_in_another_process(mixed):
    folder, events = mixed
    assert {name for name, (state, _) in ends(events).items() if state == "finished"} == {"a", "b", "c", "report"}
    assert str(os.getpid()) not in {(folder / name).read_text() for name in "abc"}


def test_tasks_are_started_in_their_order(mixed):
    _, events = mixed
    started = [event.task.name for event in events if event.state == "started"]
    assert started == ["a", "kill-1", "diverge", "term", "b", "bug", "kill-2", "report", "c"]


def test_an_error_is_one_line_and_the_traceback_of_a_bug_is_in_the_log(mixed):
    folder, events = mixed
    assert ends(events)["diverge"] == ("failed", "loss is nan by step 7")
    assert ends(events)["bug"] == ("failed", "ValueError: no such thing")
    log = (folder / "logs/log").read_text()
    assert "said before" in log
    assert "Traceback" in log
    assert "loss is nan" not in log


def test_a_worker_that_is_killed_costs_its_own_task_only(mixed):
    _, events = mixed
    for name in ("kill-1", "kill-2"):
        state, reason = ends(events)[name]
        assert state == "failed"
        assert "SIGKILL" in reason
    assert len(ends(events)) == 9


def test_a_worker_that_someone_else_asked_to_stop_leaves_its_task_unfinished(mixed):
    _, events = mixed
    state, reason = ends(events)["term"]
    assert state == "failed"
    assert "asked to stop" in reason


def test_reports_arrive_but_not_too_many(mixed):
    _, events = mixed
    assert [event.detail for event in events if event.state == "progress"] == ["half done"]


def test_a_stop_ends_running_tasks_and_leaves_the_rest_unrun(tmp_path):
    stop, events = StopFlag(), []
    for event in sweep(tmp_path, "a", "wait-1", "wait-2", "late-1", "late-2", stop=stop):
        events.append(event)
        if event.task.name == "wait-2":
            stop.signal = signal.SIGTERM
    assert ends(events) == {"a": ("finished", None), "wait-1": ("stopped", None), "wait-2": ("stopped", None)}
    assert not list(tmp_path.glob("late*"))


def test_a_sweep_that_is_given_up_leaves_no_process(tmp_path):
    events = sweep(tmp_path, "wait", workers=1)
    next(events)
    while not (tmp_path / "wait").exists() or not (tmp_path / "wait").read_text():
        time.sleep(0.05)
    process = int((tmp_path / "wait").read_text())
    events.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_without_tasks_nothing_happens(tmp_path):
    assert list(sweep(tmp_path)) == []


def test_there_is_at_least_one_core():
    assert 1 <= cores() <= (os.cpu_count() or 1)


def tell_place(task: Task, line: Line) -> bool:
    """Notes on how many cores the process may run, what it computes on, and with how many threads; 0: any number."""
    threads = os.environ.get("PJRT_NPROC", "0")
    (task.folder / task.name).write_text(f"{cores()} {jax.config.jax_platforms} {threads}")
    return True


def tell_memory(task: Task, line: Line) -> bool:
    """Notes which share of an accelerator's memory JAX may take."""
    (task.folder / task.name).write_text(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", "all"))
    return True


@pytest.mark.parametrize(("workers", "share"), [(1, "all"), (3, "0.300")])
def test_workers_with_the_whole_machine_share_the_accelerators_memory(tmp_path, monkeypatch, workers, share):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    tasks = [Task(tmp_path, "memory")] * workers
    list(run_all(tell_memory, tasks, 3, lambda: False, tmp_path / "log", whole_machine=True))
    assert (tmp_path / "memory").read_text() == share


@pytest.mark.parametrize("whole_machine", [True, False])
def test_a_worker_has_its_cores_and_no_accelerator_or_the_whole_machine(tmp_path, monkeypatch, whole_machine):
    for name in ("JAX_PLATFORMS", "PJRT_NPROC"):
        monkeypatch.delenv(name, raising=False)
    tasks = [Task(tmp_path, "place")] * cores()
    list(run_all(tell_place, tasks, 100, lambda: False, tmp_path / "log", whole_machine=whole_machine))
    assert (tmp_path / "place").read_text() == (f"{cores()} None 0" if whole_machine else "1 cpu 1")


def test_workers_share_the_cores_so_that_another_sweep_s_have_room():
    assert [share_of(range(5), number, 2) for number in range(2)] == [range(0, 5, 2), range(1, 5, 2)]
    assert [list(share_of([4, 6], number, 3)) for number in range(3)] == [[4], [6], [4]]
