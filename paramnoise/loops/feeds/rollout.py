"""The feed of rollouts: a batch of steps of the agent's own, then one update on all of it.

Episodes go on from one batch to the next. An episode's behaviour is the policy of now plus the episode's own offset, so
it is constant within a batch and follows what was learned after it.
"""

import functools
import math
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax import Array

from paramnoise.agents.base import Learner
from paramnoise.experience.rollout import Rollout, RolloutBuffer, UnevenBuffer
from paramnoise.explorations.base import Exploration
from paramnoise.keys import ADAPT
from paramnoise.loops import state as states
from paramnoise.loops import step as steps
from paramnoise.loops.environments import EnvStep
from paramnoise.loops.feeds import Taken
from paramnoise.loops.state import TrainState
from paramnoise.validation import require, require_memory

PROBED_STATES = 128
"""States of a batch on which an exploration that acts for a learner of values measures each of its adaptations."""


def rollout_steps(learner: Learner, num_envs: int) -> int:
    """Steps of each environment in a batch: as the learner's settings say, or its part of `batch_size`."""
    config = learner.config
    if hasattr(config, "rollout_steps"):
        return config.rollout_steps
    size = config.batch_size
    require(size >= num_envs, "batch_size", size, f"at least num_envs ({num_envs})")
    return size // num_envs


def offset_length(learner: Learner, exploration: Exploration, obs: Any) -> int:
    """How many numbers an episode's offset of the parameters has: 0 where none is added, or the learner needs none."""
    policy = jax.eval_shape(lambda key: learner.policy(learner.init(key)), jax.random.PRNGKey(0))
    displaced = jax.eval_shape(lambda own, shown: exploration.offsets(exploration.init(own, shown)), policy, obs)
    return 0 if displaced is None or not learner.needs_offsets else displaced.shape[1]


class RolloutFeed:
    """Batches of as many steps of every environment, and the offsets of the episodes in them."""

    is_beside = False
    axes: tuple[int | None, ...] = ()
    waits = True
    holds = False
    remedy = "a smaller delta_kl or learning_rate may help"

    def __init__(self, learner: Learner, exploration: Exploration, obs: np.ndarray, *, skips: bool = False):
        """Makes room for a batch.

        Args:
            learner: the agent.
            exploration: its exploration.
            obs: what the environments show, of which only shape and dtype matter.
            skips: whether an environment may skip a step.
        """
        num_envs = len(obs)
        steps_each = rollout_steps(learner, num_envs)
        self._learner, self._exploration = learner, exploration
        self.block: int | None = steps_each
        self._batch_size = steps_each * num_envs
        step = 2 * obs[0].nbytes + 4 * math.prod(learner.spaces.action_shape) + 16
        require_memory(self._batch_size * step, f"a batch of {self._batch_size:,} steps")
        parameters = offset_length(learner, exploration, obs)
        dtype = np.int32 if learner.spaces.is_discrete else np.float32
        action = np.zeros((num_envs, *learner.spaces.action_shape), dtype)
        make_buffer = UnevenBuffer if skips else RolloutBuffer
        self._buffer = make_buffer(obs, action, steps_each, parameters)
        self._no_offsets = np.zeros((num_envs, parameters), np.float32)
        self.experience: Any = ()
        batch = jax.eval_shape(lambda: learner.prepare(self._rollout(), 0))  # the shapes of one
        self.init: Callable[[Array, Array], TrainState] = functools.partial(init, learner, exploration, batch)
        self.learn: Callable[..., TrainState] = functools.partial(learn, learner, exploration)
        self.settings: Hashable = (steps_each,)

    def hold(self, *, for_episodes: bool) -> None:
        """Nothing waits here."""

    def acts_at_random(self, step: int) -> bool:
        """Never: a batch is of the policy's own actions."""
        return False

    @property
    def begins(self) -> bool:
        """Whether the batch is empty."""
        return self._buffer.filled == 0

    def begin(self, starts: np.ndarray, offsets: np.ndarray | None) -> None:
        """Begins a segment of every environment in which an episode or the batch starts."""
        own = self._no_offsets if offsets is None else offsets
        self._buffer.begin_segments(starts | self.begins, starts, own)

    def add(self, obs: Any, resets: np.ndarray, actions: np.ndarray, after: EnvStep) -> None:
        """Takes in a step."""
        assert after.next_obs is not None
        where = {} if after.skipped is None else {"where": ~after.skipped}
        self._buffer.add(
            **where,
            obs=obs,
            action=actions,
            reward=after.reward,
            next_obs=after.next_obs,
            terminated=after.terminated,
            truncated=after.truncated,
        )

    def is_due(self, before: int, after: int) -> bool:
        """Whether the batch is complete."""
        return self._buffer.is_full

    def take(self, step: int, *, all_of_it: bool = False) -> Taken | None:
        """Hands over a complete batch; a part of one stays, to be saved as it is."""
        if not self._buffer.is_full:
            return None
        rollout = self._rollout()
        number = step // self._batch_size - 1
        return Taken(None, (self._learner.prepare(rollout, number), rollout.obs), step, True)

    def _rollout(self) -> Rollout:
        rollout = self._buffer.rollout()
        # A table of offsets grows with the number of episodes, and each size is another program to compile.
        return rollout if self._learner.needs_offsets else rollout._replace(segment=None, offsets=None)

    def finish(self) -> None:
        """Makes room for the next batch."""
        self._buffer.clear()

    def snapshot(self, member: int) -> dict[str, np.ndarray]:
        """The batch so far."""
        return self._buffer.snapshot()

    def restore(self, member: int, parts: dict[str, np.ndarray], step: int) -> None:
        """Goes back to a batch."""
        self._buffer.restore(parts)


def init(learner: Learner, exploration: Exploration, batch: Any, key: Array, obs: Array) -> TrainState:
    """The state before the first step; of `batch` only shapes and dtypes are known."""
    return states.init(learner, exploration, key, obs, batch)


def learn(
    learner: Learner, exploration: Exploration, variant: Hashable, state: TrainState, batch: Any, obs: Array
) -> TrainState:
    """One update on a batch; then the exploration takes note of the batch's states."""
    agent, terms = learner.update(state.learner, batch)
    state = state._replace(learner=agent, losses=steps.add_terms(state.losses, terms))
    rows, key, policy = obs.reshape(-1, *obs.shape[2:]), states.key_for(state, ADAPT), learner.policy(agent)
    if learner.needs_offsets:
        return state._replace(exploration=exploration.adapt(key, state.exploration, policy, rows, state.step))
    if not exploration.adapt_every:
        return state

    def probe_at(i: Array) -> tuple[Array, Array]:
        choice_key, probe_key = jax.random.split(jax.random.fold_in(key, i))
        return probe_key, rows[jax.random.randint(choice_key, (PROBED_STATES,), 0, rows.shape[0])]

    before, after = (steps.adaptations_by(exploration, at) for at in (state.step - rows.shape[0], state.step))
    adapted = steps.adapt(exploration, state.exploration, policy, state.step, probe_at, after - before)
    return state._replace(exploration=adapted)
