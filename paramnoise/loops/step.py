"""One step of training as pure functions; the compiled and the host loop are both made of these.

begin, act: start episodes where they are due, then choose actions
learn: store what happened, train as often as is due, adapt the exploration as often as is due
report: what a log should show
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.agents.base import TD_ERROR, Learner
from paramnoise.experience import priorities as priority_tree
from paramnoise.experience import replay as replays
from paramnoise.experience.priorities import Priorities
from paramnoise.experience.replay import Transition
from paramnoise.explorations.base import Exploration
from paramnoise.keys import ACT, ADAPT, ANNOTATE, BEGIN, RANDOM, TRAIN, key_at
from paramnoise.loops.state import Losses, TrainState, key_for
from paramnoise.networks.policies import Policy
from paramnoise.noise.many import MANY, loops_are_cheap

FEW = 8
"""Train steps up to which an accelerator's program has them one after the other in place of a loop."""


class Behaviour(NamedTuple):
    """The part of the state of training that acting needs."""

    exploration: Any
    policy: Policy
    key: Array
    step: Array


def begin(exploration: Exploration, state: Behaviour, starts: Array) -> Any:
    """The state of exploration after it has prepared the environments in which an episode starts."""
    key = key_at(state.key, BEGIN, state.step)
    return exploration.begin_episode(key, state.exploration, state.policy, starts, state.step)


def begin_one(exploration: Exploration, state: Behaviour, env: Array) -> Any:
    """As `begin`, of one environment, whose part alone `state.exploration` is: large policies are drawn one by one."""
    key = jax.random.fold_in(key_at(state.key, BEGIN, state.step), env)
    return exploration.begin_episode(key, state.exploration, state.policy, jnp.ones(1, bool), state.step)


def act(exploration: Exploration, state: Behaviour, obs: Array) -> tuple[Any, Array]:
    """The state of exploration after acting, and the actions to execute, [num_envs, ...]."""
    return exploration.act(key_at(state.key, ACT, state.step), state.exploration, state.policy, obs, state.step)


def begin_if_any(exploration: Exploration, state: Behaviour, starts: Array, axis_name: str | None = None) -> Any:
    """Begins episodes where they are due, if any is.

    Args:
        exploration: the exploration.
        state: what acting needs.
        starts: bool[num_envs], true where an episode starts.
        axis_name: the `vmap` axis of seeds that run side by side, if any.

    Returns:
        The state of exploration.
    """
    return jax.lax.cond(
        any_of_all(starts, axis_name),
        lambda e: begin(exploration, state._replace(exploration=e), starts),
        lambda e: e,
        state.exploration,
    )


def any_of_all(starts: Array, axis_name: str | None = None) -> Array:
    """Whether any is true, of any seed: one branch for all seeds keeps a branch a branch under `vmap`."""
    found = jnp.any(starts)
    return found if axis_name is None else jax.lax.pmax(found.astype(jnp.int32), axis_name) > 0


def begin_first(exploration: Exploration, state: Behaviour, starts: Array) -> tuple[Any, Array]:
    """The state of exploration once some episodes have begun, at a fixed cost, and where others still have to."""
    key = key_at(state.key, BEGIN, state.step)
    return exploration.begin_first(key, state.exploration, state.policy, starts, state.step)


def random_at_first(learner: Learner, key: Array, step: Array, actions: Array) -> Array:
    """The actions, or uniformly random continuous ones in the learner's first `random_steps`."""
    if not learner.random_steps:
        return actions
    random = jax.random.uniform(key_at(key, RANDOM, step), actions.shape, actions.dtype, -1.0, 1.0)
    return jnp.where(step < learner.random_steps, random, actions)


def learn(learner: Learner, exploration: Exploration, state: TrainState, batch: Transition) -> TrainState:
    """Stores the transitions of one step of every environment, then trains and adapts as often as is due."""
    num_envs = batch.reward.shape[0]
    trained = train_as_due(learner, store(learner, state, batch), num_envs)
    return trained._replace(exploration=adapt_as_due(learner, exploration, trained, num_envs))


def store(learner: Learner, state: TrainState, batch: Transition) -> TrainState:
    """The state after one step of every environment, from which nothing is learned yet."""
    num_envs = batch.reward.shape[0]
    batch = batch._replace(mask=learner.annotate(key_for(state, ANNOTATE), num_envs))
    return state._replace(
        learner=learner.observe(state.learner, batch),
        experience=replays.add(state.experience, batch),
        step=state.step + num_envs,
    )


def train_as_due(learner: Learner, stored: TrainState, num_envs: int) -> TrainState:
    """Trains as often as is due after the last step of so many environments."""
    config, replay = learner.config, stored.experience
    before, after = stored.step - num_envs, stored.step

    def batch_at(i: Array, priorities: Priorities | None) -> tuple[Transition, Array | None]:
        key, ring = jax.random.fold_in(key_at(stored.key, TRAIN, before), i), replay._replace(priorities=priorities)
        return replays.draw(key, ring, config.batch_size, num_envs, learner.drawing)

    due = updates_by(config, after) - updates_by(config, before)
    most = usual_updates(config, num_envs) if num_envs >= MANY and replay.priorities is None else None
    agent, losses, priorities = train(learner, stored.learner, stored.losses, batch_at, due, replay.priorities, most)
    return stored._replace(learner=agent, losses=losses, experience=replay._replace(priorities=priorities))


def adapt_as_due(learner: Learner, exploration: Exploration, state: TrainState, num_envs: int) -> Any:
    """The state of exploration, adapted as often as is due after the last step of so many environments."""
    if not exploration.adapt_every:
        return state.exploration
    before, after = state.step - num_envs, state.step

    def probe_at(i: Array) -> tuple[Array, Array]:
        sample_key, probe_key = jax.random.split(jax.random.fold_in(key_for(state, ADAPT), i))
        return probe_key, replays.sample(sample_key, state.experience, learner.config.batch_size).obs

    due = adaptations_by(exploration, after) - adaptations_by(exploration, before)
    if num_envs % exploration.adapt_every == 0:  # a number that is known before, so that no loop has to ask for it
        due = num_envs // exploration.adapt_every
    return adapt(exploration, state.exploration, learner.policy(state.learner), after, probe_at, due)


Carry = tuple[Any, Losses, Priorities | None]
"""What train steps change: the state of the learner, the losses, the priorities."""


def train(
    learner: Learner,
    agent: Any,
    losses: Losses,
    batch_at: Callable[[Array, Priorities | None], tuple[Any, Array | None]],
    count: Array | int,
    priorities: Priorities | None = None,
    most: int | None = None,
) -> tuple[Any, Losses, Priorities | None]:
    """Updates the learner's state on so many batches, and adds up what the updates report.

    Args:
        learner: the agent.
        agent: its state.
        losses: the sums so far.
        batch_at: the number of a batch, the priorities of now -> the batch, and with priorities where it is from.
        count: how many batches.
        priorities: those that batches are drawn by; None: there are none.
        most: a number that `count` mostly is and never exceeds, if there is one. The loop then has so many rounds, of
            which those from `count` on change nothing: an accelerator does not have to ask the host after each. A few
            rounds are written out there, so that what does not depend on them can run beside them.

    Returns:
        The state of the learner, the losses and the priorities after.
    """

    def once(i: Array, carry: Carry) -> Carry:
        agent, losses, priorities = carry
        batch, places = batch_at(i, priorities)
        agent, terms = learner.update(agent, batch)
        if priorities is not None:
            assert places is not None
            assert learner.drawing.alpha is not None
            priorities = priority_tree.update(priorities, places, terms.pop(TD_ERROR), learner.drawing.alpha)
        return agent, add_terms(losses, terms), priorities

    def once_if_due(i: Array, carry: Carry) -> Carry:
        return jax.tree.map(lambda new, old: jnp.where(i < count, new, old), once(i, carry), carry)

    if most is not None:
        written_out = most <= FEW and not loops_are_cheap()
        return jax.lax.fori_loop(0, most, once_if_due, (agent, losses, priorities), unroll=written_out or None)
    return jax.lax.fori_loop(0, count, once, (agent, losses, priorities))


def add_terms(losses: Losses, terms: dict[str, Array]) -> Losses:
    """The losses with what one more update reports."""
    return Losses(jax.tree.map(jnp.add, losses.total, terms), losses.train_steps + 1)


def adapt(
    exploration: Exploration,
    explored: Any,
    policy: Policy,
    step: Array,
    probe_at: Callable[[Array], tuple[Array, Array]],
    count: Array | int,
) -> Any:
    """Adapts the exploration so many times, each with a key and a batch of observations of its own.

    Only the arrays that adapting changes go through the loop, so that the policies which act are never copied.
    """
    leaves, structure = jax.tree.flatten(explored)
    places: list[int] = []

    def once(i: Array, changing: list[Array]) -> list[Array]:
        key, obs = probe_at(i)
        state = jax.tree.unflatten(structure, replace_at(leaves, places, changing))
        after = jax.tree.leaves(exploration.adapt(key, state, policy, obs, step))
        return [after[place] for place in places]

    def find_places(leaves: list[Array], i: Array) -> None:
        key, obs = probe_at(i)
        after = exploration.adapt(key, jax.tree.unflatten(structure, leaves), policy, obs, step)
        places.extend(changed_places(leaves, jax.tree.leaves(after)))

    jax.eval_shape(find_places, leaves, jnp.int32(0))
    changed = jax.lax.fori_loop(0, count, once, [leaves[place] for place in places])
    return jax.tree.unflatten(structure, replace_at(leaves, places, changed))


def changed_places(before: list[Any], after: list[Any]) -> list[int]:
    """While a function is traced: the places of the arrays that it did not pass on as they were."""
    return [place for place, (old, new) in enumerate(zip(before, after, strict=True)) if new is not old]


def replace_at(leaves: list[Any], places: list[int], new: list[Any]) -> list[Any]:
    """The list with other items at these places."""
    leaves = list(leaves)
    for place, leaf in zip(places, new, strict=True):
        leaves[place] = leaf
    return leaves


def updates_by(config: Any, step: Any) -> Any:
    """Train steps that are due by an environment step, an array or an int."""
    return (step > config.learning_starts) * (step - config.learning_starts) // config.train_every * config.train_steps


def usual_updates(config: Any, num_envs: int) -> int | None:
    """Train steps after every step of all environments once learning has begun, if they are always as many."""
    return num_envs // config.train_every * config.train_steps if num_envs % config.train_every == 0 else None


def adaptations_by(exploration: Exploration, step: Any) -> Any:
    """Adaptations that are due by an environment step, an array or an int."""
    return step // exploration.adapt_every if exploration.adapt_every else 0


def report(exploration: Exploration, state: TrainState) -> tuple[TrainState, dict[str, Array]]:
    """The state with losses that start anew, and what a log should show: the exploration's numbers, mean loss terms."""
    losses = state.losses
    means = jax.tree.map(lambda total: total / jnp.maximum(losses.train_steps, 1), losses.total)
    means = jax.tree.map(lambda mean: jnp.where(losses.train_steps > 0, mean, jnp.nan), means)
    shown = {**exploration.report(state.exploration, state.step), **means}
    return state._replace(losses=jax.tree.map(jnp.zeros_like, losses)), shown
