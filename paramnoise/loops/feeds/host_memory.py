"""The frames of several seeds in the host's memory: what happens is stored there, and batches are drawn from there.

Priorities are kept where it is learned: a draw by them is made there, and only its places come to the host.
"""

import functools
from typing import Any

import jax
import numpy as np

from paramnoise.agents.base import Learner
from paramnoise.experience import frames as stores
from paramnoise.experience import priorities as priority_tree
from paramnoise.experience.frames import Drawn, Slot
from paramnoise.experience.host_frames import HostFrames


class HostMemory:
    """A replay for each seed; arrays have leading axes of seeds and environments."""

    def __init__(self, learner: Learner, slot: Slot, keys: np.ndarray):
        """Begins with empty replays.

        Args:
            learner: the agent.
            slot: what a step of one seed adds; only shape and dtype matter.
            keys: those of the seeds.
        """
        self._keys, self._drawing, self._batch_size = keys, learner.drawing, learner.config.batch_size
        self._shape = (len(keys), slot.reward.shape[0])
        self._rows = stores.rows_for(learner.config.buffer_size, slot.reward.shape[0])
        self.replays = [HostFrames(learner.config.buffer_size, slot) for _ in keys]

    def priorities(self) -> Any:
        """The first ones, of empty replays; nothing if draws are uniform."""
        if not self._prioritized:
            return ()
        tree = functools.partial(priority_tree.init, self._rows * self._shape[1])
        return jax.jit(jax.vmap(lambda _: tree()))(self._keys)

    def add(self, slot: Slot, priorities: Any) -> Any:
        """Stores a step; returns the priorities after it."""
        written = self._written()
        for member, replay in enumerate(self.replays):
            replay.add(Slot(*(np.asarray(part[member]) for part in slot)))
        return self._with_one_more(priorities, written, np.ones(self._shape, bool)) if self._prioritized else priorities

    def draw(self, step: int, count: int, priorities: Any) -> Drawn:
        """So many items of each seed, in batches."""
        if self._prioritized:
            found = _draw_places(self._keys, np.int32(step), priorities, count, self._batch_size)
            pairs = zip(self.replays, *map(np.asarray, found), strict=True)
            drawn = [replay.take(*own, self._drawing.n_step) for replay, *own in pairs]
        else:
            keyed = zip(self.replays, self._keys, strict=True)
            drawn = [replay.draw(key, np.int32(step), count, self._drawing.n_step) for replay, key in keyed]
        return jax.tree.map(
            lambda *parts: np.stack(parts), *(stores.in_batches(each, self._batch_size) for each in drawn)
        )

    def add_final(self, frame: np.ndarray, truncated: np.ndarray) -> None:
        """Stores the last frames of episodes that were cut; `note_final` tells the priorities of them."""
        for member, replay in enumerate(self.replays):
            replay.add_final(frame[member], truncated[member])

    def note_final(self, truncated: np.ndarray, priorities: Any) -> Any:
        """The priorities once the last frames of cut episodes have slots, which `add_final` has given them."""
        if not self._prioritized:
            return priorities
        return self._with_one_more(priorities, self._written() - truncated, truncated)

    @property
    def _prioritized(self) -> bool:
        return self._drawing.alpha is not None

    def _written(self) -> np.ndarray:
        """The slots that were written, [seeds, num_envs]."""
        return np.stack([replay.state.written for replay in self.replays])

    def _with_one_more(self, priorities: Any, written: np.ndarray, writes: np.ndarray) -> Any:
        """The priorities with one more slot, after those of `written`."""
        follows_final = [replay.follows_final(own) for replay, own in zip(self.replays, written, strict=True)]
        return _with_slot(priorities, written, np.stack(follows_final), writes, self._rows)


_draw_places = jax.jit(
    lambda keys, step, trees, count, batch_size: jax.vmap(
        lambda key, tree: stores.draw_places(key, step, tree, count, batch_size)
    )(keys, trees),
    static_argnums=(3, 4),
)
_with_slot = jax.jit(
    lambda trees, written, follows_final, writes, rows: jax.vmap(functools.partial(stores.with_slot, rows=rows))(
        trees, written, follows_final, writes
    ),
    static_argnums=4,
    donate_argnums=0,
)
