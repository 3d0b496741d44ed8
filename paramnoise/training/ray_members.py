"""Ray actors that evaluate members: as `member_pool`, on one machine or many, and whoever dies is replaced.

The parameters are put into Ray's store once a generation, and each actor takes them from there once. What comes back is
the same few numbers per episode, whose order does not matter, so no result depends on who ran what.
"""

import os
from collections.abc import Generator, Sequence
from typing import Any

import jax
import ray
from ray.exceptions import RayActorError, RayTaskError

from paramnoise.training.members import Broadcast, Episode, MemberEvaluator, Setting
from paramnoise.training.ray_cluster import POLL_SECONDS, connect
from paramnoise.validation import RunError

RETRIES = 3
"""Actors that may die over the same episodes, or one after the other before they are ready."""


class RayMemberPool:
    """As `MemberEvaluator`, in Ray actors of one CPU each, which have their own environments.

    An actor gets work once it is ready: on a cluster with fewer free CPUs than `workers` those that fit do it all.
    """

    def __init__(self, setting: Setting, workers: int, address: str | None):
        """Joins the cluster; actors start when first needed."""
        connect(address, workers)
        self._setting, self._chunk, self._workers = setting, setting.num_envs, workers
        self._starting: dict[ray.ObjectRef, _Actor] = {}
        self._idle: list[_Actor] = []
        self._busy: dict[ray.ObjectRef, tuple[_Actor, Sequence[int]]] = {}
        self._deaths: dict[int | None, int] = {}

    def evaluate(self, broadcast: Broadcast, numbers: Sequence[int]) -> Generator[list[Episode]]:
        """Runs the episodes of these numbers, in any order; yields now and then those that ended.

        Whoever stops asking before all have ended loses the work, and nothing else.
        """
        waiting = [numbers[i : i + self._chunk] for i in range(0, len(numbers), self._chunk)][::-1]
        self._deaths.clear()
        whole = False
        try:
            self._hire()
            sent = ray.put(broadcast)
            while waiting or self._busy:
                while waiting and self._idle:
                    actor, chunk = self._idle.pop(), waiting.pop()
                    self._busy[actor.give(sent, chunk)] = actor, chunk
                ready, _ = ray.wait([*self._busy, *self._starting], timeout=POLL_SECONDS)
                yield [episode for ref in ready for episode in self._take(ref, waiting)]
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
            actor = _Actor(self._setting)
            self._starting[actor.ready()] = actor

    def _take(self, ref: ray.ObjectRef, waiting: list[Sequence[int]]) -> list[Episode]:
        """What an actor has to say: that it is ready, or its episodes. If it has died its work waits again."""
        actor, chunk = (self._starting.pop(ref), None) if ref in self._starting else self._busy.pop(ref)
        try:
            answer: Any = ray.get(ref)
        except (RayActorError, RayTaskError) as error:
            self._bury(None if chunk is None else chunk[0], error)
            if chunk is not None:
                waiting.append(chunk)
            self._hire()
            return []
        if isinstance(answer, str):
            raise RunError(answer)
        self._idle.append(actor)
        self._deaths.pop(None, None)
        return answer

    def _bury(self, place: int | None, error: Exception) -> None:
        """Counts a death, and raises RunError if there were too many of its kind."""
        self._deaths[place] = self._deaths.get(place, 0) + 1
        if self._deaths[place] > RETRIES:
            when = "before they were ready" if place is None else f"over the episodes from {place} on"
            cause = next(line for line in reversed(str(error).splitlines()) if line.strip())
            raise RunError(
                f"{RETRIES + 1} Ray actors died {when} ({cause.strip()}); --resume goes on from the checkpoint"
            )


class _Actor:
    """An actor, and what it knows."""

    def __init__(self, setting: Setting):
        evaluator: Any = ray.remote(num_cpus=1)(_Evaluator)
        self._handle = evaluator.remote(setting)
        self._knows: Any = None

    def ready(self) -> ray.ObjectRef:
        """Comes true when the actor has its environments."""
        return self._handle.ready.remote()

    def give(self, sent: ray.ObjectRef, numbers: Sequence[int]) -> ray.ObjectRef:
        """Gives it episodes; the parameters go with the first ones of a generation."""
        news = None if self._knows == sent else sent
        self._knows = sent
        return self._handle.evaluate.remote(news, numbers)

    def end(self) -> None:
        """Kills it: it holds nothing that is worth saving."""
        ray.kill(self._handle)


class _Evaluator:
    """What runs on the cluster."""

    def __init__(self, setting: Setting):
        if not os.environ.get("JAX_PLATFORMS"):
            jax.config.update("jax_platforms", "cpu")  # an actor computes nothing there
        self._evaluator = MemberEvaluator(setting)
        self._broadcast: Broadcast | None = None

    def ready(self) -> list[Episode]:
        return []

    def evaluate(self, news: Broadcast | None, numbers: Sequence[int]) -> list[Episode] | str:
        self._broadcast = self._broadcast if news is None else news
        assert self._broadcast is not None
        try:
            ended = self._evaluator.evaluate(self._broadcast, numbers)
            return [episode for episodes in ended for episode in episodes]
        except Exception as error:
            known = isinstance(error, RunError)
            return str(error) if known else f"{type(error).__name__}: {' '.join(str(error).split())}"
