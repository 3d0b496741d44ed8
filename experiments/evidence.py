"""The queue of the evidence: the paper's figures at full scale and our own, one after the other at low priority.

    python experiments/evidence.py status --out DIR
    python experiments/evidence.py run --out DIR --workers 2

Each figure is one call of `paramnoise reproduce`, which goes on where the last one was; so does the queue.
"""

import argparse
import contextlib
import fcntl
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence_queue import QUEUE, Asked, Item, find
from evidence_status import show_status

import paramnoise
from paramnoise.parallel.process import INTERRUPTED, cores
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.directory import provenance
from paramnoise.runs.display import stop_on_signals
from paramnoise.validation import UsageError

NICENESS = 10
"""Added to that of this process, so that other work on the machine comes first."""
POLL_SECONDS = 0.5
PID, PROVENANCE = "queue.pid", "provenance.json"
"""Below the queue's directory: the process group at work. Below a figure's: what its runs were made with."""


def run_queue(asked: Asked, minutes: float | None) -> int:
    """`run`: runs figure after figure; returns the exit status. Whatever ends it, the same call goes on from there."""
    for item in asked.items:
        find(item)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    failed = False
    with _claimed(asked.out) as lock, stop_on_signals() as stop:
        for item in asked.items:
            record(asked, item)
            child = _start(asked.command(item), lock)
            while child.poll() is None and not stop and not _is_past(deadline):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(POLL_SECONDS)
            ended_early = child.poll() is None
            if ended_early:
                _end(child)
            lock.truncate(0)
            if stop:
                return INTERRUPTED + (stop.signal or 0)
            if ended_early:
                print(f"stopped after {minutes:g} minutes; the same command goes on from here")
                return 0
            if child.returncode > 1 or child.returncode < 0:
                print(f"{item.figure} ended with status {child.returncode}")
                return child.returncode if child.returncode > 0 else INTERRUPTED - child.returncode
            failed = failed or child.returncode == 1  # some runs: the next call tries them again
    return int(failed)


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _start(command: list[str], lock: Any) -> subprocess.Popen[bytes]:
    """Starts a figure in a process group of its own, which shares the claim, and notes the group."""
    print(shlex.join(["paramnoise", *command[3:]]), flush=True)
    child = subprocess.Popen(command, process_group=0, pass_fds=(lock.fileno(),))
    os.setpriority(os.PRIO_PGRP, child.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    lock.write(f"{child.pid}\n")
    lock.flush()
    return child


def _end(child: subprocess.Popen[bytes]) -> None:
    """Asks a figure to end at a clean place, with checkpoints, and waits for it; a paused one goes on for that."""
    child.terminate()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGCONT)
    child.wait()


@contextlib.contextmanager
def _claimed(out: Path) -> Iterator[Any]:
    """The file PID, locked by this process and the figure that it runs until both have ended, whatever ends them."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / PID).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"a queue, or a figure that it left, runs on {out} (process group {_group(out)})"
            ) from None
        lock.truncate(0)
        yield lock


def _group(out: Path) -> int | None:
    """The process group at work; None between two figures."""
    text = (out / PID).read_text().strip()
    return int(text) if text else None


def send(out: Path, number: signal.Signals) -> int:
    """`pause` and `resume`: sends a signal to the figure at work and its workers."""
    if not (out / PID).exists():
        raise UsageError(f"no queue runs on {out}")
    with (out / PID).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            raise UsageError(f"no queue runs on {out}")
    group = _group(out)
    if group is None:
        raise UsageError(f"the queue on {out} is between two figures: try again")
    os.killpg(group, number)
    return 0


def record(asked: Asked, item: Item) -> None:
    """Adds to provenance.json what a figure is about to be run with, unless its last entry says the same."""
    path = asked.out / item.figure / PROVENANCE
    entries = json.loads(path.read_text()) if path.exists() else []
    entry = {
        "command": shlex.join(["paramnoise", *asked.command(item)[3:]]),
        "seeds": find(item).asked_scale(asked.arguments(item)).seeds,
        **provenance(),
        "git_describe": _git_describe(),
        "machine": {"processor": _processor(), "cores": cores(), "system": platform.platform()},
    }
    if entries and {**entries[-1], "since": None} == {**entry, "since": None}:
        return
    text = json.dumps([*entries, {**entry, "since": datetime.now(UTC).isoformat(timespec="seconds")}], indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(f"{text}\n".encode()))


def _git_describe() -> str | None:
    """The commit of the package's checkout, and whether files differ from it; None if it is not a checkout."""
    if provenance()["git_commit"] is None:
        return None
    command = ["git", "-C", str(Path(paramnoise.__file__).parent), "describe", "--always", "--tags", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="evidence.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("status", "what is done and left"),
        ("run", "run what is left"),
        ("pause", "stop the processes at work where they are"),
        ("resume", "let them go on"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--out", type=Path, required=True, help="where the figures are kept")
        if name in ("status", "run"):
            command.add_argument("--workers", type=int, default=cores(), help="runs side by side; default: the cores")
            command.add_argument("--scale", default="paper", help="of every figure; default: paper")
            command.add_argument("--figures", nargs="+", default=[], help="some figures; default: the whole queue")
        if name == "run":
            command.add_argument("--minutes", type=float, help="stop after so many, with checkpoints")
    args = parser.parse_args(words)
    try:
        if args.command in ("pause", "resume"):
            return send(args.out, signal.SIGSTOP if args.command == "pause" else signal.SIGCONT)
        queue = {item.figure: item for item in QUEUE}
        items = [queue.get(name, Item(name)) for name in args.figures] or QUEUE
        asked = Asked(out=args.out, scale=args.scale, workers=args.workers, items=items)
        return show_status(asked) if args.command == "status" else run_queue(asked, args.minutes)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
