"""One step of off-policy training as pure functions; the compiled and the host loop are both made of these.

    act: start episodes where they are due, then choose actions
    learn: store what happened, train as often as is due, adapt the exploration as often as is due

Every random draw comes from the seed, a purpose and the number of environment steps, so that a step's randomness does
not depend on what happened before it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.agents.learner import Learner, Transition
from paramnoise.exploration import Exploration
from paramnoise.policies import Policy
from paramnoise.training import replay as replays
from paramnoise.training.replay import Replay

INIT, BEGIN, ACT, ANNOTATE, TRAIN, ADAPT, ENVIRONMENT, EVALUATE = range(8)
"""What a key is drawn for."""


class Losses(NamedTuple):
    """Sums of loss terms since they were last reported."""

    total: dict[str, Array]
    train_steps: Array


class TrainState(NamedTuple):
    """All that changes in training, the environments apart; saving it is the checkpoint."""

    learner: Any
    exploration: Any
    replay: Replay
    losses: Losses
    key: Array
    step: Array
    """Environment steps so far, over all environments."""


def key_at(key: Array, purpose: int, step: Array) -> Array:
    """The key of a step for one purpose."""
    return jax.random.fold_in(jax.random.fold_in(key, purpose), step)


def key_for(state: "TrainState | Behaviour", purpose: int) -> Array:
    """The key of this step for one purpose."""
    return key_at(state.key, purpose, state.step)


def init(learner: Learner, exploration: Exploration, key: Array, obs: Array) -> TrainState:
    """The state before the first step; of `obs`, [num_envs, ...], only shape and dtype matter."""
    state = learner.init(jax.random.fold_in(key, INIT))
    policy = learner.policy(state)
    num_envs = obs.shape[0]
    action = jax.eval_shape(jax.vmap(lambda o: policy.greedy(policy(o))), obs)
    blank = jax.tree.map(jnp.zeros_like, obs)
    batch = Transition(
        obs=blank,
        action=jnp.zeros(action.shape, action.dtype),
        reward=jnp.zeros(num_envs),
        next_obs=blank,
        terminated=jnp.zeros(num_envs, bool),
        mask=learner.annotate(key, num_envs),
    )
    _, terms = jax.eval_shape(learner.update, state, batch)
    return TrainState(
        learner=state,
        exploration=exploration.init(policy, obs),
        replay=replays.init(learner.config.buffer_size, batch),
        losses=Losses(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), terms), jnp.int32(0)),
        key=key,
        step=jnp.int32(0),
    )


def act(
    learner: Learner,
    exploration: Exploration,
    state: TrainState,
    obs: Array,
    starts: Array,
    axis_name: str | None = None,
) -> tuple[TrainState, Array]:
    """Chooses the actions to execute.

    Args:
        learner: the agent.
        exploration: its exploration.
        state: the state of training.
        obs: what each environment shows, [num_envs, ...].
        starts: bool[num_envs], true where an episode starts with this observation.
        axis_name: the `vmap` axis of seeds that run side by side, if any.

    Returns:
        The state and the actions, [num_envs, ...].
    """
    behaviour = Behaviour(state.exploration, learner.policy(state.learner), state.key, state.step)
    explored, actions = behave(exploration, behaviour, obs, starts, axis_name)
    return state._replace(exploration=explored), actions


class Behaviour(NamedTuple):
    """The part of the state of training that acting needs."""

    exploration: Any
    policy: Policy
    key: Array
    step: Array


def behave(
    exploration: Exploration, state: Behaviour, obs: Array, starts: Array, axis_name: str | None = None
) -> tuple[Any, Array]:
    """Acting without the rest of training: the state of exploration after, and the actions; as for `act`."""
    any_start = jnp.any(starts)
    if axis_name is not None:  # one branch for all seeds keeps the branch a branch under vmap
        any_start = jax.lax.pmax(any_start.astype(jnp.int32), axis_name) > 0
    explored = jax.lax.cond(
        any_start,
        lambda e: begin(exploration, state._replace(exploration=e), starts),
        lambda e: e,
        state.exploration,
    )
    return choose(exploration, state._replace(exploration=explored), obs)


def begin(exploration: Exploration, state: Behaviour, starts: Array) -> Any:
    """The state of exploration after it has prepared the environments in which an episode starts."""
    return exploration.begin_episode(key_for(state, BEGIN), state.exploration, state.policy, starts, state.step)


def choose(exploration: Exploration, state: Behaviour, obs: Array) -> tuple[Any, Array]:
    """The state of exploration after, and the actions to execute."""
    return exploration.act(key_for(state, ACT), state.exploration, state.policy, obs, state.step)


def learn(learner: Learner, exploration: Exploration, state: TrainState, batch: Transition) -> TrainState:
    """Stores the transitions of one step of every environment, then trains and adapts as often as is due."""
    config = learner.config
    num_envs = batch.reward.shape[0]
    batch = batch._replace(mask=learner.annotate(key_for(state, ANNOTATE), num_envs))
    before, after = state.step, state.step + num_envs
    replay = replays.add(state.replay, batch)

    def train(i: Array, carry: tuple[Any, Losses]) -> tuple[Any, Losses]:
        agent, losses = carry
        sampled = replays.sample(jax.random.fold_in(key_for(state, TRAIN), i), replay, config.batch_size)
        agent, terms = learner.update(agent, sampled)
        return agent, Losses(jax.tree.map(jnp.add, losses.total, terms), losses.train_steps + 1)

    trained, losses = jax.lax.fori_loop(
        0,
        updates_by(config, after) - updates_by(config, before),
        train,
        (learner.observe(state.learner, batch), state.losses),
    )
    state = state._replace(learner=trained, losses=losses, replay=replay, step=after)
    return _adapt(learner, exploration, state, before) if exploration.adapt_every else state


def _adapt(learner: Learner, exploration: Exploration, state: TrainState, before: Array) -> TrainState:
    policy = learner.policy(state.learner)

    def adapt(i: Array, explored: Any) -> Any:
        sample_key, probe_key = jax.random.split(jax.random.fold_in(key_for(state, ADAPT), i))
        sampled = replays.sample(sample_key, state.replay, learner.config.batch_size)
        return exploration.adapt(probe_key, explored, policy, sampled.obs, state.step)

    due = adaptations_by(exploration, state.step) - adaptations_by(exploration, before)
    return state._replace(exploration=jax.lax.fori_loop(0, due, adapt, state.exploration))


def updates_by(config: Any, step: Any) -> Any:
    """Train steps that are due by an environment step, an array or an int."""
    return (step > config.learning_starts) * (step - config.learning_starts) // config.train_every * config.train_steps


def adaptations_by(exploration: Exploration, step: Any) -> Any:
    """Adaptations that are due by an environment step, an array or an int."""
    return step // exploration.adapt_every if exploration.adapt_every else 0


def report(exploration: Exploration, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
    """What a log should show: the exploration's numbers and the mean loss terms, which then start anew."""
    fresh, shown = reported(exploration, state.losses, state.exploration, state.step)
    return state._replace(losses=fresh), shown


def reported(exploration: Exploration, losses: Losses, explored: Any, step: Array) -> tuple[Losses, dict[str, Array]]:
    """The loss terms that start anew, and what a log should show."""
    means = jax.tree.map(lambda total: total / jnp.maximum(losses.train_steps, 1), losses.total)
    means = jax.tree.map(lambda mean: jnp.where(losses.train_steps > 0, mean, jnp.nan), means)
    return jax.tree.map(jnp.zeros_like, losses), {**exploration.report(explored, step), **means}
