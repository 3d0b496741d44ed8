"""The feed of frames: each is kept once, on the device or in the host's memory, and learned from beside emulation.

Several seeds may train side by side: arrays then have a leading axis of seeds.
"""

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from paramnoise.agents.base import Learner
from paramnoise.experience import frames as stores
from paramnoise.experience.frames import Drawn, FrameReplay, Slot
from paramnoise.experience.priorities import Priorities
from paramnoise.explorations.base import Exploration
from paramnoise.keys import ADAPT
from paramnoise.loops import state as states
from paramnoise.loops import step as steps
from paramnoise.loops.environments import EnvStep
from paramnoise.loops.feeds import Taken, below
from paramnoise.loops.feeds.host_memory import HostMemory
from paramnoise.loops.state import TrainState
from paramnoise.validation import require_memory


class Pending(NamedTuple):
    """A step that happened and is not learned from yet; arrays with leading axes of seeds and environments."""

    slot: Slot
    truncated: np.ndarray
    final_frame: np.ndarray | None


class FrameFeed:
    """One step of all environments at a time: it is stored, and learned from as often as is due."""

    is_beside = True
    axes: tuple[int | None, ...] = (0, None)
    block: int | None = None
    waits = False
    begins = False
    holds = False
    remedy = "a lower rate may help"

    def __init__(
        self,
        learner: Learner,
        exploration: Exploration,
        seeds: Sequence[int],
        num_envs: int,
        *,
        on_host: bool,
        saves_replay: bool,
    ):
        """Begins with an empty replay.

        Args:
            learner: the agent.
            exploration: its exploration.
            seeds: those that train side by side.
            num_envs: environments of each.
            on_host: whether frames are kept in the host's memory.
            saves_replay: whether snapshots hold replay; without it a resumed run fills its replay anew first.
        """
        self._learner, self._exploration, self._saves_replay = learner, exploration, saves_replay
        self._shape = (len(seeds), num_envs)
        keys = np.stack([np.asarray(jax.random.PRNGKey(seed)) for seed in seeds])
        nothing = np.zeros(num_envs)
        frame = np.zeros((num_envs, *learner.spaces.observation[1:]), np.uint8)
        action, reward, flag = nothing.astype(np.int32), nothing.astype(np.float32), nothing.astype(bool)
        slot, capacity = Slot(frame, flag, action, reward, flag), learner.config.buffer_size
        require_memory(len(seeds) * capacity * frame[0].nbytes, f"a replay of {capacity:,} frames")
        self._prioritized = learner.drawing.alpha is not None
        self._host = HostMemory(learner, slot, keys) if on_host else None
        """Where frames are kept, unless on the device; `experience` is then the priorities alone."""
        empty = functools.partial(stores.init, capacity, slot, prioritized=self._prioritized)
        self.experience: Any = self._host.priorities() if self._host else jax.jit(jax.vmap(lambda _: empty()))(keys)
        self._pending: Pending | None = None
        self._ended: Pending | None = None
        self._learns_from = 0
        self.init: Callable[[Array, Array], TrainState] = functools.partial(init, learner, exploration)
        self.learn: Callable[..., TrainState] = functools.partial(learn, learner, exploration, on_host)
        self.settings: Hashable = (on_host,)

    def hold(self, *, for_episodes: bool) -> None:
        """Nothing waits here."""

    def acts_at_random(self, step: int) -> bool:
        """Until learning starts (app. A.1)."""
        return step < self._learner.config.learning_starts

    def begin(self, starts: np.ndarray, offsets: np.ndarray | None) -> None:
        """Nothing: a frame does not know its episode."""

    def add(self, obs: Any, resets: np.ndarray, actions: np.ndarray, after: EnvStep) -> None:
        """Keeps a step until `take`; `obs` are frames, by seed already."""
        slot = Slot(obs, *map(self._by_seed, (resets, actions, after.reward, after.terminated)))
        final = None if after.next_obs is None else self._by_seed(after.next_obs)
        self._pending = Pending(slot, self._by_seed(after.truncated), final)

    def is_due(self, before: int, after: int) -> bool:
        """Always, though only once the environments do their next step."""
        return True

    def take(self, step: int, *, all_of_it: bool = False) -> Taken | None:
        """Hands over the step before; what it led to is then on its way."""
        if self._pending is None or all_of_it:  # acting is one step behind: a snapshot keeps it so
            return None
        pending, self._pending = self._pending, None
        config, before = self._learner.config, step - self._shape[1]
        train_steps = steps.updates_by(config, step) - steps.updates_by(config, max(before, self._learns_from))
        # Of the very first step nothing can be drawn: what it led to is not in replay yet.
        train_steps = train_steps if step > max(self._learns_from, self._shape[1]) else 0
        due = steps.adaptations_by
        adaptations = due(self._exploration, step) - due(self._exploration, before)
        self._ended = pending
        given: Any = pending.slot
        if self._host is not None:
            given = self._store_and_draw(self._host, pending, step, train_steps, bool(train_steps or adaptations))
            if given is None:
                self.finish()
                return None
        return Taken((train_steps, adaptations > 0), (given, adaptations), step, train_steps > 0)

    def finish(self) -> None:
        """Stores the last frames of episodes that were cut, which no batch drawn meanwhile knew of."""
        ended, self._ended = self._ended, None
        if ended is None or ended.final_frame is None:
            return
        if self._host is not None:  # which has stored them
            self.experience = self._host.note_final(ended.truncated, self.experience)
        else:
            self.experience = _add_final(self.experience, ended.final_frame, ended.truncated)

    def snapshot(self, member: int) -> dict[str, np.ndarray]:
        """The step that waits, and replay if it is saved."""
        parts: dict[str, Any] = {}
        if self._pending is not None:
            parts |= {f"pending/{name}": np.asarray(part[member]) for name, part in _parts(self._pending).items()}
        if self._saves_replay:
            parts |= {f"replay/{name}": part for name, part in stores.filled(self._replay_of(member)).items()}
        if self._saves_replay and self._prioritized:
            leaves = jax.tree.leaves(states.at_member(self._priorities, member))
            parts |= {f"priorities/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        return parts

    def restore(self, member: int, parts: dict[str, np.ndarray], step: int) -> None:
        """Goes back to a snapshot; without its replay, learning waits until a new one is filled.

        `parts` has the stacks of the snapshot too, since a new replay begins with the newest frame of them.
        """
        pending = below("pending/", parts)
        self._pending = self._pending_with(member, pending) if pending else None
        kept = below("replay/", parts)
        if not kept:
            self._learns_from = step + max(self._learner.config.learning_starts, self._shape[1])
            before = stores.frames_before(parts["stacks"])
            if self._host is not None:
                self._host.replays[member].begin_after(before)
            else:
                self.experience = _begin_after(self.experience, member, before)
        elif self._host is not None:
            self._host.replays[member].fill(kept)
        else:
            self.experience = stores.filled_with(self.experience, member, kept)
        if kept and self._prioritized:
            self._restore_priorities(member, below("priorities/", parts))

    @property
    def _priorities(self) -> Priorities:
        """Those of all seeds."""
        return self.experience if self._host else self.experience.priorities

    def _restore_priorities(self, member: int, parts: dict[str, np.ndarray]) -> None:
        leaves, structure = jax.tree.flatten(self._priorities)
        own = jax.tree.unflatten(structure, [parts[str(i)] for i in range(len(leaves))])
        restored = states.with_member(self._priorities, member, own)
        self.experience = restored if self._host else self.experience._replace(priorities=restored)

    def _by_seed(self, array: Any) -> Any:
        return array.reshape(*self._shape, *array.shape[1:])

    def _store_and_draw(
        self, host: HostMemory, pending: Pending, step: int, train_steps: int, draws: bool
    ) -> Drawn | None:
        """Stores a step in the host's memory; the batches of the train steps that follow it, if any are to be drawn."""
        self.experience = host.add(pending.slot, self.experience)
        count = max(train_steps, 1) * self._learner.config.batch_size
        drawn = host.draw(step, count, self.experience) if draws else None
        if pending.final_frame is not None:
            host.add_final(pending.final_frame, pending.truncated)
        return drawn

    def _replay_of(self, member: int) -> FrameReplay:
        if self._host is not None:
            return self._host.replays[member].state
        return states.at_member(self.experience, member)

    def _pending_with(self, member: int, parts: dict[str, np.ndarray]) -> Pending:
        """The step that waits, with one seed's part of it."""
        blank = {name: np.zeros((self._shape[0], *part.shape), part.dtype) for name, part in parts.items()}
        held = blank if self._pending is None else {**blank, **_parts(self._pending)}
        new = {name: np.array(held[name]) for name in parts}
        for name, part in parts.items():
            new[name][member] = part
        return Pending(Slot(*(new[name] for name in Slot._fields)), new["truncated"], new.get("final_frame"))


def _parts(pending: Pending) -> dict[str, Any]:
    parts = {**pending.slot._asdict(), "truncated": pending.truncated, "final_frame": pending.final_frame}
    return {name: part for name, part in parts.items() if part is not None}


_begin_after = jax.jit(stores.begin_after, donate_argnums=0)
_add_final = jax.jit(jax.vmap(stores.add_final), donate_argnums=0)


def init(learner: Learner, exploration: Exploration, key: Array, obs: Array) -> TrainState:
    """The state before the first step; replay is not part of it."""
    return states.init(learner, exploration, key, obs, stores.blank_transition(obs, learner.drawing))


def learn(
    learner: Learner,
    exploration: Exploration,
    on_host: bool,
    variant: tuple[int, bool],
    state: TrainState,
    given: Any,
    adaptations: Array,
) -> TrainState:
    """Stores the step unless the host has stored it and drawn batches; then trains and adapts as often as is due.

    Args:
        learner: the agent.
        exploration: its exploration.
        on_host: whether frames are kept in the host's memory.
        variant: the train steps that are due, and whether adaptations are.
        state: the state of training.
        given: a slot, or the batches that the host has drawn.
        adaptations: how many are due.
    """
    train_steps, adapts = variant
    drawn, batch_size, drawing = given, learner.config.batch_size, learner.drawing
    priorities = state.experience if on_host and drawing.alpha is not None else None
    if not on_host:
        replay = stores.add(state.experience, given)
        priorities, state = replay.priorities, state._replace(experience=replay)
        if not (train_steps or adapts):
            return state
        count = max(train_steps, 1) * batch_size
        drawn = stores.in_batches(
            stores.draw(state.key, state.step, replay, count, drawing.n_step, batch_size), batch_size
        )

    def batch_at(i: Array | int, priorities: Any = None) -> tuple[Any, Array | None]:
        one = jax.tree.map(lambda x: x[i], drawn)
        return stores.transitions(one), one.place

    agent, losses, priorities = steps.train(learner, state.learner, state.losses, batch_at, train_steps, priorities)
    state = state._replace(learner=agent, losses=losses)
    if priorities is not None:
        experience = priorities if on_host else state.experience._replace(priorities=priorities)
        state = state._replace(experience=experience)
    if not adapts:
        return state
    batches, key = drawn.action.shape[0], states.key_for(state, ADAPT)

    def probe_at(i: Array) -> tuple[Array, Array]:
        return jax.random.fold_in(key, i), batch_at(i % batches)[0].obs

    policy = learner.policy(agent)
    explored = steps.adapt(exploration, state.exploration, policy, state.step, probe_at, adaptations)
    return state._replace(exploration=explored)
