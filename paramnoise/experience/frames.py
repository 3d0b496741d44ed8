"""Replay of frames: each is kept once, and stacks are put together when a batch is drawn.

Every environment has a ring of slots of its own. A slot holds the frame that an environment showed, and what was done
then: it is a transition, and the frame that it led to is in the next slot. Where a time limit cut an episode, one more
slot holds the final frame, to which no action belongs.

The functions are pure, for replay on the device that learns; `HostFrames` is the same in NumPy, for replay in the
host's memory. Both draw the same transitions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.experience.replay import Transition
from paramnoise.keys import TRAIN, key_at
from paramnoise.validation import UsageError

STACK = 4
"""Frames that make an observation (app. A.1)."""


class Slot(NamedTuple):
    """What one step of every environment adds: arrays with a leading axis of environments."""

    frame: Any
    """The newest frame of the observation, uint8[num_envs, height, width]."""
    resets: Any
    """Whether a game begins with it, so that the frames before it are none of its stack."""
    action: Any
    reward: Any
    terminated: Any


class FrameReplay(NamedTuple):
    """The rings: arrays with leading axes of slots and environments."""

    slots: Slot
    is_final: Any
    """Whether a slot holds the last frame of an episode that was cut, and no transition."""
    written: Any
    """Slots ever written, of each environment."""


class Drawn(NamedTuple):
    """Drawn transitions, before stacks are put together; arrays with a leading axis of the batch."""

    frames: Any
    """The frames of the stack and the one that followed, uint8[batch, STACK + 1, height, width]."""
    resets: Any
    """Where a game begins among them, bool[batch, STACK + 1]."""
    action: Any
    reward: Any
    terminated: Any


def resolved_place(replay_on: str) -> str:
    """Where frames are kept, `device` or `host`: `auto` is the device if it is a GPU."""
    auto = "host" if jax.default_backend() == "cpu" else "device"
    return auto if replay_on == "auto" else replay_on


def rows_for(capacity: int, num_envs: int) -> int:
    """The slots of a ring, so that all rings together hold `capacity` transitions with their whole stacks."""
    return max(capacity // num_envs, 1) + STACK + 1


def init(capacity: int, slot: Slot) -> FrameReplay:
    """An empty replay for slots like the one given, of which only shape and dtype matter."""
    num_envs = slot.reward.shape[0]
    rows = rows_for(capacity, num_envs)
    return FrameReplay(
        jax.tree.map(lambda x: jnp.zeros((rows, *x.shape), x.dtype), slot),
        jnp.zeros((rows, num_envs), bool),
        jnp.zeros(num_envs, jnp.int32),
    )


def add(replay: FrameReplay, slot: Slot) -> FrameReplay:
    """Writes a slot of every environment over its oldest."""
    rows, num_envs = replay.is_final.shape
    where = (replay.written % rows, jnp.arange(num_envs))
    return FrameReplay(
        jax.tree.map(lambda ring, new: ring.at[where].set(new.astype(ring.dtype)), replay.slots, slot),
        replay.is_final.at[where].set(False),
        replay.written + 1,
    )


def add_final(replay: FrameReplay, frame: Array, truncated: Array) -> FrameReplay:
    """Writes one more slot where a time limit cut the episode: the frame after its last action."""
    rows, num_envs = replay.is_final.shape
    row = jnp.where(truncated, replay.written % rows, rows)  # beyond the ring: not written
    where = (row, jnp.arange(num_envs))
    slots = replay.slots._replace(
        frame=replay.slots.frame.at[where].set(frame, mode="drop"),
        resets=replay.slots.resets.at[where].set(False, mode="drop"),
    )
    is_final = replay.is_final.at[where].set(True, mode="drop")
    return FrameReplay(slots, is_final, replay.written + truncated)


def positions(key: Array, step: Array, written: Array, rows: int, count: int) -> tuple[Array, Array]:
    """The slot (as numbered by `written`) and the environment of `count` draws at a step, uniform over all slots.

    A slot qualifies if the frame that followed it and the frames of its stack are still there.
    """
    env_key, slot_key = jax.random.split(key_at(key, TRAIN, step))
    env = jax.random.randint(env_key, (count,), 0, written.shape[0])
    last = written[env] - 2
    first = jnp.maximum(written[env] - rows + STACK, 0)
    slot = jax.random.randint(slot_key, (count,), first, jnp.maximum(last, first) + 1)
    return slot, env


def begin_after(replay: FrameReplay, member: Array, before: Array) -> FrameReplay:
    """Replays of several seeds, of which one is empty and begins in the midst of games, after these frames.

    They go where the slots before the first would be, at the ring's end: the stacks of the first slots reach them, and
    no draw takes them for transitions. `before` is what `frames_before` gave.
    """
    frame = replay.slots.frame.at[member, 1 - STACK :].set(before)
    return replay._replace(slots=replay.slots._replace(frame=frame))


def frames_before(stacks: np.ndarray) -> np.ndarray:
    """The frames before the newest of each environment's stack, [STACK - 1, num_envs, height, width]."""
    return np.moveaxis(stacks[:, :-1], 1, 0)


def draw(key: Array, step: Array, replay: FrameReplay, count: int) -> Drawn:
    """Draws transitions uniformly, with replacement; the last one of a cut episode is drawn for its final frame too."""
    rows = replay.is_final.shape[0]
    slot, env = positions(key, step, replay.written, rows, count)
    return _drawn_at(replay, slot, env)


def _drawn_at(replay: FrameReplay, slot: Any, env: Any) -> Drawn:
    """What is kept in these slots, on the device or in NumPy; for a final frame the transition that led to it."""
    rows = replay.is_final.shape[0]
    slot = slot - replay.is_final[slot % rows, env]
    span = (slot[:, None] + np.arange(1 - STACK, 2)) % rows
    slots, here = replay.slots, slot % rows
    return Drawn(
        frames=slots.frame[span, env[:, None]],
        resets=slots.resets[span, env[:, None]],
        action=slots.action[here, env],
        reward=slots.reward[here, env],
        terminated=slots.terminated[here, env],
    )


def transitions(drawn: Drawn) -> Transition:
    """The batch that a learner takes, with whole stacks."""
    return Transition(
        obs=_stacked(drawn.frames[:, :-1], drawn.resets[:, :-1]),
        action=drawn.action,
        reward=drawn.reward,
        next_obs=_stacked(drawn.frames[:, 1:], drawn.resets[:, 1:]),
        terminated=drawn.terminated,
    )


def blank_transition(stack: Array) -> Transition:
    """A transition of each environment as a learner takes it, of black stacks."""
    num_envs = stack.shape[0]
    nothing = jnp.zeros(num_envs)
    return Transition(stack, nothing.astype(jnp.int32), nothing, stack, nothing.astype(bool))


def push(stack: Array, frame: Array, resets: Array) -> Array:
    """The stacks, uint8[num_envs, STACK, height, width], after one more frame; a game begins on black frames."""
    kept = jnp.where(resets[:, None, None, None], 0, stack[:, 1:])
    return jnp.concatenate([kept, frame[:, None]], axis=1)


def _stacked(frames: Array, resets: Array) -> Array:
    """Frames, with those black that came before a game began."""
    # A frame belongs to the stack if no game began after it.
    begun_after = jnp.cumsum(resets[:, ::-1], axis=1)[:, ::-1] - resets
    return jnp.where((begun_after > 0)[:, :, None, None], jnp.uint8(0), frames)


_positions = jax.jit(positions, static_argnums=(3, 4))


class HostFrames:
    """The same replay in the host's memory."""

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

    def draw(self, key: np.ndarray, step: np.int32, count: int) -> Drawn:
        """Draws transitions uniformly, with replacement."""
        with jax.default_device(self._device):  # the accelerator is busy, and far
            slot, env = map(np.asarray, _positions(key, step, self.state.written, self._rows, count))
        return _drawn_at(self.state, slot, env)

    @property
    def _rows(self) -> int:
        return self.state.is_final.shape[0]


def _host_device() -> jax.Device:
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        raise UsageError("replay on the host needs JAX's CPU backend too: set JAX_PLATFORMS=cuda,cpu") from None


def filled(replay: FrameReplay) -> dict[str, np.ndarray]:
    """The slots that were ever written, as arrays by name."""
    rows = min(int(np.max(np.asarray(replay.written))), replay.is_final.shape[0])
    parts = {**replay.slots._asdict(), "is_final": replay.is_final}
    return {
        **{name: np.asarray(part[:rows]) for name, part in parts.items()},
        "written": np.asarray(replay.written),
    }


def fill(replay: FrameReplay, parts: dict[str, np.ndarray]) -> None:
    """Puts back what `filled` gave, into arrays of the host."""
    for old, part in zip(jax.tree.leaves(replay), jax.tree.leaves(_as_replay(parts)), strict=True):
        old[: len(part)] = part


def filled_with(replays: FrameReplay, member: int, parts: dict[str, np.ndarray]) -> FrameReplay:
    """The replays of several seeds on the device, with what `filled` gave put back into one of them."""
    new = _as_replay(parts)
    rows = new.is_final.shape[0]
    slots, is_final = jax.tree.map(
        lambda old, part: old.at[member, :rows].set(part), replays[:2], (new.slots, new.is_final)
    )
    return FrameReplay(slots, is_final, replays.written.at[member].set(new.written))


def _as_replay(parts: dict[str, np.ndarray]) -> FrameReplay:
    return FrameReplay(Slot(*(parts[name] for name in Slot._fields)), parts["is_final"], parts["written"])
