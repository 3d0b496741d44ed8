"""The host loop: any Gymnasium environment, stepped in Python, with one compiled call per vector step.

That call stores the transitions, trains and adapts as often as is due, and chooses the next actions.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import jax
import numpy as np

from paramnoise.agents.learner import Learner, Transition
from paramnoise.envs.vector import VectorEnv
from paramnoise.exploration import Exploration
from paramnoise.policies import Policy, noise_free_actions
from paramnoise.training import core

EVALUATION_STREAM = 1_000_003
"""Keeps the seeds of evaluation episodes apart from those of training."""


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
        self._eval_max_steps = eval_max_steps
        self.learner, self.exploration, self.seed = learner, exploration, seed
        self._make_env = make_env
        self._envs = VectorEnv(make_env, num_envs, seed)
        self._evaluation: VectorEnv | None = None
        self._obs = self._envs.restart()
        self.state = jax.jit(functools.partial(core.init, learner, exploration))(jax.random.PRNGKey(seed), self._obs)
        self._actions: Any = None
        self._running_return = np.zeros(num_envs)
        self._ended_returns: list[float] = []
        self.episodes = 0
        self._act = self._compile(functools.partial(core.act, learner, exploration))
        self._advance = self._compile(functools.partial(_advance, learner, exploration))
        self._report = self._compile(functools.partial(core.report, exploration))

    @property
    def state(self) -> core.TrainState:
        """The state of training."""
        return jax.tree.unflatten(self._structure, self._leaves)

    @state.setter
    def state(self, state: core.TrainState) -> None:
        self._leaves, self._structure = jax.tree.flatten(state)

    @property
    def step(self) -> int:
        """Environment steps so far, over all environments."""
        return int(self.state.step)

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
        if self._actions is None:
            starts = np.ones(self._envs.num_envs, bool)
            self._actions = self._act(self._obs, starts)
        step = self.step
        while step < steps and not should_stop():
            self._step()
            step += self._envs.num_envs
            on_step(step)
            if step // eval_every > (step - self._envs.num_envs) // eval_every or step >= steps:
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
            "pending_actions": np.asarray(self._actions) if self._actions is not None else np.zeros(0),
            "running_return": self._running_return.copy(),
            "ended_returns": np.array(self._ended_returns),
            "episodes": np.array(self.episodes),
        }
        return self.state, {**own, **{f"env/{k}": v for k, v in self._envs.snapshot().items()}}

    def restore(self, state: core.TrainState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot; the environments replay their current episodes."""
        self.state = state
        self._actions = own["pending_actions"] if own["pending_actions"].size else None
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

    def _compile(self, function: Callable[..., tuple[core.TrainState, Any]]) -> Callable[..., Any]:
        """Compiles a function of the state that returns the next state and an output; calling it moves the state on.

        Only leaves cross the call: flattening the modules of a state at each step would cost more than a train step.
        """
        structure = self._structure

        def on_leaves(leaves: list[jax.Array], *args: Any) -> tuple[list[jax.Array], Any]:
            state, output = function(jax.tree.unflatten(structure, leaves), *args)
            return jax.tree.leaves(state), output

        compiled = jax.jit(on_leaves, donate_argnums=0)

        def call(*args: Any) -> Any:
            self._leaves, output = compiled(self._leaves, *args)
            return output

        return call

    def _step(self) -> None:
        actions = np.asarray(self._actions)
        after = self._envs.step(actions)
        happened: Any = (self._obs, actions, after.reward, after.next_obs, after.terminated)  # NumPy, as jit takes it
        self._actions = self._advance(Transition(*happened), after.obs, after.starts)
        self._obs = after.obs
        self._running_return += after.reward
        if after.starts.any():
            self._ended_returns += self._running_return[after.starts].tolist()
            self._running_return[after.starts] = 0.0
            self.episodes += int(after.starts.sum())

    def _row(self, eval_episodes: int) -> dict[str, float]:
        step = self.step
        # Seeded by the step, so that an evaluation neither depends on the ones before it nor disturbs training.
        returns = self.evaluate(eval_episodes, seed=EVALUATION_STREAM * self.seed + step)
        reported = self._report()
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
    obs = envs.restart(seed)
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(max_steps):
        after = envs.step(np.asarray(noise_free_actions(policy, obs)))
        returns += np.where(running, after.reward, 0.0)
        running &= ~after.starts
        if not running.any():
            break
        obs = after.obs
    return returns


def _advance(
    learner: Learner,
    exploration: Exploration,
    state: core.TrainState,
    batch: Transition,
    obs: jax.Array,
    starts: jax.Array,
) -> tuple[core.TrainState, jax.Array]:
    return core.act(learner, exploration, core.learn(learner, exploration, state, batch), obs, starts)
