"""The compiled loop: environment, exploration, experience and learner in one XLA program, seeds side by side.

It takes any environment written as pure functions (`JaxEnv`). A learner from replay learns after every step of all
environments; one from rollouts, after a batch of such steps.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.agents.base import Learner
from paramnoise.experience.replay import Replay, Transition
from paramnoise.experience.rollout import Rollout
from paramnoise.explorations.base import Exploration, is_fixed_by_episode
from paramnoise.keys import ACT, ENVIRONMENT, EVALUATE, key_at
from paramnoise.loops import step as steps
from paramnoise.loops.environments import JaxEnv, step_or_reset, with_terminal_limits
from paramnoise.loops.feeds import rollout as rollouts
from paramnoise.loops.step import Behaviour, Losses, TrainState, key_for
from paramnoise.networks.policies import Policy, noise_free_actions
from paramnoise.noise.many import MANY, loops_are_cheap

SEEDS = "seeds"


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
    """Episodes ended so far."""
    ended_returns: Array
    """The sum of returns of the episodes that ended since the last evaluation."""
    ended: Array
    """Their number."""
    waits: Array
    """Where the exploration has not begun yet the episode that starts with `obs`, bool[num_envs]."""


class Episodes(NamedTuple):
    """What a learner from rollouts keeps on the device between two batches, in place of replay."""

    time: Array
    """The steps of each environment's episode so far, [num_envs]."""


def axes(learner: Learner) -> Any:
    """The axis of seeds of each part of a `LoopState` under `vmap`: 0, or None.

    What has none stays one number for all seeds, so that writes into replay stay slices and branches branches.
    """
    held: Any = Replay(data=0, added=None, priorities=0) if learner.experience == "replay" else 0  # type: ignore[arg-type]
    train: Any = TrainState(learner=0, exploration=0, experience=held, losses=0, key=0, step=None)  # type: ignore[arg-type]
    return LoopState(*[0] * len(LoopState._fields))._replace(train=train)  # type: ignore[arg-type]


def over_seeds(function: Callable[..., Any], seeds: int, in_axes: Any, out_axes: Any) -> Callable[..., Any]:
    """The function of one seed's arrays as one of arrays of all seeds, whose axes are as `jax.vmap` takes them.

    The arrays of a single seed lose their axis on the way in and get it back: as an axis of length 1 it would stand in
    every product of matrices, for which XLA then transposes what goes in (PQN's update: 9 times as long on a CPU).
    """
    if seeds > 1:
        return jax.vmap(function, in_axes, out_axes, axis_name=SEEDS)
    alone = jax.vmap(function, in_axes=None, out_axes=None, axis_name=SEEDS, axis_size=1)  # its axis has a name only

    def of_one(*arrays: Any) -> Any:
        return along(jnp.expand_dims, out_axes, alone(*along(jnp.squeeze, in_axes, arrays)))

    return of_one


def along(change: Callable[[Array, Any], Any], axes: Any, tree: Any) -> Any:
    """Every array changed by what is done along its axis; `axes` is a prefix of the tree, None: left as it is."""
    is_none = lambda axis: axis is None  # noqa: E731
    in_part = lambda axis, part: part if axis is None else jax.tree.map(lambda leaf: change(leaf, axis), part)  # noqa: E731
    return jax.tree.map(in_part, axes, tree, is_leaf=is_none)


def steps_between(learner: Learner, num_envs: int) -> int:
    """Steps of every environment from one time that something is learned to the next, the least that is done."""
    return 1 if learner.experience == "replay" else rollouts.rollout_steps(learner, num_envs)


class CompiledLoop:
    """Training of one agent per seed, side by side; owns nothing but arrays."""

    def __init__(
        self,
        learner: Learner,
        exploration: Exploration,
        env: JaxEnv,
        *,
        seeds: Sequence[int],
        eval_every: int,
        eval_episodes: int = 1,
        num_envs: int = 1,
        terminal_time_limits: bool = False,
    ):
        """Makes the states; nothing is stepped yet.

        Args:
            learner: the agent.
            exploration: its exploration.
            env: the environment, as pure functions.
            seeds: one agent each.
            eval_every: environment steps, over all environments of a seed, between noise-free evaluations; rounded
                down to whole batches.
            eval_episodes: episodes of an evaluation.
            num_envs: environments per seed, each with its own exploration.
            terminal_time_limits: whether training takes a time limit for an end of the task.
        """
        self.learner = learner
        env = for_training(env, terminal_time_limits)
        first, held = functools.partial(init, learner, exploration, env, num_envs), axes(learner)
        keys = jnp.stack([jax.random.PRNGKey(seed) for seed in seeds])
        self.state: LoopState = jax.jit(over_seeds(first, len(keys), (0,), held))(keys)
        count = max(eval_every // (num_envs * steps_between(learner, num_envs)), 1)
        epoch = functools.partial(_epoch, learner, exploration, env, count, eval_episodes)

        def call(evaluations: int, state: LoopState) -> tuple[LoopState, dict[str, Array]]:
            several = lambda s: jax.lax.scan(lambda carry, _: epoch(carry), s, length=evaluations)  # noqa: E731
            return over_seeds(several, len(keys), (held,), (held, 1))(state)

        self._call = jax.jit(call, static_argnums=0, donate_argnums=1, compiler_options=compiler_options())

    def run(self, evaluations: int) -> dict[str, np.ndarray]:
        """Trains on, with so many evaluations, in one call of the compiled program.

        More evaluations per call cost less, fewer let the caller stop sooner; each new number compiles anew.

        Returns:
            The rows of progress as arrays of shape [evaluations, seeds].
        """
        self.state, rows = self._call(evaluations, self.state)
        return jax.tree.map(np.asarray, rows)

    def policy(self, member: int = 0) -> Policy:
        """The clean policy of one of the seeds."""
        return self.learner.policy(steps.at_member(self.state.train.learner, member))


def compiler_options() -> dict[str, str | bool] | None:
    """How programs of many small parts are compiled: on a GPU, parts that do not depend on each other run at once."""
    is_gpu = jax.default_backend() == "gpu"
    return {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"} if is_gpu else None


def for_training(env: JaxEnv, terminal_time_limits: bool) -> JaxEnv:
    """The environment as training sees it: with `terminal_time_limits` a time limit is an end of the task."""
    if not terminal_time_limits:
        return env
    return env._replace(step=lambda *args: with_terminal_limits(env.step(*args)))


def init(learner: Learner, exploration: Exploration, env: JaxEnv, num_envs: int, key: Array) -> LoopState:
    """The state of one seed before its first step."""
    env_keys = jax.random.split(jax.random.fold_in(key, ENVIRONMENT), num_envs)
    obs, env_state = jax.tree.map(strongly_typed, jax.vmap(env.reset)(env_keys))
    around = functools.partial(
        LoopState,
        obs=obs,
        env_state=env_state,
        starts=jnp.ones(num_envs, bool),
        running_return=jnp.zeros(num_envs),
        episodes=jnp.int32(0),
        ended_returns=jnp.float32(0),
        ended=jnp.int32(0),
        waits=jnp.ones(num_envs, bool),
    )
    if learner.experience == "replay":
        return around(train=steps.init_with_replay(learner, exploration, key, obs))
    episodes = Episodes(jnp.zeros(num_envs, jnp.int32))

    def first_batch() -> Rollout:
        agent = learner.init(key)
        explored = exploration.init(learner.policy(agent), obs)
        training = TrainState(agent, explored, episodes, Losses({}, jnp.int32(0)), key, jnp.int32(0))
        return _gather(learner, exploration, env, around(train=training))[1]

    batch = jax.eval_shape(first_batch)
    return around(train=steps.init(learner, exploration, key, obs, batch, episodes))


def _epoch(
    learner: Learner, exploration: Exploration, env: JaxEnv, count: int, eval_episodes: int, state: LoopState
) -> tuple[LoopState, dict[str, Array]]:
    """Trains as `advance` does, then evaluates."""
    state = advance(learner, exploration, env, state, count)
    key = key_for(state.train, EVALUATE)
    returns = evaluate(learner.policy(state.train.learner), env, key, eval_episodes)
    ended_returns, ended = state.ended_returns, state.ended
    state, reported = report(exploration, state)
    row = {
        "step": state.train.step,
        "episodes": state.episodes,
        "eval_return_mean": jnp.mean(returns),
        "eval_return_median": jnp.median(returns),
        "train_return_mean": ended_returns / ended,
        **reported,
    }
    return state, row


def report(exploration: Exploration, state: LoopState) -> tuple[LoopState, dict[str, Array]]:
    """The state with means that start anew, and what a log should show of learning and exploration."""
    training, shown = steps.report(exploration, state.train)
    fresh = {"ended_returns": jnp.zeros_like(state.ended_returns), "ended": jnp.zeros_like(state.ended)}
    return state._replace(train=training, **fresh), shown


def advance(learner: Learner, exploration: Exploration, env: JaxEnv, state: LoopState, count: Array | int) -> LoopState:
    """So many times `steps_between` steps of every environment, with all the learning that is due."""
    if learner.experience == "rollout":
        return jax.lax.fori_loop(0, count, lambda _, s: _gather_and_learn(learner, exploration, env, s), state)
    if state.waits.shape[0] >= MANY:
        return _advance_many(learner, exploration, env, state, count)

    def begin_and_step(_: Array, state: LoopState) -> LoopState:
        return _step_and_learn(learner, exploration, env, _begin(learner, exploration, state))

    return jax.lax.fori_loop(0, count, begin_and_step, state)


def _advance_many(
    learner: Learner, exploration: Exploration, env: JaxEnv, state: LoopState, count: Array | int
) -> LoopState:
    """As `advance`, for many environments and a learner from replay, so that an accelerator waits little.

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
            state, actions = _choose(learner, exploration, state)
        state, happened = _step(learner, env, state, actions)
        stored = steps.store(learner, state.train, happened)
        trained = steps.train_as_due(learner, stored, num_envs)
        seen = stored if is_fixed else trained
        explored = steps.adapt_as_due(learner, exploration, seen, num_envs)
        state = _begin_first(learner, exploration, state._replace(train=seen._replace(exploration=explored)))
        state, ahead = _choose(learner, exploration, state) if acts_ahead else (state, None)
        policy = _arrays(learner.policy(seen.learner)) if is_fixed else None
        state = state._replace(train=trained._replace(exploration=state.train.exploration))
        return Many(carry.done + 1, state, ahead, policy)

    def steps_until_many_start(carry: tuple[Array, LoopState]) -> tuple[Array, LoopState]:
        done, state = carry
        state, ahead = _choose(learner, exploration, state) if acts_ahead else (state, None)
        policy = _arrays(learner.policy(state.train.learner)) if is_fixed else None
        after = jax.lax.while_loop(goes_on, step_and_begin, Many(done, state, ahead, policy))
        return after.done, _begin(learner, exploration, after.state, after.policy)

    first = jnp.int32(0), _begin(learner, exploration, state)
    return jax.lax.while_loop(lambda carry: carry[0] < count, steps_until_many_start, first)[1]


class Many(NamedTuple):
    """What goes from one step of many environments to the next."""

    done: Array
    """Steps of every environment so far."""
    state: LoopState
    ahead: Array | None
    """The next actions, where they are chosen beside the train steps."""
    policy: Any
    """The arrays of the policy that episodes were begun with last; None: the learner's. Those that still have to begin
    get the same, so that it does not matter which of them, and of which seed, a step began."""


def _keeps_state(learner: Learner, exploration: Exploration, state: LoopState) -> bool:
    """Whether acting leaves the state of exploration as it is, so that an action may be chosen anew."""
    changed: list[int] = []

    def act(state: LoopState) -> None:
        after, _ = _choose(learner, exploration, state)
        leaves = map(jax.tree.leaves, (state.train.exploration, after.train.exploration))
        changed.extend(steps.changed_places(*leaves))

    jax.eval_shape(act, state)
    return not changed


def _arrays(policy: Policy) -> Policy:
    return eqx.filter(policy, eqx.is_array)


def _behaviour(learner: Learner, state: LoopState) -> Behaviour:
    """What beginning and acting need."""
    training = state.train
    return Behaviour(training.exploration, learner.policy(training.learner), training.key, training.step)


def _begin(learner: Learner, exploration: Exploration, state: LoopState, policy: Any = None) -> LoopState:
    """Begins all episodes that wait for it, with the arrays of a policy; None: the learner's own."""
    behaviour = _behaviour(learner, state)
    if policy is not None:
        behaviour = behaviour._replace(policy=eqx.combine(policy, behaviour.policy))
    explored = steps.begin_if_any(exploration, behaviour, state.waits, SEEDS)
    return state._replace(train=state.train._replace(exploration=explored), waits=jnp.zeros_like(state.waits))


def _begin_first(learner: Learner, exploration: Exploration, state: LoopState) -> LoopState:
    """Begins some of the episodes that wait for it, on an accelerator at a cost that is always the same."""

    def begin(explored: Any, waits: Array) -> tuple[Any, Array]:
        return steps.begin_first(exploration, _behaviour(learner, state)._replace(exploration=explored), waits)

    if loops_are_cheap():
        due = steps.any_of_all(state.waits, SEEDS)
        explored, waits = jax.lax.cond(due, begin, lambda *both: both, state.train.exploration, state.waits)
    else:
        explored, waits = begin(state.train.exploration, state.waits)
    return state._replace(train=state.train._replace(exploration=explored), waits=waits)


def strongly_typed(leaf: Array) -> Array:
    """The array with a dtype that a number in Python does not have: a loop's state keeps its types."""
    return jax.lax.convert_element_type(leaf, leaf.dtype)


def _step_and_learn(learner: Learner, exploration: Exploration, env: JaxEnv, state: LoopState) -> LoopState:
    """One step of every environment, whose episodes have begun, and the learning that follows it."""
    state, actions = _choose(learner, exploration, state)
    state, happened = _step(learner, env, state, actions)
    return state._replace(train=steps.learn(learner, exploration, state.train, happened))


def _gather_and_learn(learner: Learner, exploration: Exploration, env: JaxEnv, state: LoopState) -> LoopState:
    """A batch of steps of every environment, and the update on it."""
    state, batch = _gather(learner, exploration, env, state)
    return state._replace(train=rollouts.learn(learner, exploration, None, state.train, batch, batch.obs))


def _gather(learner: Learner, exploration: Exploration, env: JaxEnv, state: LoopState) -> tuple[LoopState, Rollout]:
    """A batch, [environments, steps, ...], and the state after it.

    Every step has an offset of its own, though those of one episode are equal: which steps start episodes is known only
    when the program runs, and a table of offsets has to have its size before.
    """
    training, num_envs = state.train, state.starts.shape[0]
    count = rollouts.rollout_steps(learner, num_envs)

    # What can be done for all steps at once is not done at each: on a GPU a step costs as much as it has kernels.
    keys_at = jax.vmap(functools.partial(_keys_at, training.key, num_envs))
    all_keys = keys_at(training.step + num_envs * jnp.arange(count, dtype=jnp.int32))

    def step(carry: tuple[LoopState, Array, Array], keys: StepKeys) -> tuple[tuple[LoopState, Array, Array], Rollout]:
        state, ended, returns = carry
        time = state.train.experience.time
        chosen, actions = _choose(learner, exploration, _begin(learner, exploration, state), keys.act)
        after, happened, ends = _execute(learner, env, keys, chosen, actions)
        offsets = exploration.offsets(after.train.exploration) if learner.needs_offsets else None
        trained = after.train._replace(
            step=state.train.step + num_envs, experience=Episodes(jnp.where(after.starts, 0, time + 1))
        )
        carry = after._replace(train=trained), ended + ends.ended, returns + ends.returns
        return carry, Rollout(*happened[:5], ends.truncated, time, None, offsets)

    nothing = jnp.zeros(num_envs, jnp.int32), jnp.zeros(num_envs)
    (state, *of_each), steps_first = jax.lax.scan(step, (state, *nothing), all_keys)
    state = _counted(state, *of_each)
    batch = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), steps_first._replace(offsets=None))
    if not learner.needs_offsets:
        return state, batch
    if steps_first.offsets is None:
        return state, batch._replace(segment=jnp.zeros((num_envs, count), jnp.int32), offsets=jnp.zeros((1, 0)))
    segment = jnp.arange(count) * num_envs + jnp.arange(num_envs)[:, None]
    return state, batch._replace(segment=segment, offsets=steps_first.offsets.reshape(count * num_envs, -1))


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


def _choose(
    learner: Learner, exploration: Exploration, state: LoopState, key: Array | None = None
) -> tuple[LoopState, Array]:
    """The next action of every environment, whose episodes have begun, and the state after choosing it.

    Args:
        learner: the agent.
        exploration: its exploration.
        state: before it.
        key: the step's for acting, where it is made already.
    """
    training, policy = state.train, learner.policy(state.train.learner)
    key = key_for(training, ACT) if key is None else key
    explored, actions = exploration.act(key, training.exploration, policy, state.obs, training.step)
    actions = steps.random_at_first(learner, training.key, training.step, actions)
    return state._replace(train=training._replace(exploration=explored)), actions


def _step(learner: Learner, env: JaxEnv, state: LoopState, actions: Array) -> tuple[LoopState, Transition]:
    """One step of every environment with its episodes counted, and what happened, as replay stores it."""
    keys = _keys_at(state.train.key, actions.shape[0], state.train.step)
    after, happened, ends = _execute(learner, env, keys, state, actions)
    if learner.drawing.n_step > 1:
        happened = happened._replace(starts=state.starts)
    return _counted(after, ends.ended, ends.returns), happened


class Ends(NamedTuple):
    """The episodes that a step of every environment ended, [num_envs]."""

    ended: Array
    truncated: Array
    """Where a time limit cut one."""
    returns: Array
    """Their returns; 0 where none ended."""


def _execute(
    learner: Learner, env: JaxEnv, keys: StepKeys, state: LoopState, actions: Array
) -> tuple[LoopState, Transition, Ends]:
    """One step of every environment; nothing is learned, nor are step and episodes counted.

    Args:
        learner: the agent.
        env: the environment.
        keys: of this step.
        state: before the step.
        actions: what the agent chose.

    Returns:
        The state after, what happened, and what ended.
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
        waits=ended,
    )
    return state, happened, Ends(ended, after.truncated, jnp.where(ended, returns, 0.0))


def _counted(state: LoopState, ended: Array, returns: Array) -> LoopState:
    """The state with the episodes that ended, and the sum of their returns, of each environment."""
    number = jnp.sum(ended)
    return state._replace(
        episodes=state.episodes + number,
        ended_returns=state.ended_returns + jnp.sum(returns),
        ended=state.ended + number,
    )


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
