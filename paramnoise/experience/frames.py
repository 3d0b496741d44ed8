"""Replay of frames: each is kept once, and stacks are put together when a batch is drawn.

Every environment has a ring of slots of its own. A slot holds the frame that an environment showed, and what was done
then: it is a transition, and the frame that it led to is in the next slot. Where a time limit cut an episode, one more
slot holds the final frame, to which no action belongs.

The functions are pure, for replay on the device that learns; `host_frames` has the same in the host's memory.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.experience import priorities as priority_tree
from paramnoise.experience.priorities import Priorities
from paramnoise.experience.replay import Drawing, Transition
from paramnoise.keys import TRAIN, key_at

STACK = 4
"""Frames that make an observation (app. A.1)."""
UNIFORM = Drawing()


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
    priorities: Priorities | None = None
    """Of the slots, if draws follow them; those in the host's memory are kept by who draws."""


class Drawn(NamedTuple):
    """Drawn transitions, before stacks are put together; arrays with a leading axis of the batch."""

    frames: Any
    """The frames of the stack and those that followed, one for each step, uint8[batch, STACK + 1, height, width]."""
    resets: Any
    """Where a game begins among them, bool[batch, STACK + 1]."""
    action: Any
    reward: Any
    terminated: Any
    num_steps: Any = None
    """With several steps per item: how many it has; `reward` is then [batch, n_step]."""
    probability: Any = None
    """With priorities: that with which it was drawn."""
    place: Any = None
    """With priorities: where it is among them."""


def resolved_place(replay_on: str) -> str:
    """Where frames are kept, `device` or `host`: `auto` is the device if it is a GPU."""
    auto = "host" if jax.default_backend() == "cpu" else "device"
    return auto if replay_on == "auto" else replay_on


def rows_for(capacity: int, num_envs: int) -> int:
    """The slots of a ring, so that all rings together hold `capacity` transitions with their whole stacks."""
    return max(capacity // num_envs, 1) + STACK + 1


def init(capacity: int, slot: Slot, *, prioritized: bool = False) -> FrameReplay:
    """An empty replay for slots like the one given, of which only shape and dtype matter."""
    num_envs = slot.reward.shape[0]
    rows = rows_for(capacity, num_envs)
    return FrameReplay(
        jax.tree.map(lambda x: jnp.zeros((rows, *x.shape), x.dtype), slot),
        jnp.zeros((rows, num_envs), bool),
        jnp.zeros(num_envs, jnp.int32),
        priority_tree.init(rows * num_envs) if prioritized else None,
    )


def add(replay: FrameReplay, slot: Slot) -> FrameReplay:
    """Writes a slot of every environment over its oldest."""
    rows, num_envs = replay.is_final.shape
    where = (replay.written % rows, jnp.arange(num_envs))
    priorities = replay.priorities
    if priorities is not None:
        follows_final = replay.is_final[(replay.written - 1) % rows, jnp.arange(num_envs)]
        priorities = with_slot(priorities, replay.written, follows_final, jnp.ones(num_envs, bool), rows)
    return FrameReplay(
        jax.tree.map(lambda ring, new: ring.at[where].set(new.astype(ring.dtype)), replay.slots, slot),
        replay.is_final.at[where].set(False),
        replay.written + 1,
        priorities,
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
    priorities = replay.priorities
    if priorities is not None:
        priorities = with_slot(priorities, replay.written, jnp.zeros(num_envs, bool), truncated, rows)
    return FrameReplay(slots, is_final, replay.written + truncated, priorities)


def with_slot(priorities: Priorities, written: Array, follows_final: Array, writes: Array, rows: int) -> Priorities:
    """The priorities once one more slot is written, in the environments where `writes` is true.

    The slot before it can be drawn from now on, unless it holds a final frame; it itself cannot, and no more can the
    one whose stack it cuts.
    """
    num_envs = written.shape[0]
    slots = jnp.stack([written - 1, written, written - rows + STACK])
    new = jnp.where(follows_final, 0.0, priorities.highest)
    values = jnp.stack([new, jnp.zeros(num_envs), jnp.zeros(num_envs)])
    places = slots % rows * num_envs + jnp.arange(num_envs)
    places = jnp.where(writes & (slots >= 0), places, priority_tree.NOWHERE)
    return priority_tree.set_at(priorities, places.ravel(), values.ravel())


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


def draw(
    key: Array, step: Array, replay: FrameReplay, count: int, n_step: int = 1, batch_size: int | None = None
) -> Drawn:
    """Draws items with replacement: by priority if there are any, else uniformly.

    Args:
        key: the seed's.
        step: the environment step, which decides the draw with it.
        replay: what was added.
        count: how many to draw. Uniform draws take the last transition of a cut episode for its final frame too.
        n_step: consecutive steps that make an item.
        batch_size: of the batches that the draws are split into, for draws by priority; None: all are one.
    """
    rows, num_envs = replay.is_final.shape
    if replay.priorities is None:
        slot, env = positions(key, step, replay.written, rows, count)
        return drawn_at(replay, slot, env, n_step)
    place, probability = draw_places(key, step, replay.priorities, count, batch_size or count)
    drawn = drawn_at(replay, place // num_envs, place % num_envs, n_step)
    return drawn._replace(probability=probability, place=place)


def draw_places(key: Array, step: Array, priorities: Priorities, count: int, batch_size: int) -> tuple[Array, Array]:
    """Where `count` draws by priority at a step are, and the probability of each."""
    return priority_tree.draw(key_at(key, TRAIN, step), priorities, count, batch_size)


def drawn_at(replay: FrameReplay, slot: Any, env: Any, n_step: int = 1) -> Drawn:
    """What is kept in these slots, on the device or in NumPy; for a final frame the transition that led to it."""
    rows = replay.is_final.shape[0]
    slot = slot - replay.is_final[slot % rows, env]
    span = (slot[:, None] + np.arange(1 - STACK, n_step + 1)) % rows
    slots, here, envs = replay.slots, slot % rows, env[:, None]
    drawn = Drawn(
        frames=slots.frame[span, envs],
        resets=slots.resets[span, envs],
        action=slots.action[here, env],
        reward=slots.reward[here, env],
        terminated=slots.terminated[here, env],
    )
    if n_step == 1:
        return drawn
    taken, after = span[:, STACK - 1 : -1], span[:, STACK:]  # [batch, n_step]: each step, and what it led to
    is_there = np.arange(1, n_step) < (replay.written[env] - 1 - here)[:, None] % rows  # so is what it led to
    ends = slots.terminated[taken, envs] | replay.is_final[after, envs] | slots.resets[after, envs]
    num_steps = 1 + (is_there & ~ends[:, :-1]).cumprod(axis=1).sum(axis=1)
    last = (slot + num_steps - 1) % rows
    counts = np.arange(n_step) < num_steps[:, None]
    return drawn._replace(
        reward=slots.reward[taken, envs] * counts,
        terminated=slots.terminated[last, env],
        num_steps=num_steps.astype(np.int32),
    )


def in_batches(drawn: Drawn, batch_size: int) -> Drawn:
    """Draws split into batches, along a new first axis."""
    return jax.tree.map(lambda x: x.reshape(-1, batch_size, *x.shape[1:]), drawn)


def transitions(drawn: Drawn) -> Transition:
    """The batch that a learner takes, with whole stacks."""
    after, resets = drawn.frames[:, 1:], drawn.resets[:, 1:]
    if drawn.num_steps is not None:
        cut = jax.vmap(lambda rows, first: jax.lax.dynamic_slice_in_dim(rows, first - 1, STACK))
        after, resets = cut(after, drawn.num_steps), cut(resets, drawn.num_steps)
    return Transition(
        obs=_stacked(drawn.frames[:, :STACK], drawn.resets[:, :STACK]),
        action=drawn.action,
        reward=drawn.reward,
        next_obs=_stacked(after, resets),
        terminated=drawn.terminated,
        num_steps=drawn.num_steps,
        probability=drawn.probability,
    )


def blank_transition(stack: Array, drawing: Drawing = UNIFORM) -> Transition:
    """An item of each environment as a learner takes it, of black stacks."""
    num_envs = stack.shape[0]
    nothing, rewards = jnp.zeros(num_envs), jnp.zeros((num_envs, drawing.n_step))
    blank = Transition(stack, nothing.astype(jnp.int32), nothing, stack, nothing.astype(bool))
    if drawing.n_step > 1:
        blank = blank._replace(reward=rewards, num_steps=nothing.astype(jnp.int32))
    return blank if drawing.alpha is None else blank._replace(probability=nothing)


def push(stack: Array, frame: Array, resets: Array) -> Array:
    """The stacks, uint8[num_envs, STACK, height, width], after one more frame; a game begins on black frames."""
    kept = jnp.where(resets[:, None, None, None], 0, stack[:, 1:])
    return jnp.concatenate([kept, frame[:, None]], axis=1)


def _stacked(frames: Array, resets: Array) -> Array:
    """Frames, with those black that came before a game began."""
    # A frame belongs to the stack if no game began after it.
    begun_after = jnp.cumsum(resets[:, ::-1], axis=1)[:, ::-1] - resets
    return jnp.where((begun_after > 0)[:, :, None, None], jnp.uint8(0), frames)


def filled(replay: FrameReplay) -> dict[str, np.ndarray]:
    """The slots that were ever written, as arrays by name."""
    rows = min(int(np.max(np.asarray(replay.written))), replay.is_final.shape[0])
    parts = {**replay.slots._asdict(), "is_final": replay.is_final}
    return {
        **{name: np.asarray(part[:rows]) for name, part in parts.items()},
        "written": np.asarray(replay.written),
    }


def filled_with(replays: FrameReplay, member: int, parts: dict[str, np.ndarray]) -> FrameReplay:
    """The replays of several seeds on the device, with what `filled` gave put back into one of them."""
    new = as_replay(parts)
    rows = new.is_final.shape[0]
    slots, is_final = jax.tree.map(
        lambda old, part: old.at[member, :rows].set(part), replays[:2], (new.slots, new.is_final)
    )
    return replays._replace(slots=slots, is_final=is_final, written=replays.written.at[member].set(new.written))


def as_replay(parts: dict[str, np.ndarray]) -> FrameReplay:
    """What `filled` gave, as a replay of as many slots."""
    return FrameReplay(Slot(*(parts[name] for name in Slot._fields)), parts["is_final"], parts["written"])
