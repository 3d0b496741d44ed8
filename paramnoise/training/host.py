"""The host loop: any Gymnasium environment, stepped in Python.

Actions are chosen in NumPy where `HostActor` can, and else by one small compiled call per vector step. Transitions are
kept on the host until a train step or an adaptation is due; then one compiled call takes them all in, and does all that
is due. It runs in the background until its result is needed: with parameter noise that is the next episode, since an
episode's policy is fixed; with `overlap` the next call of its kind, so that acting is one training behind.
"""

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.agents.learner import Learner, Transition
from paramnoise.exploration import Exploration, ParameterNoise
from paramnoise.policies import Policy
from paramnoise.training import core
from paramnoise.training.evaluation import require_finite
from paramnoise.training.host_actor import HostActor
from paramnoise.training.programs import Programs
from paramnoise.training.vector_loop import VectorLoop

MOST_PENDING = 1_000
"""Vector steps that wait on the host at the most."""


class HostLoop(VectorLoop):
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
        super().__init__(make_env, seed, num_envs, eval_max_steps)
        self.learner, self.exploration = learner, exploration
        self._overlap = overlap
        self._episodes_are_fixed = isinstance(exploration, ParameterNoise)
        self._key = jax.random.PRNGKey(seed)  # a plain array, as are all leaves: it is saved and passed like any other
        self._pending: list[Transition] = []
        self._capacity = min(max(learner.config.train_every // num_envs, 1), MOST_PENDING)
        state = jax.jit(functools.partial(core.init, learner, exploration))(self._key, self._obs)
        self._programs = programs = Programs(learner, exploration, state)
        self._pack, self._unpack = jax.jit(programs.pack), jax.jit(programs.unpack)
        self._begin, self._adopt = jax.jit(programs.begin), jax.jit(programs.adopt)
        self._choose, self._report = jax.jit(programs.choose), jax.jit(programs.report)
        self._learn = jax.jit(programs.learn, donate_argnums=(0, 2))
        self._loss_names = tuple(state.losses.total)
        fits = HostActor.fits(exploration, learner.policy(state.learner))
        self._actor = HostActor(exploration, (seed, core.ACT), num_envs) if fits else None
        self._learner_thread = ThreadPoolExecutor(1, thread_name_prefix="learner")
        self._learning: Future[None] = Future()
        self._learning.set_result(None)
        self._training = self._learning
        self.state = state

    @property
    def state(self) -> core.TrainState:
        """The state of training, with all that happened taken in."""
        self._settle()
        learner, losses, explored = self._unpack(self._learned, self._explored)
        return core.TrainState(learner, explored, self._replay, losses, self._key, jnp.int32(self.step))

    @state.setter
    def state(self, state: core.TrainState) -> None:
        self._learned, self._explored, self._policy = self._pack(state.learner, state.losses, state.exploration)
        self._adapted = self._explored
        self._trained = (self._policy, self._adapted)
        self._replay = state.replay
        self.step = int(state.step)
        self._is_actor_loaded = False

    @property
    def policy(self) -> Policy:
        """The clean policy, as learned so far."""
        return self.learner.policy(self.state.learner)

    def snapshot(self) -> tuple[core.TrainState, dict[str, np.ndarray]]:
        """All that is needed to go on as if never interrupted: the state of training, and the loop's own arrays."""
        state, own = self.state, self._counts()
        if self._overlap:
            behind = (self._policy, self._adapted, self._trained)
            own |= {f"behind/{i}": np.asarray(vector) for i, vector in enumerate(jax.tree.leaves(behind))}
        return state, own

    def restore(self, state: core.TrainState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot; the environments replay their current episodes."""
        self._settle()
        self.state = state
        self._restore_counts(own)
        if self._overlap:
            behind = (self._policy, self._adapted, self._trained)
            vectors = [jnp.array(own[f"behind/{i}"]) for i in range(len(jax.tree.leaves(behind)))]
            self._policy, self._adapted, self._trained = jax.tree.unflatten(jax.tree.structure(behind), vectors)

    def close(self) -> None:
        """Closes all environments, and ends the thread that learns."""
        self._learner_thread.shutdown()
        super().close()

    def _step(self) -> None:
        step = np.int32(self.step)
        if self._any_start:
            self._explored = self._begin(self._explored, self._policy, self._key, step, self._starts)
            self._is_actor_loaded = False
        actions = self._act_compiled(step) if self._actor is None else self._act_in_numpy(self._actor)
        after = self._envs.step(actions)
        happened: Any = (self._obs, actions, after.reward, after.next_obs, after.terminated)  # NumPy, as jit takes it
        self._pending.append(Transition(*happened))
        before, self.step = self.step, self.step + self._envs.num_envs
        trains = self._trains(before, self.step)
        if trains or len(self._pending) == self._capacity or self._adapts(before, self.step):
            self._take_in(trains)
        self._count(after)

    def _act_compiled(self, step: np.int32) -> np.ndarray:
        chosen, changed = self._choose(self._explored, self._policy, self._key, step, self._obs)
        self._explored = changed or self._explored
        return np.asarray(chosen)

    def _act_in_numpy(self, actor: HostActor) -> np.ndarray:
        if not self._is_actor_loaded:
            programs = self._programs
            policy, explored = (
                packing.unpack([np.asarray(vector) for vector in vectors])
                for packing, vectors in ((programs.policy, self._policy), (programs.explored, self._explored))
            )
            actor.load(policy, explored)
            self._is_actor_loaded = True
        return actor.act(self._obs, self.step)

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
        step = np.int32(self.step - count * self._envs.num_envs)
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

    def _columns(self) -> dict[str, float]:
        self._settle()
        self._learned, reported, train_steps = self._report(
            self._learned, self._adapted, self._replay, self._key, np.int32(self.step)
        )
        shown = {name: value.item() for name, value in jax.device_get(reported).items()}
        if train_steps:
            require_finite({name: shown[name] for name in self._loss_names}, self.step)
        return shown
