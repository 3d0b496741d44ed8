"""Training inside one compiled program: environments written in JAX, exploration, experience and learner.

It stands in the host loop in place of `Stepping`: rows, evaluations, checkpoints and stops are the loop's, and between
two of them the device steps on its own.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.agents.base import Learner
from paramnoise.explorations.base import Exploration
from paramnoise.loops import compiled
from paramnoise.loops import devices as several
from paramnoise.loops.environments import JaxEnv
from paramnoise.loops.evaluation import Progress, require_finite
from paramnoise.loops.jax_steps import LoopState
from paramnoise.loops.sharing import shared
from paramnoise.loops.state import TrainState, require_room
from paramnoise.networks.policies import Policy
from paramnoise.validation import require_memory

CALL_SECONDS = 0.5
"""About as long as a call of the program lasts: between calls a run can stop, and its bar moves."""
FIRST_CALL = 8
"""Steps of every environment in the first call, whose speed is not known."""
MOST_GROWTH = 4
"""How many times as long as the one before a call may be."""


class Inside:
    """Training of one agent for each seed, all in one program; a collector of the host loop."""

    def __init__(
        self,
        learner: Learner,
        exploration: Exploration,
        env: JaxEnv,
        *,
        seeds: Sequence[int],
        num_envs: int,
        terminal_time_limits: bool,
        devices: int = 1,
    ):
        """Makes the states; nothing is stepped yet. The arguments are those of `HostLoop`."""
        self.progress = Progress(seeds, num_envs)
        self._learner, self._seeds = learner, tuple(seeds)
        self._steps_each = compiled.steps_between(learner, num_envs)
        self._piece = self._steps_each * num_envs
        how = (num_envs, terminal_time_limits, len(self._seeds), devices)
        init, self._run, self._report, self._places = shared(
            learner,
            exploration,
            (env.reset, env.step, *how),
            functools.partial(_programs, learner, exploration, env, *how),
        )
        keys = jnp.stack([jax.random.PRNGKey(seed) for seed in seeds])
        shape = jax.eval_shape(init, keys)
        require_room(shape.train, 1)
        self._require_room_for_offsets(exploration, shape)
        self._state: LoopState = init(keys)
        self._loss_names = tuple(self._state.train.losses.total)
        self._per_call = -(-FIRST_CALL // self._steps_each)

    def _require_room_for_offsets(self, exploration: Exploration, shape: LoopState) -> None:
        """Raises UsageError if what behaviour adds to the parameters at every step of a batch would not fit."""
        added = exploration.offsets(shape.train.exploration) if self._learner.needs_offsets else None
        if added is not None:  # [seeds, environments, parameters]
            size = self._steps_each * added.size * added.dtype.itemsize
            require_memory(size, f"the noise of a batch of {self._piece:,} steps")

    @property
    def policies(self) -> Policy:
        """The clean policies, with a leading axis of seeds."""
        return jax.vmap(self._learner.policy)(self._state.train.learner)

    def advance(self, on_step: Callable[[int], None], should_stop: Callable[[], bool], until: int) -> bool:
        """Some steps of every environment with all the learning that is due, as far as the first piece by `until`."""
        count = min(self._per_call, -(-(until - self.progress.step) // self._piece))
        began = time.perf_counter()
        self._state = self._run(self._state, np.int32(count))
        state = self._state
        counts = jax.device_get((state.episodes, state.ended_returns, state.ended))
        episodes, total, ended = (of_each.sum(axis=-1) for of_each in counts)
        seconds = time.perf_counter() - began
        wanted = max(1, min(int(count * CALL_SECONDS / max(seconds, 1e-9)), MOST_GROWTH * count))
        if count == self._per_call or wanted < count:  # a short call says little of how long one could be
            self._per_call = wanted
        self.progress.step += count * self._piece
        self.progress.episodes[:] = episodes
        self.progress.ended = [
            [float(own / number)] if number else [] for own, number in zip(total, ended, strict=True)
        ]
        on_step(self.progress.step)
        return True

    def columns(self) -> list[dict[str, float]]:
        """What a row of progress shows of learning and exploration, of each seed; means start anew."""
        trained = jax.device_get(self._state.train.losses.train_steps)
        self._state, shown = self._report(self._state)
        shown = jax.device_get(shown)
        rows = [{name: values[member].item() for name, values in shown.items()} for member in range(len(self._seeds))]
        for row, count in zip(rows, trained, strict=True):
            if count:
                require_finite({name: row[name] for name in self._loss_names}, self.progress.step)
        return rows

    def state(self, member: int = 0, *, experience: bool = True) -> TrainState:
        """The state of training of one seed."""
        state = self._at(member).train
        return state if experience else state._replace(experience=())

    def snapshot(self, member: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        """All that is needed to go on as if never interrupted."""
        own = self._at(member)
        arrays = jax.tree.leaves(own[1:])
        return own.train, {f"inside-{i}": np.asarray(array) for i, array in enumerate(arrays)}

    def restore(self, member: int, state: TrainState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot; raises ValueError if it is of another loop."""
        before, structure = jax.tree.flatten(self._at(member)[1:])
        arrays = [jnp.asarray(own[f"inside-{i}"]) for i in range(len(before))]
        for i, (array, held) in enumerate(zip(arrays, before, strict=True)):
            if (array.shape, array.dtype) != (held.shape, held.dtype):  # a number would fit any number of environments
                raise ValueError(f"inside-{i} is {array.dtype}{array.shape}, and {held.dtype}{held.shape} here")
        self._put(member, LoopState(state, *jax.tree.unflatten(structure, arrays)))

    def restore_learned(self, member: int, state: TrainState) -> None:
        """Knows what a state has learned, and is at its step; experience and environments are left as they are."""
        before = self._at(member)
        self._put(member, before._replace(train=state._replace(experience=before.train.experience)))

    def close(self) -> None:
        """Nothing is open."""

    def _put(self, member: int, own: LoopState) -> None:
        self.progress.step = int(own.train.step)
        state = jax.tree.map(
            lambda axis, all_seeds, one: one if axis is None else all_seeds.at[member].set(one),
            _axes(self._learner, self._state),
            self._state,
            own,
            is_leaf=lambda axis: axis is None,
        )
        self._state = state if self._places is None else jax.device_put(state, self._places)

    def _at(self, member: int) -> LoopState:
        """One seed's part."""
        return jax.tree.map(
            lambda axis, leaf: leaf if axis is None else leaf[member],
            _axes(self._learner, self._state),
            self._state,
            is_leaf=lambda axis: axis is None,
        )


def _axes(learner: Learner, state: LoopState) -> LoopState:
    """The axis of seeds of each array: 0, or None of what all seeds share."""
    return jax.tree.map(
        lambda axis, part: jax.tree.map(lambda _: axis, part),
        compiled.axes(learner),
        state,
        is_leaf=lambda axis: axis is None or axis == 0,
    )


def _programs(
    learner: Learner,
    exploration: Exploration,
    env: JaxEnv,
    num_envs: int,
    terminal_time_limits: bool,
    seeds: int,
    devices: int,
) -> tuple[Any, Any, Any, Any]:
    """The compiled programs: first states, so many steps, a report; and where arrays are, if not all on one device."""
    env, along = compiled.for_training(env, terminal_time_limits), compiled.axes(learner)
    over_seeds = compiled.over_seeds

    def init(num_envs: int) -> Any:
        return over_seeds(functools.partial(compiled.init, learner, exploration, env, num_envs), seeds, (0,), along)

    advance = functools.partial(compiled.advance, learner, exploration, env)
    report = functools.partial(compiled.report, exploration)
    places = None
    if devices > 1:
        places = several.shardings(init, functools.partial(_axes, learner), seeds, num_envs, devices)
    return (
        jax.jit(init(num_envs), out_shardings=places),
        jax.jit(
            over_seeds(advance, seeds, (along, None), along),
            donate_argnums=0,
            out_shardings=places,
            compiler_options=several.compiler_options(devices),
        ),
        jax.jit(
            over_seeds(report, seeds, (along,), (along, 0)),
            donate_argnums=0,
            out_shardings=None if places is None else (places, None),
        ),
        places,
    )
