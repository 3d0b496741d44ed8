"""Steps of environments written in JAX, as pure functions of a loop's state; the compiled loop is made of these.

begin, choose, step: episodes begin where they are due, actions are chosen, every environment takes its step
gather: a batch of such steps, for a learner from rollouts
evaluate: noise-free episodes
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from paramnoise.agents.base import Learner
from paramnoise.experience.replay import Transition
from paramnoise.experience.rollout import Rollout
from paramnoise.explorations.base import Exploration
from paramnoise.keys import ACT, ENVIRONMENT, key_at
from paramnoise.loops import step as steps
from paramnoise.loops.environments import JaxEnv, step_or_reset
from paramnoise.loops.feeds import rollout as rollouts
from paramnoise.loops.state import TrainState, key_for
from paramnoise.loops.step import Behaviour
from paramnoise.networks.policies import Policy, noise_free_actions
from paramnoise.noise.many import loops_are_cheap

SEEDS = "seeds"
"""The `vmap` axis of the seeds that run side by side."""
UNROLL, LONGEST = 8, 2_400
"""Steps of a batch that are written out one after the other on an accelerator, where each round of a loop costs, and
the operations of an environment that they may have together: the time to compile grows faster than their number."""


class LoopState(NamedTuple):
    """Training and its environments."""

    train: TrainState
    obs: Array
    env_state: Any
    starts: Array
    """Where an episode starts with `obs`, bool[num_envs]."""
    running_return: Array
    """The return so far of each environment's episode."""
    episodes: Array
    """Episodes of each environment ended so far: a sum over all of them at every step would cost a GPU more."""
    ended_returns: Array
    """The sum of returns of each environment's episodes that ended since the last evaluation."""
    ended: Array
    """Their number."""
    waits: Array
    """Where the exploration has not begun yet the episode that starts with `obs`, bool[num_envs]."""


class Episodes(NamedTuple):
    """What a learner from rollouts keeps on the device between two batches, in place of replay."""

    time: Array
    """The steps of each environment's episode so far, [num_envs]."""


def behaviour_of(learner: Learner, state: LoopState) -> Behaviour:
    """What beginning and acting need."""
    training = state.train
    return Behaviour(training.exploration, learner.policy(training.learner), training.key, training.step)


def begin(learner: Learner, exploration: Exploration, state: LoopState, policy: Array | None = None) -> LoopState:
    """Begins all episodes that wait for it, with the numbers of a policy; None: the learner's own."""
    behaviour = behaviour_of(learner, state)
    if policy is not None:
        behaviour = behaviour._replace(policy=ravel_pytree(behaviour.policy)[1](policy))
    explored = steps.begin_if_any(exploration, behaviour, state.waits, SEEDS)
    return state._replace(train=state.train._replace(exploration=explored), waits=jnp.zeros_like(state.waits))


def choose(learner: Learner, exploration: Exploration, state: LoopState) -> tuple[LoopState, Array]:
    """The next action of every environment, whose episodes have begun, and the state after choosing it."""
    return _choose_with(key_for(state.train, ACT), learner, exploration, state)


def _choose_with(key: Array, learner: Learner, exploration: Exploration, state: LoopState) -> tuple[LoopState, Array]:
    """As `choose`, with the step's key for acting."""
    training, policy = state.train, learner.policy(state.train.learner)
    explored, actions = exploration.act(key, training.exploration, policy, state.obs, training.step)
    actions = steps.random_at_first(learner, training.key, training.step, actions)
    return state._replace(train=training._replace(exploration=explored)), actions


class StepKeys(NamedTuple):
    """The randomness of a step of every environment."""

    act: Array
    step: Array
    """Of each environment."""
    reset: Array
    """Of each environment, should its episode end."""


def _keys_at(key: Array, num_envs: int, step: Array) -> StepKeys:
    each = jax.vmap(jax.random.split)(jax.random.split(key_at(key, ENVIRONMENT, step), num_envs))
    return StepKeys(key_at(key, ACT, step), each[:, 0], each[:, 1])


def step(learner: Learner, env: JaxEnv, state: LoopState, actions: Array) -> tuple[LoopState, Transition]:
    """One step of every environment with its episodes counted, and what happened, as replay stores it."""
    keys = _keys_at(state.train.key, actions.shape[0], state.train.step)
    after, happened, _ = _execute(learner, env, keys, state, actions)
    if learner.drawing.n_step > 1:
        happened = happened._replace(starts=state.starts)
    return after, happened


def _execute(
    learner: Learner, env: JaxEnv, keys: StepKeys, state: LoopState, actions: Array
) -> tuple[LoopState, Transition, Array]:
    """One step of every environment with its episodes counted; nothing is learned, nor is the step counted.

    Args:
        learner: the agent.
        env: the environment.
        keys: of this step.
        state: before the step.
        actions: what the agent chose.

    Returns:
        The state after, what happened, and where a time limit cut an episode, bool[num_envs].
    """
    # On-policy, continuous actions are kept as sampled and executed within bounds.
    clips = learner.experience == "rollout" and not learner.spaces.is_discrete
    executed = jnp.clip(actions, -1.0, 1.0) if clips else actions
    go_on = jax.vmap(functools.partial(step_or_reset, env))
    after, obs, env_state = go_on(keys.step, keys.reset, state.env_state, executed)
    # The stored next observation is the one the action led to, never the reset's.
    happened = Transition(state.obs, actions, after.reward, after.obs, after.terminated)
    ended = after.terminated | after.truncated
    returns = state.running_return + after.reward
    state = state._replace(
        obs=obs,
        env_state=env_state,
        starts=ended,
        running_return=jnp.where(ended, 0.0, returns),
        episodes=state.episodes + ended,
        ended_returns=state.ended_returns + jnp.where(ended, returns, 0.0),
        ended=state.ended + ended,
        waits=ended,
    )
    return state, happened, after.truncated


def gather(learner: Learner, exploration: Exploration, env: JaxEnv, state: LoopState) -> tuple[LoopState, Rollout]:
    """A batch, [environments, steps, ...], and the state after it.

    Every step has an offset of its own, though those of one episode are equal: which steps start episodes is known only
    when the program runs, and a table of offsets has to have its size before.
    """
    training, num_envs = state.train, state.starts.shape[0]
    count = rollouts.rollout_steps(learner, num_envs)

    # What can be done for all steps at once is not done at each: on a GPU a step costs as much as it has kernels.
    keys_at = jax.vmap(functools.partial(_keys_at, training.key, num_envs))
    all_keys = keys_at(training.step + num_envs * jnp.arange(count, dtype=jnp.int32))

    def step(state: LoopState, keys: StepKeys) -> tuple[LoopState, Rollout]:
        time = state.train.experience.time
        chosen, actions = _choose_with(keys.act, learner, exploration, begin(learner, exploration, state))
        after, happened, truncated = _execute(learner, env, keys, chosen, actions)
        offsets = exploration.offsets(after.train.exploration) if learner.needs_offsets else None
        trained = after.train._replace(
            step=state.train.step + num_envs, experience=Episodes(jnp.where(after.starts, 0, time + 1))
        )
        return after._replace(train=trained), Rollout(*happened[:5], truncated, time, None, offsets)

    unroll = 1 if loops_are_cheap() else written_out(env)
    state, steps_first = jax.lax.scan(step, state, all_keys, unroll=unroll)
    batch = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps_first._replace(offsets=None))
    if not learner.needs_offsets:
        return state, batch
    if steps_first.offsets is None:
        return state, batch._replace(segment=jnp.zeros((num_envs, count), jnp.int32), offsets=jnp.zeros((1, 0)))
    segment = jnp.arange(count) * num_envs + jnp.arange(num_envs)[:, None]
    return state, batch._replace(segment=segment, offsets=steps_first.offsets.reshape(count * num_envs, -1))


def written_out(env: JaxEnv) -> int:
    """How many steps of a batch are written out: a power of two, fewer where a step of the environment is long."""
    key, action = jax.random.PRNGKey(0), jax.ShapeDtypeStruct(env.action_space.shape or (), env.action_space.dtype)
    _, state = jax.eval_shape(env.reset, key)
    fitting = LONGEST // max(_operations(jax.make_jaxpr(env.step)(key, state, action).jaxpr), 1)
    return 2 ** (min(max(fitting, 1), UNROLL).bit_length() - 1)


def _operations(jaxpr: Any) -> int:
    """Those of a program and of all programs in it."""
    parts = [part for equation in jaxpr.eqns for part in jax.tree.leaves(equation.params, is_leaf=_is_program)]
    return len(jaxpr.eqns) + sum(_operations(getattr(part, "jaxpr", part)) for part in parts if _is_program(part))


def _is_program(part: Any) -> bool:
    return hasattr(part, "jaxpr") or hasattr(part, "eqns")


def evaluate(policy: Policy, env: JaxEnv, key: Array, episodes: int) -> Array:
    """The returns of noise-free episodes, [episodes]."""
    reset_key, step_key = jax.random.split(key)
    obs, env_state = jax.vmap(env.reset)(jax.random.split(reset_key, episodes))

    def step(time: Array, carry: tuple[Array, Any, Array, Array]) -> tuple[Array, Any, Array, Array]:
        obs, env_state, alive, returns = carry
        keys = jax.random.split(jax.random.fold_in(step_key, time), episodes)
        after = jax.vmap(env.step)(keys, env_state, noise_free_actions(policy, obs))
        returns = returns + jnp.where(alive, after.reward, 0.0)
        return after.obs, after.state, alive & ~(after.terminated | after.truncated), returns

    start = (obs, env_state, jnp.ones(episodes, bool), jnp.zeros(episodes))
    return jax.lax.fori_loop(0, env.max_episode_steps, step, start)[3]
