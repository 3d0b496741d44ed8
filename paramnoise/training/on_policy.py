"""The on-policy loop: a batch of steps in any Gymnasium environment, then one update on all of it.

Episodes go on from one batch to the next. An episode's behaviour is the policy of now plus the episode's own offset, so
it is constant within a batch and follows what was learned after it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.agents.trpo import OnPolicyLearner, Report, Rollout
from paramnoise.policies import StochasticPolicy
from paramnoise.strategy import Exploration
from paramnoise.training.core import ACT, ADAPT, BEGIN, INIT, key_at
from paramnoise.training.evaluation import require_finite
from paramnoise.training.host_policy import HostPolicy
from paramnoise.training.rollout import RolloutBuffer
from paramnoise.training.vector_loop import VectorLoop, below
from paramnoise.validation import require


class OnPolicyState(NamedTuple):
    """All that changes in training, environments and the batch apart; with these, saving it is the checkpoint."""

    learner: Any
    exploration: Any
    key: Array
    step: Array
    """Environment steps by the last update."""


class OnPolicyLoop(VectorLoop):
    """On-policy training of one agent on Gymnasium environments; owns the side effects."""

    def __init__(
        self,
        learner: OnPolicyLearner,
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
            num_envs: environments stepped together, each with its own noise; they share a batch evenly.
            eval_max_steps: steps after which an evaluation's episode is cut.
        """
        size = learner.config.batch_size
        require(size >= num_envs, "batch_size", size, f"at least num_envs ({num_envs})")
        super().__init__(make_env, seed, num_envs, eval_max_steps)
        self.learner, self.exploration = learner, exploration
        self._is_continuous = isinstance(self._envs.action_space, gym.spaces.Box)
        self._reports: list[Report] = []
        self._key = jax.random.PRNGKey(seed)
        self.state = jax.jit(self._init)(self._key, self._obs)
        self._begin = jax.jit(self._begin_on_leaves)
        self._learn = jax.jit(self._learn_on_leaves)
        self._describe = jax.jit(exploration.report)
        self._acting = HostPolicy(self.policy)
        self._behave()
        self._batch_steps = size // num_envs
        self._draw_noise()
        action = self._acting.act(self._obs, self._noise[0])
        self._batch = RolloutBuffer(self._obs, action, self._batch_steps, self._offsets.shape[1])

    @property
    def state(self) -> OnPolicyState:
        """The state of training as of now."""
        return jax.tree.unflatten(self._structure, self._leaves)

    @state.setter
    def state(self, state: OnPolicyState) -> None:
        # Only leaves cross the compiled calls: flattening the modules of a state at each step would cost more than
        # acting does.
        self._leaves, self._structure = jax.tree.flatten(state)
        self._policy, self._policy_structure = jax.tree.flatten(self.learner.policy(state.learner))
        self._parameters = np.concatenate([np.ravel(leaf) for leaf in self._policy])
        first = len(jax.tree.leaves(state.learner))
        self._exploration = slice(first, first + len(jax.tree.leaves(state.exploration)))
        self._exploration_structure = jax.tree.structure(state.exploration)

    @property
    def policy(self) -> StochasticPolicy:
        """The clean policy."""
        return jax.tree.unflatten(self._policy_structure, self._policy)

    def snapshot(self) -> tuple[OnPolicyState, dict[str, np.ndarray]]:
        """All that is needed to go on as if never interrupted, at any vector step, and so within a batch."""
        own = {
            **self._counts(),
            "step": np.array(self.step),
            "reports": np.array(self._reports, np.float32).reshape(-1, len(Report._fields)),
            **{f"batch/{name}": array for name, array in self._batch.snapshot().items()},
        }
        return self.state, own

    def restore(self, state: OnPolicyState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot; the environments replay their current episodes."""
        self.state = state
        self._restore_counts(own)
        self.step = int(own["step"])
        self._reports = [Report(*row) for row in own["reports"]]
        self._batch.restore(below("batch/", own))
        self._behave()
        self._draw_noise()

    @property
    def _explored(self) -> list[Array]:
        return self._leaves[self._exploration]

    def _step(self) -> None:
        if self._any_start or self._batch.filled == 0:
            self._begin_segments()
        actions = self._acting.act(self._obs, self._noise[self._batch.filled])
        executed = np.minimum(np.maximum(actions, -1.0), 1.0) if self._is_continuous else actions
        after = self._envs.step(executed)
        self._batch.add(self._obs, actions, after)
        self.step += self._envs.num_envs
        self._count(after)
        if self._batch.is_full:
            self._improve()

    def _begin_segments(self) -> None:
        """Draws the noise of new episodes; every environment has a new segment where an episode or a batch starts."""
        if self._any_start and self._explored:
            step = np.int32(self.step)
            after = self._begin(self._explored, self._policy, self._key, step, self._starts)
            self._leaves[self._exploration] = after
        self._behave()
        self._batch.begin_segments(self._starts | (self._batch.filled == 0), self._starts, self._offsets)

    def _behave(self) -> None:
        """Gives each environment the policy of now plus the offset of its episode."""
        offsets = self.exploration.offsets(jax.tree.unflatten(self._exploration_structure, self._explored))
        nothing = np.zeros((self._envs.num_envs, self._parameters.size), np.float32)
        self._offsets = nothing if offsets is None else np.asarray(offsets)
        self._acting.load(self._parameters + self._offsets)

    @property
    def _batches(self) -> int:
        """Whole batches so far."""
        return self.step // (self._batch_steps * self._envs.num_envs)

    def _draw_noise(self) -> None:
        """Draws the randomness of all actions of a batch: a function of its number, so that it need not be saved."""
        self._noise = self._acting.draw_noise((self.seed, ACT, self._batches), self._batch_steps)

    def _improve(self) -> None:
        config = self.learner.config
        phase = self._batches - 1  # the Fisher matrix sees other rows in each batch
        rollout = self._batch.rollout(config.layout, config.fisher_layout, phase)
        leaves, report = self._learn(self._leaves, rollout, np.int32(self.step))
        report = jax.device_get(report)  # waits, so that the arrays of the batch are free again
        require_finite(report._asdict(), self.step, "a smaller delta_kl may help")
        self.state = jax.tree.unflatten(self._structure, leaves)
        self._reports.append(report)
        self._batch.clear()
        self._draw_noise()

    def _init(self, key: Array, obs: Array) -> OnPolicyState:
        state = self.learner.init(jax.random.fold_in(key, INIT))
        explored = self.exploration.init(self.learner.policy(state), obs)
        return OnPolicyState(state, explored, key, jnp.int32(0))

    def _begin_on_leaves(
        self, explored: list[Array], policy: list[Array], key: Array, step: Array, starts: Array
    ) -> list[Array]:
        state = jax.tree.unflatten(self._exploration_structure, explored)
        clean = jax.tree.unflatten(self._policy_structure, policy)
        return jax.tree.leaves(self.exploration.begin_episode(key_at(key, BEGIN, step), state, clean, starts, step))

    def _learn_on_leaves(self, leaves: list[Array], rollout: Rollout, step: Array) -> tuple[list[Array], Report]:
        state: OnPolicyState = jax.tree.unflatten(self._structure, leaves)
        learned, report = self.learner.update(state.learner, rollout)
        obs = rollout.obs.reshape(-1, *rollout.obs.shape[2:])
        key = key_at(state.key, ADAPT, step)
        explored = self.exploration.adapt(key, state.exploration, self.learner.policy(learned), obs, step)
        return jax.tree.leaves(OnPolicyState(learned, explored, state.key, step)), report

    def _columns(self) -> dict[str, float]:
        explored = jax.device_get(self._describe(self.state.exploration, np.int32(self.step)))
        means = np.mean(self._reports, axis=0) if self._reports else np.full(len(Report._fields), np.nan)
        self._reports = []
        return {
            **{name: value.item() for name, value in explored.items()},
            **dict(zip(Report._fields, map(float, means), strict=True)),
        }
