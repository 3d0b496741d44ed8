"""The compiled programs of the pixel loop, for several seeds side by side.

A state crosses a call as the list of its arrays, each with a leading axis of seeds: flattening the modules at every
call would cost more than choosing actions does. What a program does not change it does not return, so that the policies
that act, which are as many networks as environments, are never copied.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.agents.learner import Learner
from paramnoise.exploration import Exploration
from paramnoise.policies import Policy
from paramnoise.training import core, frame_replay
from paramnoise.training.frame_replay import Drawn, FrameReplay, Slot

Leaves = list[Array]


class PixelPrograms:
    """One step of training on frames as functions of lists of arrays, for one agent and its exploration."""

    def __init__(self, learner: Learner, exploration: Exploration, keys: Array, stack: jax.ShapeDtypeStruct):
        """Takes the layout of the lists from a state of training; `stack` is that of one seed's environments."""
        self._learner, self._exploration = learner, exploration
        learned, explored = jax.eval_shape(functools.partial(self._init, stack), keys[0])
        self._learned, self._explored = jax.tree.structure(learned), jax.tree.structure(explored)
        self.loss_names = tuple(learned[1].total)
        self._adapted = self._changed_by_adapting(learned[0], explored, stack)
        self._own = self._kept_by_environment(learned[0], explored, stack)
        over_seeds = functools.partial(_jit_over_seeds, len(keys))
        self.init = over_seeds(lambda key: self._flat(*self._init(stack, key)), (0,))
        self.push = over_seeds(frame_replay.push, (0, 0, 0), donate=(0,))
        self.begin = jax.jit(self._begin, donate_argnums=1)
        self.act = over_seeds(self._act, (0, 0, 0, None, 0, 0, 0), donate=(4,))
        self.add = over_seeds(frame_replay.add, (0, 0), donate=(0,))
        self.add_final = over_seeds(frame_replay.add_final, (0, 0, 0), donate=(0,))
        self.train = over_seeds(functools.partial(self._learn, True), (0, 0, 0, None, None, 0), donate=(0,))
        self.adapt = over_seeds(functools.partial(self._learn, False), (0, 0, 0, None, None, 0), donate=(0,))
        self.report = over_seeds(self._report, (0, 0, None))
        self.noise_free = over_seeds(self._noise_free, (0, 0, 0, 0), donate=(1,))
        self._with_replay: dict[int, Callable[..., Any]] = {}
        self._over_seeds = over_seeds

    def learn_from_device(self, train_steps: int) -> Callable[..., Any]:
        """`train` with replay on the device: a slot goes in, and batches for so many train steps are drawn from it."""
        if train_steps not in self._with_replay:
            draws = max(train_steps, 1) * self._learner.config.batch_size

            def learn(
                learned: Leaves,
                explored: Leaves,
                key: Array,
                step: Array,
                adaptations: Array,
                replay: FrameReplay,
                slot: Slot,
            ) -> tuple[Leaves, Leaves, FrameReplay]:
                replay = frame_replay.add(replay, slot)
                drawn = frame_replay.draw(key, step, replay, draws)
                drawn = in_batches(drawn, self._learner.config.batch_size)
                learned, changed = self._learn(train_steps > 0, learned, explored, key, step, adaptations, drawn)
                return learned, changed, replay

            self._with_replay[train_steps] = self._over_seeds(learn, (0, 0, 0, None, None, 0, 0), donate=(0, 5))
        return self._with_replay[train_steps]

    def policy(self, learned: Leaves) -> Policy:
        """The clean policy of one seed's arrays."""
        return self._learner.policy(jax.tree.unflatten(self._learned, learned)[0])

    def unflatten(self, learned: Leaves, explored: Leaves) -> tuple[Any, core.Losses, Any]:
        """The learner's state, the losses and the state of exploration of such lists."""
        return *jax.tree.unflatten(self._learned, learned), jax.tree.unflatten(self._explored, explored)

    def adopt(self, explored: Leaves, changed: Leaves) -> Leaves:
        """The state of exploration with what `learn` adapted."""
        return _replaced(explored, self._adapted, changed)

    def _init(self, stack: jax.ShapeDtypeStruct, key: Array) -> tuple[tuple[Any, core.Losses], Any]:
        state = self._learner.init(jax.random.fold_in(key, core.INIT))
        blank = jnp.zeros(stack.shape, stack.dtype)
        batch = frame_replay.blank_transition(blank)
        _, terms = jax.eval_shape(self._learner.update, state, batch)
        losses = core.Losses(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), terms), jnp.int32(0))
        return (state, losses), self._exploration.init(self._learner.policy(state), blank)

    def _flat(self, learned: Any, explored: Any) -> tuple[Leaves, Leaves]:
        return jax.tree.leaves(learned), jax.tree.leaves(explored)

    def _begin(self, learned: Leaves, explored: Leaves, keys: Array, step: Array, member: Array, env: Array) -> Leaves:
        """The state of exploration once one environment of one seed, in which an episode starts, is prepared.

        It is cut down to that environment: a new policy for each, to keep one, would be as many draws as parameters.
        """
        at = lambda leaf: jax.lax.dynamic_index_in_dim(leaf, member, keepdims=False)  # noqa: E731
        here = [leaf[member, env][None] if place in self._own else at(leaf) for place, leaf in enumerate(explored)]
        state = jax.tree.unflatten(self._explored, here)
        key = jax.random.fold_in(core.key_at(at(keys), core.BEGIN, step), env)
        policy = self.policy([at(leaf) for leaf in learned])
        after = self._exploration.begin_episode(key, state, policy, jnp.ones(1, bool), step)
        return [
            old.at[member, env].set(new[0]) if place in self._own else old
            for place, (old, new) in enumerate(zip(explored, jax.tree.leaves(after), strict=True))
        ]

    def _act(
        self, learned: Leaves, explored: Leaves, key: Array, step: Array, stack: Array, frame: Array, resets: Array
    ) -> tuple[Array, Array, Leaves]:
        """The actions on the newest frames, the stacks with them, and the state of exploration if acting changed it."""
        stack = frame_replay.push(stack, frame, resets)
        state = jax.tree.unflatten(self._explored, explored)
        key = core.key_at(key, core.ACT, step)
        after, actions = self._exploration.act(key, state, self.policy(learned), stack, step)
        leaves = jax.tree.leaves(after)
        is_same = all(new is old for new, old in zip(leaves, explored, strict=True))
        return actions, stack, [] if is_same else leaves

    def _learn(
        self,
        trains: bool,
        learned: Leaves,
        explored: Leaves,
        key: Array,
        step: Array,
        adaptations: Array,
        drawn: Drawn,
    ) -> tuple[Leaves, Leaves]:
        """Trains on each batch drawn if it trains, and adapts so many times; returns what was learned and adapted."""

        def train(carry: tuple[Any, core.Losses], batch: Drawn) -> tuple[tuple[Any, core.Losses], None]:
            agent, losses = carry
            agent, terms = self._learner.update(agent, frame_replay.transitions(batch))
            return (agent, core.Losses(jax.tree.map(jnp.add, losses.total, terms), losses.train_steps + 1)), None

        state = jax.tree.unflatten(self._learned, learned)
        if trains:
            state, _ = jax.lax.scan(train, state, drawn)
        policy = self._learner.policy(state[0])
        changed = self._adapt(explored, policy, core.key_at(key, core.ADAPT, step), step, adaptations, drawn)
        return jax.tree.leaves(state), changed

    def _adapt(
        self, explored: Leaves, policy: Policy, key: Array, step: Array, adaptations: Array, drawn: Drawn
    ) -> Leaves:
        batches = drawn.action.shape[0]

        def adapt(i: Array, changed: Leaves) -> Leaves:
            state = jax.tree.unflatten(self._explored, _replaced(explored, self._adapted, changed))
            obs = frame_replay.transitions(jax.tree.map(lambda x: x[i % batches], drawn)).obs
            after = self._exploration.adapt(jax.random.fold_in(key, i), state, policy, obs, step)
            return [jax.tree.leaves(after)[place] for place in self._adapted]

        if not self._adapted:
            return []
        return jax.lax.fori_loop(0, adaptations, adapt, [explored[place] for place in self._adapted])

    def _changed_by_adapting(self, state: Any, explored: Any, stack: jax.ShapeDtypeStruct) -> list[int]:
        """The places of the arrays that adapting the exploration changes."""
        places: list[int] = []

        def adapt(state: Any, explored: Any, obs: Array) -> Any:
            policy = self._learner.policy(state)
            after = self._exploration.adapt(jax.random.key(0), explored, policy, obs, jnp.int32(0))
            pairs = zip(jax.tree.leaves(after), jax.tree.leaves(explored), strict=True)
            places.extend(place for place, (new, old) in enumerate(pairs) if new is not old)
            return after

        jax.eval_shape(adapt, state, explored, stack)
        return places

    def _kept_by_environment(self, state: Any, explored: Any, stack: jax.ShapeDtypeStruct) -> set[int]:
        """The places of the arrays with an axis of environments: those that one environment more makes longer."""
        one_more = jax.ShapeDtypeStruct((stack.shape[0] + 1, *stack.shape[1:]), stack.dtype)
        longer = jax.eval_shape(lambda s, o: self._exploration.init(self._learner.policy(s), o), state, one_more)
        pairs = zip(jax.tree.leaves(explored), jax.tree.leaves(longer), strict=True)
        return {place for place, (old, new) in enumerate(pairs) if old.shape != new.shape}

    def _report(self, learned: Leaves, explored: Leaves, step: Array) -> tuple[Leaves, dict[str, Array], Array]:
        """What was learned, with loss terms that start anew; what a log should show; the train steps since the last."""
        learner, losses, exploration = self.unflatten(learned, explored)
        fresh, reported = core.reported(self._exploration, losses, exploration, step)
        return jax.tree.leaves((learner, fresh)), reported, losses.train_steps

    def _noise_free(self, learned: Leaves, stack: Array, frame: Array, resets: Array) -> tuple[Array, Array]:
        """The noise-free actions on the newest frames, and the stacks with them."""
        stack = frame_replay.push(stack, frame, resets)
        policy = self.policy(learned)
        return jax.vmap(lambda obs: policy.greedy(policy(obs)))(stack), stack


def in_batches(drawn: Drawn, batch_size: int) -> Drawn:
    """Draws split into batches, along a new first axis."""
    return jax.tree.map(lambda x: x.reshape(-1, batch_size, *x.shape[1:]), drawn)


def _replaced(leaves: Leaves, places: list[int], new: Leaves) -> Leaves:
    leaves = list(leaves)
    for place, leaf in zip(places, new, strict=True):
        leaves[place] = leaf
    return leaves


def _jit_over_seeds(
    seeds: int, function: Callable[..., Any], axes: tuple[Any, ...], donate: tuple[int, ...] = ()
) -> Any:
    return jax.jit(jax.vmap(function, in_axes=axes, axis_size=seeds), donate_argnums=donate)
