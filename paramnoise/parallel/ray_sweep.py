"""Runs independent pieces of work as Ray tasks, as `sweep.run_all` does in processes of this machine.

A worker or a node that dies costs what its piece had not written down: Ray runs the piece again, elsewhere if need be.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from paramnoise.parallel.process import use_one_thread
from paramnoise.parallel.ray_cluster import POLL_SECONDS, RETRIES, machine_share, remote
from paramnoise.parallel.sweep import Event, Task, Work, attempt, prepare
from paramnoise.plugins import load_plugins, plugin_names

HEAR_SECONDS = 1.0
"""How often a piece tells of itself, and asks whether to stop."""


class Desk:
    """Where pieces leave word for the process that started them, and hear whether to stop; it runs as an actor."""

    def __init__(self) -> None:
        self._stopping = False
        self._news: dict[int, Any] = {}

    def admit(self, place: int) -> bool:
        """Notes that a piece begins, unless no more are to begin."""
        if not self._stopping:
            self._news.setdefault(place, None)
        return not self._stopping

    def hear(self, place: int, progress: Any) -> bool:
        """Takes word of a piece; returns whether it should stop."""
        self._news[place] = progress
        return self._stopping

    def news(self) -> dict[int, Any]:
        """The last word of each piece since the last call."""
        news, self._news = self._news, {}
        return news

    def stop(self) -> None:
        """From now on every piece that asks is told to stop."""
        self._stopping = True


class DeskLine:
    """A piece's line to the desk."""

    def __init__(self, desk: Any, place: int):
        """Begins with silence."""
        self._desk, self._place = desk, place
        self._asked = False
        self._heard_at = time.monotonic()
        self._progress: Callable[[], Any] = lambda: None

    def should_stop(self) -> bool:
        """Whether the work should end at the next clean place; now and then this asks, and tells how far it is."""
        now = time.monotonic()
        if not self._asked and now - self._heard_at >= HEAR_SECONDS:
            self._heard_at = now
            self._asked = ray.get(self._desk.hear.remote(self._place, self._progress()))
        return self._asked

    def report(self, progress: Callable[[], Any]) -> None:
        """Keeps what to tell when the work next asks."""
        self._progress = progress


def run_all(
    work: Work,
    tasks: Sequence[Task],
    workers: int | None,
    should_stop: Callable[[], bool],
    log: Path,
    *,
    whole_machine: bool = False,
) -> Iterator[Event]:
    """Runs `work(task, line)` for every task on the cluster that this process has joined; see `sweep.run_all`.

    Args:
        work: as there; Ray may call it again for a task whose process died, and it must then go on from its files.
        tasks: as there, but Ray keeps their order only roughly; the paths in them are the same wherever they run, on a
            filesystem that all nodes share.
        workers: how many tasks at once at the most; None: as many as the cluster has room for.
        should_stop: as there.
        log: as there, on the shared filesystem.
        whole_machine: whether a task asks for its share of a machine, with a GPU if the cluster has any; otherwise for
            one CPU.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    desk = remote(Desk, num_cpus=0, scheduling_strategy=here).remote()
    share = machine_share(workers) if whole_machine else {"num_cpus": 1}
    piece = remote(_piece, max_retries=RETRIES, scheduling_strategy="SPREAD", **share)
    settings = _Settings(log.absolute(), share.get("num_gpus", 1.0) if whole_machine else None)
    waiting = list(reversed(list(enumerate(tasks))))
    flying: dict[ray.ObjectRef, int] = {}
    started: set[int] = set()
    asked = False
    try:
        while True:
            if should_stop() and not asked:
                asked = True
                ray.get(desk.stop.remote())
            while waiting and not should_stop() and len(flying) < (workers or len(tasks)):
                place, task = waiting.pop()
                flying[piece.remote(work, task, place, desk, settings)] = place
            if not flying:
                return
            ended, _ = ray.wait(list(flying), num_returns=len(flying), timeout=POLL_SECONDS)
            for place, progress in ray.get(desk.news.remote()).items():
                if place not in started:
                    started.add(place)
                    yield Event(tasks[place], "started")
                if progress is not None:
                    yield Event(tasks[place], "progress", progress)
            for ref in ended:
                if (place := flying.pop(ref)) in started:
                    yield Event(tasks[place], *_outcome(ref))
    finally:
        for ref in flying:
            ray.cancel(ref, force=True)
        ray.kill(desk)


class _Settings:
    """What a process of the cluster needs to know to be a worker."""

    def __init__(self, log: Path, accelerator: float | None):
        self.log, self.accelerator = log, accelerator
        self.plugins = plugin_names()

    def apply(self) -> None:
        """Makes this process a worker."""
        load_plugins(self.plugins)
        if self.accelerator is None:
            use_one_thread()  # Ray does not know of XLA's threads
        prepare(self.log, self.accelerator)


def _piece(work: Work, task: Any, place: int, desk: Any, settings: _Settings) -> tuple[str, str | None]:
    """What runs on the cluster."""
    if not ray.get(desk.admit.remote(place)):
        return "stopped", None
    outputs = {number: os.dup(number) for number in (1, 2)}
    settings.apply()
    try:
        return attempt(work, task, DeskLine(desk, place))
    finally:
        for number, output in outputs.items():  # Ray writes there between pieces
            os.dup2(output, number)
            os.close(output)


def _outcome(ref: ray.ObjectRef) -> tuple[Any, str | None]:
    try:
        return ray.get(ref)
    except RayError as error:
        cause = " ".join(str(error).split())[:200]
        return "failed", f"its process died {RETRIES + 1} times ({cause}); the same command goes on with it"
