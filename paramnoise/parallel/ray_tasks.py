"""Ray actors that each hold an object of their own: as `local_tasks`, on one machine or many; who dies is replaced.

A message is put into Ray's store once, and each actor takes it from there once. The order of results does not matter,
so none depends on who ran what.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from paramnoise.parallel.local_tasks import Work
from paramnoise.parallel.process import compute_on_cpu, told
from paramnoise.parallel.ray_cluster import POLL_SECONDS, RETRIES, connect, remote
from paramnoise.plugins import load_plugins, plugin_names
from paramnoise.validation import RunError


class RayTasks:
    """Ray actors of one CPU each.

    An actor gets work once it is ready: on a cluster with fewer free CPUs than `workers` those that fit do it all.
    """

    def __init__(self, make: Callable[[], Work], workers: int, address: str | None):
        """Joins the cluster; actors start when first needed."""
        connect(address, workers)
        self._make, self._workers = make, workers
        self._starting: dict[ray.ObjectRef, _Actor] = {}
        self._idle: list[_Actor] = []
        self._busy: dict[ray.ObjectRef, tuple[_Actor, int]] = {}
        self._deaths: dict[int | None, int] = {}

    def run(self, message: Any, tasks: Sequence[Any]) -> Generator[list[Any]]:
        """Does the tasks, in any order; yields now and then the results of those that ended.

        Whoever stops asking before all have ended loses the work, and nothing else.
        """
        waiting = list(range(len(tasks)))[::-1]
        self._deaths.clear()
        whole = False
        try:
            self._hire()
            sent = ray.put(message)
            while waiting or self._busy:
                while waiting and self._idle:
                    actor, place = self._idle.pop(), waiting.pop()
                    self._busy[actor.give(sent, tasks[place])] = actor, place
                ready, _ = ray.wait([*self._busy, *self._starting], timeout=POLL_SECONDS)
                yield [result for ref in ready for result in self._take(ref, waiting)]
            whole = True
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        """Ends the actors, whatever they are at."""
        for actor in (*self._starting.values(), *self._idle, *(actor for actor, _ in self._busy.values())):
            actor.end()
        self._starting, self._idle, self._busy = {}, [], {}

    def _hire(self) -> None:
        """Starts as many actors as are missing."""
        for _ in range(self._workers - len(self._starting) - len(self._idle) - len(self._busy)):
            actor = _Actor(self._make)
            self._starting[actor.ready()] = actor

    def _take(self, ref: ray.ObjectRef, waiting: list[int]) -> list[Any]:
        """What an actor has to say: that it is ready, or its result. If it has died its task waits again."""
        actor, place = (self._starting.pop(ref), None) if ref in self._starting else self._busy.pop(ref)
        try:
            is_error, answer = ray.get(ref)
        except (RayActorError, RayTaskError) as error:
            self._bury(place, error)
            if place is not None:
                waiting.append(place)
            self._hire()
            return []
        if is_error:
            raise RunError(*answer)
        self._idle.append(actor)
        self._deaths.pop(None, None)
        return [] if place is None else [answer]

    def _bury(self, place: int | None, error: Exception) -> None:
        """Counts a death; raises RunError if too many actors died over the same task, or before they were ready."""
        self._deaths[place] = self._deaths.get(place, 0) + 1
        if self._deaths[place] > RETRIES:
            when = "before they were ready" if place is None else f"over task {place}"
            cause = next(line for line in reversed(str(error).splitlines()) if line.strip())
            raise RunError(
                f"{RETRIES + 1} Ray actors died {when} ({cause.strip()}); --resume goes on from the checkpoint"
            )


class _Actor:
    """An actor, and what it knows."""

    def __init__(self, make: Callable[[], Work]):
        self._handle = remote(_Worker, num_cpus=1).remote(make, plugin_names())
        self._knows: Any = None

    def ready(self) -> ray.ObjectRef:
        """Comes true when the actor has its object."""
        return self._handle.ready.remote()

    def give(self, sent: ray.ObjectRef, task: Any) -> ray.ObjectRef:
        """Gives it a task; the message goes with the first one."""
        news = None if self._knows == sent else sent
        self._knows = sent
        return self._handle.do.remote(news, task)

    def end(self) -> None:
        """Kills it: it holds nothing that is worth saving."""
        ray.kill(self._handle)


class _Worker:
    """What runs on the cluster."""

    def __init__(self, make: Callable[[], Work], plugins: list[str]):
        load_plugins(plugins)
        compute_on_cpu()  # it asked the cluster for a CPU alone
        self._work = make()
        self._message: Any = None

    def ready(self) -> tuple[bool, None]:
        return False, None

    def do(self, news: Any, task: Any) -> tuple[bool, Any]:
        self._message = self._message if news is None else news
        try:
            return False, self._work(self._message, task)
        except Exception as error:
            return True, told(error)
