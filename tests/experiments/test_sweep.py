"""Independent work in worker processes: all of it, errors and all, until someone asks to stop."""

import os
import time
from pathlib import Path
from typing import NamedTuple

from paramnoise.experiments.sweep import cores, run_all
from paramnoise.training.display import StopFlag


class Task(NamedTuple):
    """A task leaves a file of its name when it starts."""

    folder: Path
    name: str


def leave_a_trace(task: Task, should_stop) -> bool:
    if task.name.startswith("bad"):
        raise ValueError(f"{task.name} cannot be done")
    assert not should_stop()
    (task.folder / task.name).write_text(str(os.getpid()))
    return True


def end_or_wait(task: Task, should_stop) -> bool:
    """Ends at once if it is called so, else works until it is asked to stop."""
    (task.folder / task.name).touch()
    while task.name != "quick":
        if should_stop():
            return False
        time.sleep(0.01)
    return True


def tasks(folder: Path, *names: str) -> list[Task]:
    return [Task(folder, name) for name in names]


def test_every_task_is_run_in_another_process_and_yielded(tmp_path):
    todo = tasks(tmp_path, *"abcde")
    ended = dict(run_all(leave_a_trace, todo, 2, StopFlag()))
    assert ended == dict.fromkeys(todo)
    processes = {int((tmp_path / name).read_text()) for name in "abcde"}
    assert 1 <= len(processes) <= 2
    assert os.getpid() not in processes


def test_a_failing_task_is_yielded_with_its_error_and_the_others_go_on(tmp_path):
    todo = tasks(tmp_path, "bad-1", "a", "bad-2", "b")
    ended = dict(run_all(leave_a_trace, todo, 2, StopFlag()))
    assert set(ended) == set(todo)
    assert {task.name: str(error) for task, error in ended.items() if error is not None} == {
        "bad-1": "bad-1 cannot be done",
        "bad-2": "bad-2 cannot be done",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_stop_ends_running_tasks_and_leaves_the_rest_unrun(tmp_path):
    stop = StopFlag()
    todo = tasks(tmp_path, "quick", "long-1", "long-2", "late-1", "late-2", "late-3", "late-4")
    ended = []
    for task, error in run_all(end_or_wait, todo, 2, stop):
        ended.append((task.name, error))
        stop.signal = 15
    assert ended == [("quick", None)]
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith("late")]


def test_without_tasks_nothing_is_started(tmp_path):
    assert list(run_all(leave_a_trace, [], 1, StopFlag())) == []


def test_there_is_at_least_one_core():
    assert 1 <= cores() <= (os.cpu_count() or 1)
