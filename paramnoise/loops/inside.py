"""Training inside one compiled program: environments written in JAX, exploration, replay and learner.

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
from paramnoise.loops import step as steps
from paramnoise.loops.compiled import AXES, SEEDS, LoopState
from paramnoise.loops.environments import JaxEnv
from paramnoise.loops.evaluation import Progress, require_finite
from paramnoise.loops.sharing import shared
from paramnoise.loops.step import TrainState
from paramnoise.networks.policies import Policy

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
    ):
        """Makes the states; nothing is stepped yet. The arguments are those of `HostLoop`."""
        self.progress = Progress(seeds, num_envs)
        self._learner, self._seeds = learner, tuple(seeds)
        self.num_envs = num_envs
        """Environments of each seed."""
        init, self._run, self._report = shared(
            learner,
            exploration,
            (env.reset, env.step, num_envs, terminal_time_limits),
            functools.partial(_programs, learner, exploration, env, num_envs, terminal_time_limits),
        )
        keys = jnp.stack([jax.random.PRNGKey(seed) for seed in seeds])
        steps.require_room(jax.eval_shape(init, keys).train, 1)
        self._state: LoopState = init(keys)
        self._loss_names = tuple(self._state.train.losses.total)
        self._per_call = FIRST_CALL

    @property
    def policies(self) -> Policy:
        """The clean policies, with a leading axis of seeds."""
        return jax.vmap(self._learner.policy)(self._state.train.learner)

    def advance(self, on_step: Callable[[int], None], should_stop: Callable[[], bool], until: int) -> bool:
        """Some steps of every environment with all the learning that is due, as far as `until` at most."""
        count = min(self._per_call, -(-(until - self.progress.step) // self.num_envs))
        began = time.perf_counter()
        self._state = self._run(self._state, np.int32(count))
        episodes, total, ended = jax.device_get((self._state.episodes, self._state.ended_returns, self._state.ended))
        seconds = time.perf_counter() - began
        wanted = max(1, min(int(count * CALL_SECONDS / max(seconds, 1e-9)), MOST_GROWTH * count))
        if count == self._per_call or wanted < count:  # a short call says little of how long one could be
            self._per_call = wanted
        self.progress.step += count * self.num_envs
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

    def state(self, member: int = 0) -> TrainState:
        """The state of training of one seed."""
        return _at(self._state, member).train

    def snapshot(self, member: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        """All that is needed to go on as if never interrupted."""
        own = _at(self._state, member)
        arrays = jax.tree.leaves(own[1:])
        return own.train, {f"inside-{i}": np.asarray(array) for i, array in enumerate(arrays)}

    def restore(self, member: int, state: TrainState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot."""
        before, structure = jax.tree.flatten(_at(self._state, member)[1:])
        arrays = [jnp.asarray(own[f"inside-{i}"]) for i in range(len(before))]
        self._put(member, LoopState(state, *jax.tree.unflatten(structure, arrays)))

    def restore_learned(self, member: int, state: TrainState) -> None:
        """Knows what a state has learned, and is at its step; experience and environments are left as they are."""
        before = _at(self._state, member)
        self._put(member, before._replace(train=state._replace(experience=before.train.experience)))

    def close(self) -> None:
        """Nothing is open."""

    def _put(self, member: int, own: LoopState) -> None:
        self.progress.step = int(own.train.step)
        self._state = jax.tree.map(
            lambda axis, all_seeds, one: one if axis is None else all_seeds.at[member].set(one),
            _axes(self._state),
            self._state,
            own,
            is_leaf=lambda axis: axis is None,
        )


def _axes(state: LoopState) -> LoopState:
    """The axis of seeds of each array: 0, or None of what all seeds share."""
    return jax.tree.map(
        lambda axis, part: jax.tree.map(lambda _: axis, part),
        AXES,
        state,
        is_leaf=lambda axis: axis is None or axis == 0,
    )


def _at(state: LoopState, member: int) -> LoopState:
    """One seed's part."""
    return jax.tree.map(
        lambda axis, leaf: leaf if axis is None else leaf[member],
        _axes(state),
        state,
        is_leaf=lambda axis: axis is None,
    )


def _programs(
    learner: Learner, exploration: Exploration, env: JaxEnv, num_envs: int, terminal_time_limits: bool
) -> tuple[Any, Any, Any]:
    """The compiled programs: first states, so many steps, a report."""
    env = compiled.for_training(env, terminal_time_limits)
    init = functools.partial(compiled.init, learner, exploration, env, num_envs)
    advance = functools.partial(compiled.advance, learner, exploration, env)
    report = functools.partial(compiled.report, exploration)
    over_seeds = functools.partial(jax.vmap, axis_name=SEEDS)
    return (
        jax.jit(over_seeds(init, out_axes=AXES)),
        jax.jit(
            over_seeds(advance, in_axes=(AXES, None), out_axes=AXES),
            donate_argnums=0,
            compiler_options=compiled.compiler_options(),
        ),
        jax.jit(over_seeds(report, in_axes=(AXES,), out_axes=(AXES, 0)), donate_argnums=0),
    )
