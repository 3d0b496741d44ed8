"""The host loop: any Gymnasium environment, stepped in Python.

A vector step costs one small compiled call, which chooses the actions. Transitions are kept on the host until a train
step or an adaptation is due; then one compiled call takes them all in, and does all that is due.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.agents.learner import Learner, Transition
from paramnoise.envs.vector import VectorEnv
from paramnoise.exploration import Exploration
from paramnoise.policies import Policy, noise_free_actions
from paramnoise.training import core
from paramnoise.training.packing import Packing
from paramnoise.training.replay import Replay
from paramnoise.validation import RunError

EVALUATION_STREAM = 1_000_003
"""Keeps the seeds of evaluation episodes apart from those of training."""

MOST_PENDING = 1_000
"""Vector steps that wait on the host at the most."""


class HostLoop:
    """Training of one agent on Gymnasium environments; owns the side effects."""

    def __init__(
        self,
        learner: Learner,
        exploration: Exploration,
        make_env: Callable[[], gym.Env],
        *,
        seed: int = 0,
        num_envs: int = 1,
        eval_max_steps: int = 10_000,
    ):
        """Makes the environments and the state; nothing is stepped yet.

        Args:
            learner: the agent.
            exploration: its exploration.
            make_env: makes one environment, whose observations are vectors.
            seed: decides every random draw.
            num_envs: environments stepped together, each with its own exploration.
            eval_max_steps: steps after which an evaluation's episode is cut.
        """
        self.learner, self.exploration, self.seed = learner, exploration, seed
        self._make_env, self._eval_max_steps = make_env, eval_max_steps
        self._envs = VectorEnv(make_env, num_envs, seed)
        self._evaluation: VectorEnv | None = None
        self._obs = self._envs.restart()
        self._starts = np.ones(num_envs, bool)
        self._running_return = np.zeros(num_envs)
        self._ended_returns: list[float] = []
        self.episodes = 0
        self._key = jax.random.PRNGKey(seed)  # a plain array, as are all leaves: it is saved and passed like any other
        self._pending: list[Transition] = []
        self._capacity = min(max(learner.config.train_every // num_envs, 1), MOST_PENDING)
        state = jax.jit(functools.partial(core.init, learner, exploration))(self._key, self._obs)
        self._learned_packing = Packing((state.learner, state.losses))
        self._explored_packing = Packing(state.exploration)
        self._pack = jax.jit(self._packed)
        self._unpack = jax.jit(self._unpacked)
        self._begin = jax.jit(self._begin_packed, donate_argnums=0)
        self._choose = jax.jit(self._choose_packed)
        self._learn = jax.jit(self._learn_packed, donate_argnums=(0, 1, 2))
        self._report = jax.jit(functools.partial(core.report, exploration))
        self.state = state

    @property
    def state(self) -> core.TrainState:
        """The state of training, with all that happened taken in."""
        self._take_in()
        learner, losses, explored = self._unpack(self._learned, self._explored)
        return core.TrainState(learner, explored, self._replay, losses, self._key, jnp.int32(self._step_count))

    @state.setter
    def state(self, state: core.TrainState) -> None:
        # Only vectors cross the compiled calls: flattening the modules of a state, or passing each of its arrays, would
        # cost more than a train step does.
        self._learned, self._explored = self._pack(state.learner, state.losses, state.exploration)
        self._replay = state.replay
        self._step_count = int(state.step)

    @property
    def step(self) -> int:
        """Environment steps so far, over all environments."""
        return self._step_count

    @property
    def policy(self) -> Policy:
        """The clean policy."""
        return self.learner.policy(self.state.learner)

    def run(
        self,
        steps: int,
        *,
        eval_every: int,
        eval_episodes: int,
        on_step: Callable[[int], None] = lambda step: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[dict[str, float]]:
        """Trains until `steps` environment steps in all, and yields a row of progress after each evaluation.

        An evaluation follows every `eval_every` steps and the last step. `on_step` hears the step count after each
        vector step; `should_stop` is asked before each, where a snapshot can be taken.
        """
        while self.step < steps and not should_stop():
            before = self.step
            self._step()
            on_step(self.step)
            if self.step // eval_every > before // eval_every or self.step >= steps:
                yield self._row(eval_episodes)

    def evaluate(self, episodes: int, seed: int) -> np.ndarray:
        """The returns of noise-free episodes on environments of their own."""
        if self._evaluation is not None and self._evaluation.num_envs != episodes:
            self._evaluation.close()
            self._evaluation = None
        if self._evaluation is None:
            self._evaluation = VectorEnv(self._make_env, episodes, EVALUATION_STREAM)
        return evaluate(self.policy, self._evaluation, EVALUATION_STREAM + seed, self._eval_max_steps)

    def snapshot(self) -> tuple[core.TrainState, dict[str, np.ndarray]]:
        """All that is needed to go on as if never interrupted: the state of training, and the loop's own arrays."""
        own = {
            "starts": self._starts.copy(),
            "running_return": self._running_return.copy(),
            "ended_returns": np.array(self._ended_returns),
            "episodes": np.array(self.episodes),
        }
        return self.state, {**own, **{f"env/{k}": v for k, v in self._envs.snapshot().items()}}

    def restore(self, state: core.TrainState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot; the environments replay their current episodes."""
        self._pending = []
        self.state = state
        self._starts = own["starts"].copy()
        self._running_return = own["running_return"].copy()
        self._ended_returns = own["ended_returns"].tolist()
        self.episodes = int(own["episodes"])
        envs = {k.removeprefix("env/"): v for k, v in own.items() if k.startswith("env/")}
        self._obs = self._envs.restore(envs)

    def close(self) -> None:
        """Closes all environments."""
        self._envs.close()
        if self._evaluation is not None:
            self._evaluation.close()

    def _step(self) -> None:
        step = np.int32(self._step_count)
        if self._starts.any():
            self._explored = self._begin(self._explored, self._learned, self._key, step, self._starts)
        chosen, changed = self._choose(self._explored, self._learned, self._key, step, self._obs)
        self._explored = changed or self._explored
        actions = np.asarray(chosen)
        after = self._envs.step(actions)
        happened: Any = (self._obs, actions, after.reward, after.next_obs, after.terminated)  # NumPy, as jit takes it
        self._pending.append(Transition(*happened))
        before, self._step_count = self._step_count, self._step_count + self._envs.num_envs
        if len(self._pending) == self._capacity or self._is_due(before, self._step_count):
            self._take_in()
        self._obs, self._starts = after.obs, after.starts
        self._running_return += after.reward
        if after.starts.any():
            self._ended_returns += self._running_return[after.starts].tolist()
            self._running_return[after.starts] = 0.0
            self.episodes += int(after.starts.sum())

    def _is_due(self, before: int, after: int) -> bool:
        """Whether a train step or an adaptation falls between two environment steps."""
        config, exploration = self.learner.config, self.exploration
        return core.updates_by(config, after) > core.updates_by(config, before) or core.adaptations_by(
            exploration, after
        ) > core.adaptations_by(exploration, before)

    def _take_in(self) -> None:
        """Learns from the transitions that are kept on the host."""
        if not self._pending:
            return
        count = len(self._pending)
        missing = self._capacity - count
        padded = [*self._pending, *[self._pending[-1]] * missing]  # one shape, one program
        batches = padded[0] if self._capacity == 1 else jax.tree.map(lambda *rows: np.stack(rows), *padded)
        self._pending = []
        step = np.int32(self._step_count - count * self._envs.num_envs)
        self._learned, self._explored, self._replay = self._learn(
            self._learned, self._explored, self._replay, self._key, step, batches, np.int32(count)
        )

    def _packed(self, learner: Any, losses: core.Losses, explored: Any) -> tuple[list[Array], list[Array]]:
        return self._learned_packing.pack((learner, losses)), self._explored_packing.pack(explored)

    def _unpacked(self, learned: list[Array], explored: list[Array]) -> tuple[Any, core.Losses, Any]:
        return *self._learned_packing.unpack(learned), self._explored_packing.unpack(explored)

    def _behaviour(self, explored: list[Array], learned: list[Array], key: Array, step: Array) -> core.Behaviour:
        learner, _, exploration = self._unpacked(learned, explored)
        return core.Behaviour(exploration, self.learner.policy(learner), key, step)

    def _begin_packed(
        self, explored: list[Array], learned: list[Array], key: Array, step: Array, starts: Array
    ) -> list[Array]:
        state = self._behaviour(explored, learned, key, step)
        return self._explored_packing.pack(core.begin(self.exploration, state, starts))

    def _choose_packed(
        self, explored: list[Array], learned: list[Array], key: Array, step: Array, obs: Array
    ) -> tuple[Array, list[Array]]:
        """The actions, and the state of exploration if acting changed it."""
        state = self._behaviour(explored, learned, key, step)
        after, actions = core.choose(self.exploration, state, obs)
        pairs = zip(jax.tree.leaves(after), jax.tree.leaves(state.exploration), strict=True)
        is_same = all(new is old for new, old in pairs)
        return actions, [] if is_same else self._explored_packing.pack(after)

    def _learn_packed(
        self,
        learned: list[Array],
        explored: list[Array],
        replay: Replay,
        key: Array,
        step: Array,
        batches: Transition,
        count: Array,
    ) -> tuple[list[Array], list[Array], Replay]:
        learner, losses, exploration = self._unpacked(learned, explored)
        state = core.TrainState(learner, exploration, replay, losses, key, step)

        def learn(i: Array, state: core.TrainState) -> core.TrainState:
            return core.learn(self.learner, self.exploration, state, jax.tree.map(lambda rows: rows[i], batches))

        if self._capacity == 1:  # an agent that trains at every step, such as DQN: no loop around its one step
            state = core.learn(self.learner, self.exploration, state, batches)
        else:
            state = jax.lax.fori_loop(0, count, learn, state)
        return *self._packed(state.learner, state.losses, state.exploration), state.replay

    def _row(self, eval_episodes: int) -> dict[str, float]:
        step = self.step
        # Seeded by the step, so that an evaluation neither depends on the ones before it nor disturbs training.
        returns = self.evaluate(eval_episodes, seed=EVALUATION_STREAM * self.seed + step)
        trained = int(self.state.losses.train_steps) > 0
        self.state, reported = self._report(self.state)
        for name in self.state.losses.total:
            if trained and not np.isfinite(reported[name]):
                raise RunError(
                    f"{name} is {reported[name]} by step {step}: learning has diverged (a lower rate may help)"
                )
        ended, self._ended_returns = self._ended_returns, []
        return {
            "step": step,
            "episodes": self.episodes,
            "eval_return_mean": float(np.mean(returns)),
            "eval_return_median": float(np.median(returns)),
            "train_return_mean": float(np.mean(ended)) if ended else float("nan"),
            **{name: value.item() for name, value in jax.device_get(reported).items()},
        }


def evaluate(policy: Policy, envs: VectorEnv, seed: int, max_steps: int) -> np.ndarray:
    """The return of one noise-free episode, or of its first `max_steps` steps, in each environment."""
    leaves, structure = jax.tree.flatten(policy)
    obs = envs.restart(seed)
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(max_steps):
        after = envs.step(np.asarray(_noise_free(structure, leaves, obs)), where=running)
        returns += after.reward
        running &= ~after.starts
        if not running.any():
            break
        obs = after.obs
    return returns


@functools.partial(jax.jit, static_argnums=0)
def _noise_free(structure: Any, leaves: list[Array], obs: Array) -> Array:
    return noise_free_actions(jax.tree.unflatten(structure, leaves), obs)
