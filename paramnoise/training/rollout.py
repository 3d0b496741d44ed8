"""The batch that an on-policy learner collects: preallocated arrays on the host, and the segments in them."""

import numpy as np

from paramnoise.agents.segments import Layout, cut
from paramnoise.agents.trpo import Rollout
from paramnoise.envs.vector import VectorStep

FIRST_CAPACITY = 32
"""Segments that the first program has room for."""


class RolloutBuffer:
    """The steps of all environments since the last update, [environments, steps, ...].

    Each episode in each environment is a segment with an offset of its own; so is the rest of an episode that began in
    the batch before.
    """

    def __init__(self, obs: np.ndarray, action: np.ndarray, steps: int, num_parameters: int):
        """Allocates room for `steps` steps of each environment, shaped as `obs` and `action`, [environments, ...]."""
        num_envs = len(obs)
        self._steps = steps
        self._obs = np.zeros((num_envs, steps, *obs.shape[1:]), obs.dtype)
        self._next_obs = np.zeros_like(self._obs)
        self._action = np.zeros((num_envs, steps, *action.shape[1:]), action.dtype)
        self._reward = np.zeros((num_envs, steps), np.float32)
        self._terminated, self._truncated = (np.zeros((num_envs, steps), bool) for _ in range(2))
        self._time, self._segments = (np.zeros((num_envs, steps), np.int32) for _ in range(2))
        self._offsets = np.zeros((FIRST_CAPACITY, num_parameters), np.float32)
        self._filled, self._num_segments = 0, 0
        self._segment, self._began = (np.zeros(num_envs, np.int32) for _ in range(2))

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

    def add(self, obs: np.ndarray, action: np.ndarray, after: VectorStep) -> None:
        """Adds a step of every environment."""
        t = self._filled
        self._obs[:, t], self._action[:, t], self._next_obs[:, t] = obs, action, after.next_obs
        self._reward[:, t], self._terminated[:, t], self._truncated[:, t] = (
            after.reward,
            after.terminated,
            after.truncated,
        )
        self._time[:, t], self._segments[:, t] = t - self._began, self._segment
        self._filled += 1

    def rollout(self, layout: Layout, fisher_layout: Layout, phase: int) -> Rollout:
        """The complete batch; its arrays are the buffer's own, and change when the next batch is collected."""
        segments, capacity = self._segments.reshape(-1), len(self._offsets)
        return Rollout(
            obs=self._obs,
            action=self._action,
            reward=self._reward,
            next_obs=self._next_obs,
            terminated=self._terminated,
            truncated=self._truncated,
            time=self._time,
            offsets=self._offsets,
            chunks=cut(segments, layout, capacity),
            fisher_chunks=cut(segments, fisher_layout, capacity, phase),
        )

    def clear(self) -> None:
        """Makes room for the next batch; the episodes go on."""
        self._began -= self._filled  # counted in steps of the batch, so it may lie before its first
        self._filled, self._num_segments = 0, 0

    def snapshot(self) -> dict[str, np.ndarray]:
        """All that the buffer holds."""
        t = self._filled
        return {
            **{name: getattr(self, f"_{name}")[:, :t].copy() for name in _ROWS},
            "offsets": self._offsets[: self._num_segments].copy(),
            "capacity": np.array(len(self._offsets)),
            "segment": self._segment.copy(),
            "began": self._began.copy(),
        }

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot."""
        self._filled = snapshot["obs"].shape[1]
        for name in _ROWS:
            getattr(self, f"_{name}")[:, : self._filled] = snapshot[name]
        self._num_segments = len(snapshot["offsets"])
        self._offsets = np.zeros((int(snapshot["capacity"]), self._offsets.shape[1]), np.float32)
        self._offsets[: self._num_segments] = snapshot["offsets"]
        self._segment, self._began = snapshot["segment"].copy(), snapshot["began"].copy()


_ROWS = ("obs", "next_obs", "action", "reward", "terminated", "truncated", "time", "segments")
