"""One seed of a pixel loop, with the face that runs, checkpoints and the API know."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.envs.frames import STACK
from paramnoise.policies import Policy
from paramnoise.training import core
from paramnoise.training.frame_replay import FrameReplay, HostFrames, Slot
from paramnoise.training.pixel import Pending, PixelLoop
from paramnoise.training.vector_loop import below
from paramnoise.validation import UsageError


class PixelState(NamedTuple):
    """All that changes in the training of one seed, but for replay and environments."""

    learner: Any
    exploration: Any
    losses: core.Losses
    step: Array


class PixelMember:
    """One of the seeds that a pixel loop trains; `run` is for a loop of one seed."""

    def __init__(self, loop: PixelLoop, member: int, *, save_replay: bool = True):
        """Takes a place among the loop's seeds; without `save_replay` a resumed run fills its replay anew first."""
        self.loop, self._member, self._save_replay = loop, member, save_replay
        self.seed = loop.seeds[member]

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return self.loop.step

    @property
    def episodes(self) -> int:
        """Games so far."""
        return int(self.loop.games[self._member])

    @property
    def policy(self) -> Policy:
        """The clean policy, as learned so far."""
        return self.loop.policy(self._member)

    @property
    def state(self) -> PixelState:
        """The state of training."""
        learned, explored = ([leaf[self._member] for leaf in leaves] for leaves in self.loop.leaves)
        learner, losses, exploration = self.loop.programs.unflatten(learned, explored)
        return PixelState(learner, exploration, losses, jnp.int32(self.step))

    def run(self, steps: int, **settings: Any) -> Iterator[dict[str, float]]:
        """As `PixelLoop.run`, of one seed."""
        for rows in self.loop.run(steps, **settings):
            yield rows[0]

    @property
    def stack_shape(self) -> tuple[int, int, int]:
        """The shape of an observation: frames, height, width."""
        return STACK, *self.loop.envs.frame_shape

    def evaluate(self, episodes: int, seed: int, on_frame: Callable[[np.ndarray], None] | None = None) -> np.ndarray:
        """The scores of noise-free games on environments of their own; `on_frame` sees each frame of the first game."""
        seeds = [seed] * len(self.loop.seeds)
        place = self._member * episodes
        watch = None if on_frame is None else lambda frames: on_frame(frames[place])
        return self.loop.evaluate(episodes, seeds, watch)[self._member]

    def close(self) -> None:
        """Closes all environments of the loop."""
        self.loop.close()

    def snapshot(self) -> tuple[PixelState, dict[str, np.ndarray]]:
        """All that is needed to go on as if never interrupted; the environments' part is that of all the seeds.

        Replay in the host's memory is not copied: write the snapshot down before training goes on.
        """
        loop, here = self.loop, self._member
        own = {
            "seeds": np.array(loop.seeds),
            "stack": np.asarray(loop.stack[here]),
            "frame": np.asarray(loop.frame[here]),
            "starts": loop.starts[here].copy(),
            "resets": loop.resets[here].copy(),
            "running_return": loop.running_return[here].copy(),
            "ended_returns": np.array(loop.ended[here]),
            "games": loop.games[here].copy(),
        }
        own |= {f"env/{name}": array for name, array in loop.envs.snapshot().items()}
        if loop.pending is not None:
            own |= {f"pending/{name}": np.asarray(part[here]) for name, part in _parts(loop.pending).items()}
        if self._save_replay:
            own |= _filled(loop.replay_of(here))
        return self.state, own

    def restore(self, state: PixelState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot; the environments replay their games once, for the first of the seeds."""
        loop, here = self.loop, self._member
        if own["seeds"].tolist() != list(loop.seeds):
            together = " ".join(map(str, own["seeds"]))
            raise UsageError(f"seeds {together} were trained side by side and go on only together")
        learned, explored = loop.leaves
        new_learned, new_explored = jax.tree.leaves((state.learner, state.losses)), jax.tree.leaves(state.exploration)
        put = lambda leaves, new: [x.at[here].set(y) for x, y in zip(leaves, new, strict=True)]  # noqa: E731
        loop.leaves = put(learned, new_learned), put(explored, new_explored)
        loop.stack = loop.stack.at[here].set(own["stack"])
        loop.frame = _with(loop.frame, here, own["frame"])
        loop.starts[here], loop.resets[here] = own["starts"], own["resets"]
        loop.running_return[here], loop.games[here] = own["running_return"], own["games"]
        loop.ended[here] = own["ended_returns"].tolist()
        loop.step = int(state.step)
        loop.pending = _restored_pending(loop, here, below("pending/", own))
        if here == 0:
            loop.envs.restore(below("env/", own))
        kept = below("replay/", own)
        if kept:
            loop.fill_replay(here, kept)
        else:
            loop.learns_from = loop.step + max(loop.learner.config.learning_starts, loop.num_envs)


def _parts(pending: Pending) -> dict[str, Any]:
    parts = {**pending.slot._asdict(), "truncated": pending.truncated, "final_frame": pending.final_frame}
    return {name: part for name, part in parts.items() if part is not None}


def _restored_pending(loop: PixelLoop, here: int, parts: dict[str, np.ndarray]) -> Pending | None:
    if not parts:
        return None
    blank = {name: np.zeros((len(loop.seeds), *part.shape), part.dtype) for name, part in parts.items()}
    held = blank if loop.pending is None else {**blank, **_parts(loop.pending)}
    new = {name: _with(held[name], here, part) for name, part in parts.items()}
    slot = Slot(*(new[name] for name in Slot._fields))
    return Pending(slot, new["truncated"], new.get("final_frame"))


def _with(array: Any, here: int, part: np.ndarray) -> np.ndarray:
    changed = np.array(array)
    changed[here] = part
    return changed


def _filled(replay: FrameReplay | HostFrames) -> dict[str, np.ndarray]:
    """The slots of a replay that were ever written."""
    state = replay.state if isinstance(replay, HostFrames) else replay
    rows = min(int(np.max(np.asarray(state.written))), state.is_final.shape[0])
    parts = {**state.slots._asdict(), "is_final": state.is_final}
    return {
        **{f"replay/{name}": np.asarray(part[:rows]) for name, part in parts.items()},
        "replay/written": np.asarray(state.written),
    }
