"""The compiled loop: environment, exploration, experience and learner in one XLA program, seeds side by side.

It takes any environment written as pure functions (`JaxEnv`). A learner from replay learns after every step of all
environments; one from rollouts, after a batch of such steps.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.agents.base import Learner
from paramnoise.experience.replay import Replay
from paramnoise.experience.rollout import Rollout
from paramnoise.explorations.base import Exploration
from paramnoise.keys import ENVIRONMENT, EVALUATE
from paramnoise.loops import jax_steps, many
from paramnoise.loops import state as states
from paramnoise.loops import step as steps
from paramnoise.loops.devices import compiler_options
from paramnoise.loops.environments import JaxEnv, with_terminal_limits
from paramnoise.loops.feeds import rollout as rollouts
from paramnoise.loops.jax_steps import SEEDS, Episodes, LoopState
from paramnoise.loops.state import Losses, TrainState, key_for
from paramnoise.networks.policies import Policy
from paramnoise.noise.many import MANY


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
        return self.learner.policy(states.at_member(self.state.train.learner, member))


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
        episodes=jnp.zeros(num_envs, jnp.int32),
        ended_returns=jnp.zeros(num_envs),
        ended=jnp.zeros(num_envs, jnp.int32),
        waits=jnp.ones(num_envs, bool),
    )
    if learner.experience == "replay":
        return around(train=states.init_with_replay(learner, exploration, key, obs))
    episodes = Episodes(jnp.zeros(num_envs, jnp.int32))

    def first_batch() -> Rollout:
        agent = learner.init(key)
        explored = exploration.init(learner.policy(agent), obs)
        training = TrainState(agent, explored, episodes, Losses({}, jnp.int32(0)), key, jnp.int32(0))
        return jax_steps.gather(learner, exploration, env, around(train=training))[1]

    batch = jax.eval_shape(first_batch)
    return around(train=states.init(learner, exploration, key, obs, batch, episodes))


def strongly_typed(leaf: Array) -> Array:
    """The array with a dtype that a number in Python does not have: a loop's state keeps its types."""
    return jax.lax.convert_element_type(leaf, leaf.dtype)


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


def _epoch(
    learner: Learner, exploration: Exploration, env: JaxEnv, count: int, eval_episodes: int, state: LoopState
) -> tuple[LoopState, dict[str, Array]]:
    """Trains as `advance` does, then evaluates."""
    state = advance(learner, exploration, env, state, count)
    key = key_for(state.train, EVALUATE)
    returns = jax_steps.evaluate(learner.policy(state.train.learner), env, key, eval_episodes)
    ended_returns, ended = jnp.sum(state.ended_returns), jnp.sum(state.ended)
    state, reported = report(exploration, state)
    row = {
        "step": state.train.step,
        "episodes": jnp.sum(state.episodes),
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
        return many.advance(learner, exploration, env, state, count)

    def begin_and_step(_: Array, state: LoopState) -> LoopState:
        return _step_and_learn(learner, exploration, env, jax_steps.begin(learner, exploration, state))

    return jax.lax.fori_loop(0, count, begin_and_step, state)


def _step_and_learn(learner: Learner, exploration: Exploration, env: JaxEnv, state: LoopState) -> LoopState:
    """One step of every environment, whose episodes have begun, and the learning that follows it."""
    state, actions = jax_steps.choose(learner, exploration, state)
    state, happened = jax_steps.step(learner, env, state, actions)
    return state._replace(train=steps.learn(learner, exploration, state.train, happened))


def _gather_and_learn(learner: Learner, exploration: Exploration, env: JaxEnv, state: LoopState) -> LoopState:
    """A batch of steps of every environment, and the update on it."""
    state, batch = jax_steps.gather(learner, exploration, env, state)
    return state._replace(train=rollouts.learn(learner, exploration, None, state.train, batch, batch.obs))
