"""Replay of frames in the host's memory, in NumPy: what `frames` does on the device, with the same draws."""

import jax
import numpy as np

from paramnoise.experience.frames import STACK, Drawn, FrameReplay, Slot, as_replay, drawn_at, positions, rows_for
from paramnoise.validation import UsageError

_positions = jax.jit(positions, static_argnums=(3, 4))


class HostFrames:
    """A replay whose arrays are NumPy's, and written in place."""

    def __init__(self, capacity: int, slot: Slot):
        """An empty replay for slots like the one given, of which only shape and dtype matter."""
        num_envs = slot.reward.shape[0]
        rows = rows_for(capacity, num_envs)
        self.state = FrameReplay(
            Slot(*(np.zeros((rows, *x.shape), x.dtype) for x in slot)),
            np.zeros((rows, num_envs), bool),
            np.zeros(num_envs, np.int32),
        )
        self._envs = np.arange(num_envs)
        self._device = _host_device()

    def add(self, slot: Slot) -> None:
        """Writes a slot of every environment over its oldest."""
        where = (self.state.written % self._rows, self._envs)
        for ring, new in zip(self.state.slots, slot, strict=True):
            ring[where] = new
        self.state.is_final[where] = False
        self.state.written[:] += 1

    def add_final(self, frame: np.ndarray, truncated: np.ndarray) -> None:
        """Writes one more slot where a time limit cut the episode: the frame after its last action."""
        envs = self._envs[truncated]
        where = (self.state.written[envs] % self._rows, envs)
        self.state.slots.frame[where] = frame[envs]
        self.state.slots.resets[where] = False
        self.state.is_final[where] = True
        self.state.written[envs] += 1

    def begin_after(self, before: np.ndarray) -> None:
        """Begins in the midst of games, after these frames."""
        self.state.slots.frame[1 - STACK :] = before

    def draw(self, key: np.ndarray, step: np.int32, count: int, n_step: int = 1) -> Drawn:
        """Draws items uniformly, with replacement."""
        with jax.default_device(self._device):  # the accelerator is busy, and far
            slot, env = map(np.asarray, _positions(key, step, self.state.written, self._rows, count))
        return drawn_at(self.state, slot, env, n_step)

    def take(self, place: np.ndarray, probability: np.ndarray, n_step: int) -> Drawn:
        """The items at these places, which were drawn by priority."""
        num_envs = len(self._envs)
        drawn = drawn_at(self.state, place // num_envs, place % num_envs, n_step)
        return drawn._replace(probability=probability, place=place)

    def fill(self, parts: dict[str, np.ndarray]) -> None:
        """Puts back what `filled` gave."""
        for old, part in zip(jax.tree.leaves(self.state), jax.tree.leaves(as_replay(parts)), strict=True):
            old[: len(part)] = part

    def follows_final(self, written: np.ndarray) -> np.ndarray:
        """Whether the slot after those of `written` follows a final frame, bool[num_envs]."""
        return self.state.is_final[(written - 1) % self._rows, self._envs]

    @property
    def _rows(self) -> int:
        return self.state.is_final.shape[0]


def _host_device() -> jax.Device:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        raise UsageError("replay on the host needs JAX's CPU backend too: set JAX_PLATFORMS=cuda,cpu") from None
