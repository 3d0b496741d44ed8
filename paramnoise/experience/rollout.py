"""The batch that an on-policy learner collects: preallocated arrays on the host, and the segments in them."""

from typing import Any, NamedTuple

import numpy as np

FIRST_CAPACITY = 32
"""Segments that the first program has room for."""


class Rollout(NamedTuple):
    """A batch of experience, [environments, steps, ...].

    A segment is the part of one episode that a batch holds; each has an offset of its own.
    """

    obs: Any
    action: Any
    """As sampled: what was executed is this clipped to the bounds."""
    reward: Any
    next_obs: Any
    """What the environment showed after the action; at an episode's end the final observation."""
    terminated: Any
    truncated: Any
    time: Any
    """The steps of the episode before this one."""
    segment: Any
    """The number of the segment that a step belongs to; those of one are neighbours along the steps."""
    offsets: Any
    """What each segment's behaviour added to the flat parameters, [segments, parameters]; [segments, 0]: nothing, so
    that a learner need not compute with zeros."""


class RolloutBuffer:
    """The steps of all environments since the last update, [environments, steps, ...].

    Each episode in each environment is a segment with an offset of its own; so is the rest of an episode that began in
    the batch before.
    """

    def __init__(self, obs: np.ndarray, action: np.ndarray, steps: int, num_parameters: int):
        """Allocates room for `steps` steps of each environment, shaped as `obs` and `action`, [environments, ...].

        `num_parameters` is the length of an offset: 0 where behaviour adds none.
        """
        shape = (len(obs), steps)
        self._steps = steps
        self._rows = {
            "obs": np.zeros((*shape, *obs.shape[1:]), obs.dtype),
            "action": np.zeros((*shape, *action.shape[1:]), action.dtype),
            "reward": np.zeros(shape, np.float32),
            "next_obs": np.zeros((*shape, *obs.shape[1:]), obs.dtype),
            "terminated": np.zeros(shape, bool),
            "truncated": np.zeros(shape, bool),
            "time": np.zeros(shape, np.int32),
            "segment": np.zeros(shape, np.int32),
        }
        self._by_step = {name: rows.swapaxes(0, 1) for name, rows in self._rows.items()}  # the same memory
        self._offsets = np.zeros((FIRST_CAPACITY, num_parameters), np.float32)
        self._filled, self._num_segments = 0, 0
        self._segment, self._began = (np.zeros(len(obs), np.int32) for _ in range(2))

    @property
    def filled(self) -> int:
        """The steps of each environment so far."""
        return self._filled

    @property
    def is_full(self) -> bool:
        """Whether the batch is complete."""
        return self._filled == self._steps

    def begin_segments(self, begins: np.ndarray, starts: np.ndarray, offsets: np.ndarray) -> None:
        """Begins a segment in some environments.

        Args:
            begins: where, bool[environments].
            starts: where an episode starts with it, and does not only go on.
            offsets: what each environment's behaviour adds to the parameters, [environments, parameters].
        """
        self._began[starts] = self._filled
        which = np.flatnonzero(begins)
        self._segment[which] = self._num_segments + np.arange(len(which))
        self._num_segments += len(which)
        if self._num_segments > len(self._offsets):
            # With room to spare: a larger table is another program to compile.
            more = np.zeros((2 ** int(np.ceil(np.log2(1.5 * self._num_segments))), self._offsets.shape[1]), np.float32)
            more[: len(self._offsets)] = self._offsets
            self._offsets = more
        self._offsets[self._segment[which]] = offsets[which]
        self._label(which)

    def _label(self, which: np.ndarray) -> None:
        """Writes segment and time of all steps to come in some environments; a later segment writes over them."""
        t = self._filled
        self._rows["segment"][which, t:] = self._segment[which, None]
        self._rows["time"][which, t:] = np.arange(t, self._steps) - self._began[which, None]

    def add(self, **step: np.ndarray) -> None:
        """Adds a step of every environment: the fields of a rollout up to `truncated`."""
        for name, part in step.items():
            self._by_step[name][self._filled] = part
        self._filled += 1

    def rollout(self) -> Rollout:
        """The complete batch; its arrays are the buffer's own, and change when the next batch is collected."""
        return Rollout(**self._rows, offsets=self._offsets)

    def clear(self) -> None:
        """Makes room for the next batch; the episodes go on."""
        self._began -= self._filled  # counted in steps of the batch, so it may lie before its first
        self._filled, self._num_segments = 0, 0

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that the buffer holds."""
        t = self._filled
        return {
            **{name: rows[:, :t].copy() for name, rows in self._rows.items()},
            "offsets": self._offsets[: self._num_segments].copy(),
            "capacity": np.array(len(self._offsets)),
            "current": self._segment.copy(),
            "began": self._began.copy(),
        }

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot."""
        self._filled = snapshot["obs"].shape[1]
        for name, rows in self._rows.items():
            rows[:, : self._filled] = snapshot[name]
        self._num_segments, capacity = len(snapshot["offsets"]), int(snapshot["capacity"])
        if capacity > max(FIRST_CAPACITY, 4 * self._rows["reward"].size):  # each step may be a segment, with room
            raise ValueError(f"a batch of {self._rows['reward'].size} steps has no {capacity} segments")
        width = self._offsets.shape[1]
        self._offsets = np.zeros((capacity, width), np.float32)
        self._offsets[: self._num_segments] = snapshot["offsets"][:, :width]  # older ones hold zeros for no offset
        self._segment, self._began = snapshot["current"].copy(), snapshot["began"].copy()
        self._label(np.arange(len(self._segment)))


class UnevenBuffer(RolloutBuffer):
    """The same for environments that skip a step now and then: each keeps as many steps, the first of its own.

    Those that skipped less wait for the others: what they do meanwhile is not kept. Nor is a part of a batch saved.
    """

    def __init__(self, obs: np.ndarray, action: np.ndarray, steps: int, num_parameters: int):
        """Allocates room as `RolloutBuffer` does."""
        super().__init__(obs, action, steps, num_parameters)
        self._own = np.zeros(len(obs), np.int32)

    @property
    def filled(self) -> int:
        """The most steps of an environment so far."""
        return int(self._own.max())

    @property
    def is_full(self) -> bool:
        """Whether the batch is complete."""
        return int(self._own.min()) == self._steps

    def begin_segments(self, begins: np.ndarray, starts: np.ndarray, offsets: np.ndarray) -> None:
        """Begins a segment in some environments."""
        super().begin_segments(begins, starts, offsets)
        self._began[starts] = self._own[starts]

    def _label(self, which: np.ndarray) -> None:
        """Nothing: how many steps each environment has is known when one is added."""

    def add(self, **step: np.ndarray) -> None:
        """Adds a step of the environments of the mask `where`, those that have enough apart."""
        where = step.pop("where")
        keeps = where & (self._own < self._steps)
        which = np.flatnonzero(keeps)
        place = (which, self._own[which])
        for name, part in step.items():
            self._rows[name][place] = part[which]
        self._rows["time"][place] = (self._own - self._began)[which]
        self._rows["segment"][place] = self._segment[which]
        self._own[which] += 1
        self._began[where & ~keeps] -= 1  # an episode's time passes in what is not kept too

    def clear(self) -> None:
        """Makes room for the next batch; the episodes go on."""
        self._began -= self._own
        self._own[:] = 0
        self._num_segments = 0
