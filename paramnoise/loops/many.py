"""The compiled loop of many environments and a learner from replay, made so that an accelerator waits little."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from paramnoise.agents.base import Learner
from paramnoise.explorations.base import Exploration, is_fixed_by_episode
from paramnoise.loops import jax_steps
from paramnoise.loops import step as steps
from paramnoise.loops.environments import JaxEnv
from paramnoise.loops.jax_steps import SEEDS, LoopState
from paramnoise.noise.many import loops_are_cheap, taking_turns


class Many(NamedTuple):
    """What goes from one step of many environments to the next."""

    done: Array
    """Steps of every environment so far."""
    state: LoopState
    ahead: Array | None
    """The next actions, where they are chosen beside the train steps."""
    policy: Array | None
    """The numbers of the policy that episodes were begun with last; None: the learner's. Those that still have to begin
    get the same, so that it does not matter which of them, and of which seed, a step began. They are one array: a
    loop's arrays are copied one by one, which took 10 of 270 microseconds."""


def advance(learner: Learner, exploration: Exploration, env: JaxEnv, state: LoopState, count: Array | int) -> LoopState:
    """So many steps of every environment, with all the learning that is due, so that an accelerator waits little.

    A branch or a loop of unknown length within a step costs more there than most steps' starts. So a step begins a
    fixed number of episodes, and the loop of steps ends where more are due: what is rare is done around it.

    Where an episode's behaviour is fixed, nothing that acts needs what a step trains: episodes begin, sigma is adapted
    and the next actions are chosen beside the train steps, on the learner of before them.
    """
    num_envs, is_fixed = state.waits.shape[0], is_fixed_by_episode(exploration)
    acts_ahead = is_fixed and _keeps_state(learner, exploration, state)

    def goes_on(carry: Many) -> Array:
        return (carry.done < count) & ~steps.any_of_all(carry.state.waits, SEEDS)

    def step_and_begin(carry: Many) -> Many:
        state, actions = carry.state, carry.ahead
        if actions is None:
            state, actions = jax_steps.choose(learner, exploration, state)
        state, happened = jax_steps.step(learner, env, state, actions)
        stored = steps.store(learner, state.train, happened)
        trained = steps.train_as_due(learner, stored, num_envs)
        seen = stored if is_fixed else trained
        explored = steps.adapt_as_due(learner, exploration, seen, num_envs)
        state = _begin_first(learner, exploration, state._replace(train=seen._replace(exploration=explored)))
        with _beside_training():
            state, ahead = jax_steps.choose(learner, exploration, state) if acts_ahead else (state, None)
        policy = ravel_pytree(learner.policy(seen.learner))[0] if is_fixed else None
        state = state._replace(train=trained._replace(exploration=state.train.exploration))
        return Many(carry.done + 1, state, ahead, policy)

    def steps_until_many_start(carry: tuple[Array, LoopState]) -> tuple[Array, LoopState]:
        done, state = carry
        state, ahead = jax_steps.choose(learner, exploration, state) if acts_ahead else (state, None)
        policy = ravel_pytree(learner.policy(state.train.learner))[0] if is_fixed else None
        after = jax.lax.while_loop(goes_on, step_and_begin, Many(done, state, ahead, policy))
        return after.done, jax_steps.begin(learner, exploration, after.state, after.policy)

    first = jnp.int32(0), jax_steps.begin(learner, exploration, state)
    return jax.lax.while_loop(lambda carry: carry[0] < count, steps_until_many_start, first)[1]


def _beside_training() -> AbstractContextManager[None]:
    """What is traced within does not hold up train steps on one accelerator.

    On several the policies of a part would be those of one, while the others wait.
    """
    return nullcontext() if loops_are_cheap() or jax.device_count() > 1 else taking_turns()


def _keeps_state(learner: Learner, exploration: Exploration, state: LoopState) -> bool:
    """Whether acting leaves the state of exploration as it is, so that an action may be chosen anew."""
    changed: list[int] = []

    def act(state: LoopState) -> None:
        after, _ = jax_steps.choose(learner, exploration, state)
        leaves = map(jax.tree.leaves, (state.train.exploration, after.train.exploration))
        changed.extend(steps.changed_places(*leaves))

    jax.eval_shape(act, state)
    return not changed


def _begin_first(learner: Learner, exploration: Exploration, state: LoopState) -> LoopState:
    """Begins some of the episodes that wait for it, on an accelerator at a cost that is always the same."""

    def begin(explored: Any, waits: Array) -> tuple[Any, Array]:
        behaviour = jax_steps.behaviour_of(learner, state)._replace(exploration=explored)
        return steps.begin_first(exploration, behaviour, waits)

    if loops_are_cheap():
        due = steps.any_of_all(state.waits, SEEDS)
        explored, waits = jax.lax.cond(due, begin, lambda *both: both, state.train.exploration, state.waits)
    else:
        explored, waits = begin(state.train.exploration, state.waits)
    return state._replace(train=state.train._replace(exploration=explored), waits=waits)
