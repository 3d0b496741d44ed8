"""The host loop: any Gymnasium environment, stepped in Python.

Actions are chosen in NumPy where `HostActor` can, and else by one small compiled call per vector step. Transitions are
kept on the host until a train step or an adaptation is due; then one compiled call takes them all in, and does all that
is due. It runs in the background until its result is needed: with parameter noise that is the next episode, since an
episode's policy is fixed; with `overlap` the next call of its kind, so that acting is one training behind.
"""

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.agents.learner import Learner, Transition
from paramnoise.envs.vector import VectorEnv
from paramnoise.exploration import Exploration, ParameterNoise
from paramnoise.policies import Policy, noise_free_actions
from paramnoise.training import core
from paramnoise.training.host_actor import HostActor
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
        overlap: bool = False,
    ):
        """Makes the environments and the state; nothing is stepped yet.

        Args:
            learner: the agent.
            exploration: its exploration.
            make_env: makes one environment, whose observations are vectors.
            seed: decides every random draw.
            num_envs: environments stepped together, each with its own exploration.
            eval_max_steps: steps after which an evaluation's episode is cut.
            overlap: learn while the environments step; acting is then one training behind.
        """
        self.learner, self.exploration, self.seed = learner, exploration, seed
        self._make_env, self._eval_max_steps, self._overlap = make_env, eval_max_steps, overlap
        self._episodes_are_fixed = isinstance(exploration, ParameterNoise)
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
        self._policy_packing = Packing(learner.policy(state.learner))
        self._explored_packing = Packing(state.exploration)
        self._pack = jax.jit(self._packed)
        self._unpack = jax.jit(self._unpacked)
        self._begin = jax.jit(self._begin_packed)
        self._choose = jax.jit(self._choose_packed)
        self._adopt = jax.jit(self._adopt_packed)
        self._learn = jax.jit(self._learn_packed, donate_argnums=(0, 2))
        self._report = jax.jit(self._report_packed)
        self._loss_names = tuple(state.losses.total)
        fits = HostActor.fits(exploration, learner.policy(state.learner))
        self._actor = HostActor(exploration, (seed, core.ACT), num_envs) if fits else None
        self._learner_thread = ThreadPoolExecutor(1, thread_name_prefix="learner")
        self._learning: Future[None]
        self._learning = self._training = self._learner_thread.submit(lambda: None)
        self.state = state

    @property
    def state(self) -> core.TrainState:
        """The state of training, with all that happened taken in."""
        self._settle()
        learner, losses, explored = self._unpack(self._learned, self._explored)
        return core.TrainState(learner, explored, self._replay, losses, self._key, jnp.int32(self._step_count))

    @state.setter
    def state(self, state: core.TrainState) -> None:
        # Only vectors cross the compiled calls: flattening the modules of a state, or passing each of its arrays, would
        # cost more than a train step does.
        self._learned, self._explored, self._policy = self._pack(state.learner, state.losses, state.exploration)
        self._adapted = self._explored
        self._trained = (self._policy, self._adapted)
        self._replay = state.replay
        self._step_count = int(state.step)
        self._is_actor_loaded = False

    @property
    def step(self) -> int:
        """Environment steps so far, over all environments."""
        return self._step_count

    @property
    def policy(self) -> Policy:
        """The clean policy, as learned so far."""
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
        state = self.state
        if self._overlap:
            behind = (self._policy, self._adapted, self._trained)
            own |= {f"behind/{i}": np.asarray(vector) for i, vector in enumerate(jax.tree.leaves(behind))}
        return state, {**own, **{f"env/{k}": v for k, v in self._envs.snapshot().items()}}

    def restore(self, state: core.TrainState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot; the environments replay their current episodes."""
        self._settle()
        self.state = state
        self._starts = own["starts"].copy()
        self._running_return = own["running_return"].copy()
        self._ended_returns = own["ended_returns"].tolist()
        self.episodes = int(own["episodes"])
        if self._overlap:
            behind = (self._policy, self._adapted, self._trained)
            vectors = [jnp.array(own[f"behind/{i}"]) for i in range(len(jax.tree.leaves(behind)))]
            self._policy, self._adapted, self._trained = jax.tree.unflatten(jax.tree.structure(behind), vectors)
        envs = {k.removeprefix("env/"): v for k, v in own.items() if k.startswith("env/")}
        self._obs = self._envs.restore(envs)

    def close(self) -> None:
        """Closes all environments."""
        self._learner_thread.shutdown()
        self._envs.close()
        if self._evaluation is not None:
            self._evaluation.close()

    def _step(self) -> None:
        step = np.int32(self._step_count)
        if self._starts.any():
            self._explored = self._begin(self._explored, self._policy, self._key, step, self._starts)
            self._is_actor_loaded = False
        actions = self._act_compiled(step) if self._actor is None else self._act_in_numpy(self._actor)
        after = self._envs.step(actions)
        happened: Any = (self._obs, actions, after.reward, after.next_obs, after.terminated)  # NumPy, as jit takes it
        self._pending.append(Transition(*happened))
        before, self._step_count = self._step_count, self._step_count + self._envs.num_envs
        trains = self._trains(before, self._step_count)
        if trains or len(self._pending) == self._capacity or self._adapts(before, self._step_count):
            self._take_in(trains)
        self._obs, self._starts = after.obs, after.starts
        self._running_return += after.reward
        if after.starts.any():
            self._ended_returns += self._running_return[after.starts].tolist()
            self._running_return[after.starts] = 0.0
            self.episodes += int(after.starts.sum())

    def _act_compiled(self, step: np.int32) -> np.ndarray:
        chosen, changed = self._choose(self._explored, self._policy, self._key, step, self._obs)
        self._explored = changed or self._explored
        return np.asarray(chosen)

    def _act_in_numpy(self, actor: HostActor) -> np.ndarray:
        if not self._is_actor_loaded:
            policy, explored = (
                packing.unpack([np.asarray(vector) for vector in vectors])
                for packing, vectors in ((self._policy_packing, self._policy), (self._explored_packing, self._explored))
            )
            actor.load(policy, explored)
            self._is_actor_loaded = True
        return actor.act(self._obs, self._step_count)

    def _trains(self, before: int, after: int) -> bool:
        """Whether a train step falls between two environment steps."""
        return core.updates_by(self.learner.config, after) > core.updates_by(self.learner.config, before)

    def _adapts(self, before: int, after: int) -> bool:
        """Whether an adaptation falls between two environment steps."""
        return core.adaptations_by(self.exploration, after) > core.adaptations_by(self.exploration, before)

    def _settle(self) -> None:
        """Takes in all that happened, and waits until it is learned."""
        self._take_in()
        self._learning.result()

    def _take_in(self, trains: bool = False) -> None:
        """Learns from the transitions that are kept on the host; `trains` says that train steps are due."""
        if not self._pending:
            return
        count = len(self._pending)
        missing = self._capacity - count
        padded = [*self._pending, *[self._pending[-1]] * missing]  # one shape, one program
        batches = padded[0] if self._capacity == 1 else jax.tree.map(lambda *rows: np.stack(rows), *padded)
        step = np.int32(self._step_count - count * self._envs.num_envs)
        self._pending = []
        if not self._overlap:
            if trains and self._actor is not None:  # acting waits for nothing: never be ahead of a whole training
                jax.block_until_ready(self._trained)
            self._learn_from(batches, step, count, trains)
            self._explored, (self._policy, _) = self._adapted, self._trained
            self._is_actor_loaded &= self._episodes_are_fixed
            return
        if trains:  # act on what the training before this one learned
            self._training.result()
            self._policy, adapted = self._trained
            self._explored = self._adopt(self._explored, adapted)
            self._is_actor_loaded &= self._episodes_are_fixed
        # From a thread of its own: JAX runs what one thread asks for in order, and acting must not wait.
        self._learning = self._learner_thread.submit(self._learn_from, batches, step, count, trains)
        self._training = self._learning if trains else self._training

    def _learn_from(self, batches: Transition, step: np.int32, count: int, trains: bool) -> None:
        explored = self._adapted if self._overlap else self._explored
        self._learned, self._adapted, self._replay, policy = self._learn(
            self._learned, explored, self._replay, self._key, step, batches, np.int32(count)
        )
        if trains or not self._overlap:
            self._trained = (policy, self._adapted)
        if self._overlap:
            jax.block_until_ready(policy)

    def _packed(self, learner: Any, losses: core.Losses, explored: Any) -> tuple[list[Array], list[Array], list[Array]]:
        policy = self._policy_packing.pack(self.learner.policy(learner))
        return self._learned_packing.pack((learner, losses)), self._explored_packing.pack(explored), policy

    def _unpacked(self, learned: list[Array], explored: list[Array]) -> tuple[Any, core.Losses, Any]:
        return *self._learned_packing.unpack(learned), self._explored_packing.unpack(explored)

    def _behaviour(self, explored: list[Array], policy: list[Array], key: Array, step: Array) -> core.Behaviour:
        return core.Behaviour(self._explored_packing.unpack(explored), self._policy_packing.unpack(policy), key, step)

    def _begin_packed(
        self, explored: list[Array], policy: list[Array], key: Array, step: Array, starts: Array
    ) -> list[Array]:
        state = self._behaviour(explored, policy, key, step)
        return self._explored_packing.pack(core.begin(self.exploration, state, starts))

    def _adopt_packed(self, acting: list[Array], adapted: list[Array]) -> list[Array]:
        unpack = self._explored_packing.unpack
        return self._explored_packing.pack(self.exploration.adopt(unpack(acting), unpack(adapted)))

    def _choose_packed(
        self, explored: list[Array], policy: list[Array], key: Array, step: Array, obs: Array
    ) -> tuple[Array, list[Array]]:
        """The actions, and the state of exploration if acting changed it."""
        state = self._behaviour(explored, policy, key, step)
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
    ) -> tuple[list[Array], list[Array], Replay, list[Array]]:
        learner, losses, exploration = self._unpacked(learned, explored)
        state = core.TrainState(learner, exploration, replay, losses, key, step)

        def learn(i: Array, state: core.TrainState) -> core.TrainState:
            return core.learn(self.learner, self.exploration, state, jax.tree.map(lambda rows: rows[i], batches))

        if self._capacity == 1:  # an agent that trains at every step, such as DQN: no loop around its one step
            state = core.learn(self.learner, self.exploration, state, batches)
        else:
            state = jax.lax.fori_loop(0, count, learn, state)
        learned, explored, policy = self._packed(state.learner, state.losses, state.exploration)
        return learned, explored, state.replay, policy

    def _report_packed(
        self, learned: list[Array], explored: list[Array], replay: Replay, key: Array, step: Array
    ) -> tuple[list[Array], dict[str, Array], Array]:
        """What was learned, with loss terms that start anew; what a log should show; the train steps since the last."""
        learner, losses, exploration = self._unpacked(learned, explored)
        state = core.TrainState(learner, exploration, replay, losses, key, step)
        after, reported = core.report(self.exploration, state)
        return self._learned_packing.pack((after.learner, after.losses)), reported, losses.train_steps

    def _row(self, eval_episodes: int) -> dict[str, float]:
        step = self.step
        self._settle()
        # Seeded by the step, so that an evaluation neither depends on the ones before it nor disturbs training.
        returns = self.evaluate(eval_episodes, seed=EVALUATION_STREAM * self.seed + step)
        self._learned, reported, train_steps = self._report(
            self._learned, self._adapted, self._replay, self._key, np.int32(step)
        )
        for name in self._loss_names:
            if train_steps and not np.isfinite(reported[name]):
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
