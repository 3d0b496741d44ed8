"""The compiled programs of the host loop.

A state crosses a call packed: as few flat vectors where networks are small, as the list of its arrays where they are
large; with a leading axis of seeds where several train side by side. What a program does not change it does not return,
so that large policies are never copied.
"""

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.agents.base import Learner
from paramnoise.explorations.base import Exploration
from paramnoise.keys import ADAPT, key_at
from paramnoise.loops import step as steps
from paramnoise.loops.devices import compiler_options
from paramnoise.loops.fast.packing import FlatVectors, Leaves, Packing
from paramnoise.loops.feeds import Feed
from paramnoise.loops.sharing import shared
from paramnoise.loops.state import Losses, TrainState, require_room
from paramnoise.loops.step import Behaviour
from paramnoise.networks.policies import Policy

Packed = list[Any]
News = dict[int, Array]
"""What a call changed of a packed state, by place."""


def merge(packed: Packed, news: News) -> Packed:
    """A packed state with what a call changed."""
    return [news.get(place, old) for place, old in enumerate(packed)]


class Programs:
    """`loops.step` as compiled functions of packed states, for one agent and its exploration.

    `source` is where the policy that acts is taken from: its own vectors, or the list of all that was learned.
    """

    def __init__(
        self,
        learner: Learner,
        exploration: Exploration,
        feed: Feed,
        key: Array,
        obs: jax.ShapeDtypeStruct,
        seeds: int | None,
    ):
        """Takes the layout from the first state of one seed.

        Args:
            learner: the agent.
            exploration: its exploration.
            feed: what is learned from.
            key: any seed's.
            obs: the shape of what its environments show.
            seeds: how many train side by side; None: one, without an axis for it.
        """
        self._learner, self._exploration, self._seeds, self._learn = learner, exploration, seeds, feed.learn
        self.is_flat = not learner.spaces.shows_frames
        first = feed.init  # of the feed nothing else is kept: programs outlive it

        def init(key: Array) -> TrainState:
            return first(key, jnp.zeros(obs.shape, obs.dtype))

        state = jax.eval_shape(init, key)
        require_room(state, seeds or 1)
        self.policy_shape: Any = jax.eval_shape(learner.policy, state.learner)
        self.init = self._over_seeds(init, (0,))
        pack: type[Packing] = FlatVectors if self.is_flat else Leaves
        self.learned, self.explored = pack((state.learner, state.losses)), pack(state.exploration)
        self._policy = pack(self.policy_shape)
        self.loss_names = tuple(state.losses.total)
        self._adapted = self._changed_by_adapting(state, obs)
        self._own = self._kept_by_environment(state, obs)
        self.pack = self._over_seeds(self._pack, (0, 0, 0))
        self.unpack = self._over_seeds(self._unpack, (0, 0))
        self.begin = self._over_seeds(self._begin, (0, 0, 0, None, 0))
        self.begin_one = jax.jit(self._begin_one, donate_argnums=0)
        self.adopt = jax.jit(self._adopt)
        self.act = self._over_seeds(self._act, (0, 0, 0, None, 0))
        self.report = self._over_seeds(self._report, (0, 0, 0, None))
        self._learning: dict[Hashable, Any] = {}

    def learning(self, variant: Hashable, axes: tuple[int | None, ...]) -> Any:
        """A feed's `learn` of one variant, compiled when it is first needed.

        It takes what was learned, the state of exploration, the stored experience, the key, the step, and what the feed
        took, whose `axes` are those of seeds; it returns the first three after (of exploration what changed), and the
        source of the policy.
        """
        if variant not in self._learning:
            program = functools.partial(self._learned_after, variant)
            axes = (0, 0, 0, 0, None, *axes)
            in_one_graph = self.is_flat and self._learner.experience == "replay"  # where it was measured to gain
            options = compiler_options() if in_one_graph else None
            self._learning[variant] = self._over_seeds(program, axes, donate=(0, 2), options=options)
        return self._learning[variant]

    def policy(self, source: Packed) -> Policy:
        """The clean policy of a source, of one seed."""
        return self._policy.unpack(source) if self.is_flat else self._learner.policy(self.learned.unpack(source)[0])

    def policies(self, learned: Packed, explored: Packed) -> Policy:
        """The clean policy of what was learned; with an axis of seeds where there is one."""
        if self.is_flat:  # one compiled call, in place of dozens of slices
            return self._learner.policy(self.unpack(learned, explored)[0])
        return self._learner.policy(self.learned.unpack(learned)[0])

    def _pack(self, learner: Any, losses: Losses, explored: Any) -> tuple[Packed, Packed, Packed]:
        """What was learned, the state of exploration, and the source of the policy."""
        learned = self.learned.pack((learner, losses))
        source = self._policy.pack(self._learner.policy(learner)) if self.is_flat else []
        return learned, self.explored.pack(explored), source

    def _unpack(self, learned: Packed, explored: Packed) -> tuple[Any, Losses, Any]:
        """The learner's state, the losses and the state of exploration."""
        return *self.learned.unpack(learned), self.explored.unpack(explored)

    def _behaviour(self, explored: Packed, source: Packed, key: Array, step: Array) -> Behaviour:
        return Behaviour(self.explored.unpack(explored), self.policy(source), key, step)

    def _begin(self, explored: Packed, source: Packed, key: Array, step: Array, starts: Array) -> Packed:
        """The state of exploration once the environments whose episode starts are prepared."""
        state = self._behaviour(explored, source, key, step)
        return self.explored.pack(steps.begin(self._exploration, state, starts))

    def _begin_one(
        self, explored: Packed, source: Packed, keys: Array, step: Array, member: Array, env: Array
    ) -> Packed:
        """The same of one environment of one seed, to which the state is cut down.

        A new policy for each environment, to keep one, would be as many draws as parameters.
        """
        at = lambda leaf: jax.lax.dynamic_index_in_dim(leaf, member, keepdims=False)  # noqa: E731
        here = [leaf[member, env][None] if place in self._own else at(leaf) for place, leaf in enumerate(explored)]
        state = self._behaviour(here, [at(leaf) for leaf in source], at(keys), step)
        after = steps.begin_one(self._exploration, state, env)
        return [
            old.at[member, env].set(new[0]) if place in self._own else old
            for place, (old, new) in enumerate(zip(explored, jax.tree.leaves(after), strict=True))
        ]

    def _adopt(self, acting: Packed, adapted: Packed) -> Packed:
        """The state of exploration that acts, with what was adapted meanwhile."""
        leaves, structure = jax.tree.flatten(self.explored.unpack(acting))
        others = jax.tree.leaves(self.explored.unpack(adapted))
        new = steps.replace_at(leaves, self._adapted, [others[place] for place in self._adapted])
        return self.explored.pack(jax.tree.unflatten(structure, new))

    def _act(self, explored: Packed, source: Packed, key: Array, step: Array, obs: Array) -> tuple[Array, News]:
        """The actions, and what acting changed of the state of exploration."""
        state = self._behaviour(explored, source, key, step)
        after, actions = steps.act(self._exploration, state, obs)
        return actions, self._news(state.exploration, after)

    def _learned_after(
        self,
        variant: Hashable,
        learned: Packed,
        explored: Packed,
        experience: Any,
        key: Array,
        step: Array,
        *taken: Any,
    ) -> tuple[Packed, News, Any, Packed]:
        learner, losses, exploration = self._unpack(learned, explored)
        state = TrainState(learner, exploration, experience, losses, key, step)
        after = self._learn(variant, state, *taken)
        learned, _, source = self._pack(after.learner, after.losses, after.exploration)
        return learned, self._news(exploration, after.exploration), after.experience, source

    def _news(self, before: Any, after: Any) -> News:
        changed = steps.changed_places(jax.tree.leaves(before), jax.tree.leaves(after))
        if not changed:
            return {}
        packed = self.explored.pack(after)
        return {place: packed[place] for place in (range(len(packed)) if self.is_flat else changed)}

    def _report(
        self, learned: Packed, explored: Packed, key: Array, step: Array
    ) -> tuple[Packed, dict[str, Array], Array]:
        """What was learned, with loss terms that start anew; what a log should show; the updates since the last."""
        learner, losses, exploration = self._unpack(learned, explored)
        after, shown = steps.report(self._exploration, TrainState(learner, exploration, (), losses, key, step))
        return self.learned.pack((after.learner, after.losses)), shown, losses.train_steps

    def _changed_by_adapting(self, state: TrainState, obs: Any) -> list[int]:
        """The places of the arrays that adapting the exploration changes."""
        places: list[int] = []

        def adapt(state: TrainState, obs: Array) -> None:
            policy, key = self._learner.policy(state.learner), key_at(state.key, ADAPT, state.step)
            after = self._exploration.adapt(key, state.exploration, policy, obs, state.step)
            places.extend(steps.changed_places(jax.tree.leaves(state.exploration), jax.tree.leaves(after)))

        jax.eval_shape(adapt, state, obs)
        return places

    def _kept_by_environment(self, state: TrainState, obs: Any) -> set[int]:
        """The places of the arrays with an axis of environments: those that one environment more makes longer."""
        one_more = jax.ShapeDtypeStruct((obs.shape[0] + 1, *obs.shape[1:]), obs.dtype)
        longer = jax.eval_shape(
            lambda s, o: self._exploration.init(self._learner.policy(s), o), state.learner, one_more
        )
        pairs = zip(jax.tree.leaves(state.exploration), jax.tree.leaves(longer), strict=True)
        return {place for place, (old, new) in enumerate(pairs) if jnp.shape(old) != new.shape}

    def _over_seeds(
        self,
        function: Callable[..., Any],
        axes: tuple[Any, ...],
        donate: tuple[int, ...] = (),
        options: dict[str, str | int] | None = None,
    ) -> Any:
        mapped = function if self._seeds is None else jax.vmap(function, in_axes=axes, axis_size=self._seeds)
        return jax.jit(mapped, donate_argnums=donate, compiler_options=options)


def shared_programs(
    learner: Learner,
    exploration: Exploration,
    feed: Feed,
    key: Array,
    obs: jax.ShapeDtypeStruct,
    seeds: int | None,
) -> Programs:
    """The programs of these settings: those of an equal agent in this process, if there was one, else new ones.

    They are pure, and compiling them takes longer than many a run. The arguments are those of `Programs`.
    """
    others = (type(feed), feed.settings, obs.shape, str(obs.dtype), seeds)
    return shared(learner, exploration, others, lambda: Programs(learner, exploration, feed, key, obs, seeds))
