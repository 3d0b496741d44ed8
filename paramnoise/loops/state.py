"""The state of training, which both loops carry: all that changes, how it begins, and one seed's part of it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.agents.base import TD_ERROR, Learner
from paramnoise.experience import replay as replays
from paramnoise.experience.replay import Transition
from paramnoise.explorations.base import Exploration
from paramnoise.keys import INIT, key_at
from paramnoise.validation import in_units, require_memory


class Losses(NamedTuple):
    """Sums of what updates report since it was last shown."""

    total: dict[str, Array]
    train_steps: Array


class TrainState(NamedTuple):
    """All that changes in training, the environments apart; saving it is the checkpoint."""

    learner: Any
    exploration: Any
    experience: Any
    """What is stored on the device: a replay; nothing where experience is kept on the host."""
    losses: Losses
    key: Array
    step: Array
    """Environment steps so far, over all environments."""


def key_for(state: TrainState, purpose: int) -> Array:
    """The key of this step for one purpose."""
    return key_at(state.key, purpose, state.step)


def init(
    learner: Learner, exploration: Exploration, key: Array, obs: Array, batch: Any, experience: Any = ()
) -> TrainState:
    """The state before the first step.

    Args:
        learner: the agent.
        exploration: its exploration.
        key: the seed's.
        obs: what the environments show, [num_envs, ...]; only shape and dtype matter.
        batch: what the learner's update takes; only shapes and dtypes matter.
        experience: what is stored on the device, empty.
    """
    state = learner.init(jax.random.fold_in(key, INIT))
    _, terms = jax.eval_shape(learner.update, state, batch)
    terms.pop(TD_ERROR, None)
    losses = Losses(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), terms), jnp.int32(0))
    explored = exploration.init(learner.policy(state), obs)
    return TrainState(state, explored, experience, losses, key, jnp.int32(0))


def init_with_replay(learner: Learner, exploration: Exploration, key: Array, obs: Array) -> TrainState:
    """As `init`, for an agent that learns from replayed transitions, with an empty replay."""
    config, drawing = learner.config, learner.drawing
    blank = blank_transitions(learner, key, obs)
    empty = replays.init(config.buffer_size, blank, prioritized=drawing.alpha is not None)
    small = replays.init(obs.shape[0], blank, prioritized=drawing.alpha is not None)  # of any size: shapes alone matter
    draw = lambda replay: replays.draw(key, replay, config.batch_size, obs.shape[0], drawing)[0]  # noqa: E731
    return init(learner, exploration, key, obs, jax.eval_shape(draw, small), empty)


def require_room(state: TrainState, seeds: int) -> None:
    """Raises UsageError if the states of so many seeds, of which shapes alone matter, would not fit into memory."""
    size_of = lambda tree: sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))  # noqa: E731
    require_memory(seeds * size_of(state), f"the agent, with {in_units(size_of(state.experience))} of replay,")


def blank_transitions(learner: Learner, key: Array, obs: Array) -> Transition:
    """Transitions of one step of all environments, of zeros."""
    num_envs = obs.shape[0]

    def act(key: Array, obs: Array) -> Array:
        policy = learner.policy(learner.init(key))
        return jax.vmap(lambda o: policy.greedy(policy(o)))(obs)

    action, blank = jax.eval_shape(act, key, obs), jnp.zeros(obs.shape, obs.dtype)
    return Transition(
        obs=blank,
        action=jnp.zeros(action.shape, action.dtype),
        reward=jnp.zeros(num_envs),
        next_obs=blank,
        terminated=jnp.zeros(num_envs, bool),
        mask=learner.annotate(key, num_envs),
        starts=jnp.zeros(num_envs, bool) if learner.drawing.n_step > 1 else None,
    )


@jax.jit
def at_member(tree: Any, member: Array) -> Any:
    """One seed's part of arrays with a leading axis of seeds; as one program, since one for each array costs more."""
    return jax.tree.map(lambda leaf: leaf[member], tree)


@jax.jit
def with_member(tree: Any, member: Array, part: Any) -> Any:
    """Arrays with a leading axis of seeds, with one seed's part replaced."""
    return jax.tree.map(lambda old, new: old.at[member].set(new), tree, part)
