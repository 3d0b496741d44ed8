"""The programs of the host loop, on packed vectors.

Only vectors cross a compiled call: flattening the modules of a state, or passing each of its arrays, would cost more
than a train step does.
"""

from typing import Any

import jax
from jax import Array

from paramnoise.agents.learner import Learner, Transition
from paramnoise.exploration import Exploration
from paramnoise.training import core
from paramnoise.training.packing import Packing
from paramnoise.training.replay import Replay


class Programs:
    """One step of off-policy training (`core`) as functions of vectors, for one agent and its exploration."""

    def __init__(self, learner: Learner, exploration: Exploration, state: core.TrainState):
        """Takes the layout of the vectors from a state of training."""
        self._learner, self._exploration = learner, exploration
        self._learned = Packing((state.learner, state.losses))
        self.policy = Packing(learner.policy(state.learner))
        self.explored = Packing(state.exploration)

    def pack(self, learner: Any, losses: core.Losses, explored: Any) -> tuple[list[Array], list[Array], list[Array]]:
        """The vectors of what was learned, of exploration and of the clean policy."""
        policy = self.policy.pack(self._learner.policy(learner))
        return self._learned.pack((learner, losses)), self.explored.pack(explored), policy

    def unpack(self, learned: list[Array], explored: list[Array]) -> tuple[Any, core.Losses, Any]:
        """The learner's state, the losses and the state of exploration."""
        return *self._learned.unpack(learned), self.explored.unpack(explored)

    def _behaviour(self, explored: list[Array], policy: list[Array], key: Array, step: Array) -> core.Behaviour:
        return core.Behaviour(self.explored.unpack(explored), self.policy.unpack(policy), key, step)

    def begin(self, explored: list[Array], policy: list[Array], key: Array, step: Array, starts: Array) -> list[Array]:
        """The state of exploration once the environments whose episode starts are prepared."""
        state = self._behaviour(explored, policy, key, step)
        return self.explored.pack(core.begin(self._exploration, state, starts))

    def adopt(self, acting: list[Array], adapted: list[Array]) -> list[Array]:
        """The state of exploration that acts, with what was adapted meanwhile."""
        unpack = self.explored.unpack
        return self.explored.pack(self._exploration.adopt(unpack(acting), unpack(adapted)))

    def choose(
        self, explored: list[Array], policy: list[Array], key: Array, step: Array, obs: Array
    ) -> tuple[Array, list[Array]]:
        """The actions, and the state of exploration if acting changed it."""
        state = self._behaviour(explored, policy, key, step)
        after, actions = core.choose(self._exploration, state, obs)
        pairs = zip(jax.tree.leaves(after), jax.tree.leaves(state.exploration), strict=True)
        is_same = all(new is old for new, old in pairs)
        return actions, [] if is_same else self.explored.pack(after)

    def learn(
        self,
        learned: list[Array],
        explored: list[Array],
        replay: Replay,
        key: Array,
        step: Array,
        batches: Transition,
        count: Array,
    ) -> tuple[list[Array], list[Array], Replay, list[Array]]:
        """Takes in `count` of the transitions and does all that is due; returns what was learned, ..., the policy."""
        learner, losses, exploration = self.unpack(learned, explored)
        state = core.TrainState(learner, exploration, replay, losses, key, step)

        def learn(i: Array, state: core.TrainState) -> core.TrainState:
            return core.learn(self._learner, self._exploration, state, jax.tree.map(lambda rows: rows[i], batches))

        if batches.reward.ndim == 1:  # an agent that trains at every step, such as DQN: no loop around its one step
            state = core.learn(self._learner, self._exploration, state, batches)
        else:
            state = jax.lax.fori_loop(0, count, learn, state)
        learned, explored, policy = self.pack(state.learner, state.losses, state.exploration)
        return learned, explored, state.replay, policy

    def report(
        self, learned: list[Array], explored: list[Array], replay: Replay, key: Array, step: Array
    ) -> tuple[list[Array], dict[str, Array], Array]:
        """What was learned, with loss terms that start anew; what a log should show; the train steps since the last."""
        learner, losses, exploration = self.unpack(learned, explored)
        state = core.TrainState(learner, exploration, replay, losses, key, step)
        after, reported = core.report(self._exploration, state)
        return self._learned.pack((after.learner, after.losses)), reported, losses.train_steps
