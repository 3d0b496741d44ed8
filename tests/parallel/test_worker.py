"""A worker process: what it says, how it dies, and that it does not outlive its parent."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paramnoise.parallel.worker import Worker, WorkerDied

PARENT = """
import os, sys, time
from test_worker import serve_name
from paramnoise.parallel.worker import Worker
if __name__ == "__main__":
    worker = Worker(serve_name, "sleep")
    print(worker.receive(), flush=True)
    time.sleep(60)
"""


def serve_name(connection, kind: str) -> None:
    """Sends its process id, and does what its name says."""
    connection.send(os.getpid())
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        os._exit(3)
    if kind == "sleep":
        time.sleep(60)
    while True:
        try:
            connection.send(2 * connection.recv())
        except EOFError:
            return


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(("kind", "cause"), [("kill", "was killed by SIGKILL"), ("exit", "ended with status 3")])
def test_the_cause_of_a_death_is_one_line(kind, cause):
    worker = Worker(serve_name, kind)
    worker.receive()
    with pytest.raises(WorkerDied, match=cause):
        worker.receive()
    assert not worker.is_alive()
    assert not worker.send(pickle.dumps(1))
    worker.end(by_force=True)


@pytest.mark.parametrize("by_force", [True, False])
def test_an_ended_worker_is_gone(by_force):
    worker = Worker(serve_name, "double")
    process = worker.receive()
    assert worker.send(pickle.dumps(21))
    assert worker.receive() == 42
    worker.end(by_force=by_force)
    assert not is_running(process)


def test_a_worker_dies_with_its_parent_whatever_it_is_at():
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": str(here)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=environment, cwd=here
    )
    process = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 10
    while is_running(process) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(process)
