"""The host loop: environments that live outside, such as Gymnasium's, for any agent and any kind of experience.

It decides when to evaluate and what a row of progress holds. A collector steps the environments and lets the agent
learn: `Stepping`, `Inside` where the environment is written in JAX, or `Population` for an agent whose experience is
returns.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.agents.base import Learner
from paramnoise.explorations.base import Exploration
from paramnoise.loops.environments import EnvSource
from paramnoise.loops.evaluation import EVALUATION_STREAM, EndedEpisode, Evaluator, Progress, Watch, first_columns
from paramnoise.loops.inside import Inside
from paramnoise.loops.population import Population
from paramnoise.loops.state import at_member
from paramnoise.loops.stepping import Stepping
from paramnoise.networks.policies import Policy
from paramnoise.validation import UsageError


class Collector(Protocol):
    """Who steps the environments and lets the agent learn from what happens."""

    progress: Progress

    @property
    def policies(self) -> Policy:
        """The clean policy as learned so far; with a leading axis of seeds where there is one."""

    def advance(self, on_step: Callable[[int], None], should_stop: Callable[[], bool], until: int) -> bool:
        """Collects a piece of experience and does the learning that is due; False if it was asked to stop midway.

        `until` is the step of the next row of progress, beyond which no piece should go that can be shorter.
        """

    def columns(self) -> list[dict[str, float]]:
        """What a row shows of learning and exploration, of each seed; means start anew."""

    def state(self, member: int = 0, *, experience: bool = True) -> Any:
        """The state of training of one seed, with its experience or, which may be quicker, without."""

    def snapshot(self, member: int) -> tuple[Any, dict[str, np.ndarray]]:
        """All that is needed to go on as if never interrupted, the counts of progress apart."""

    def restore(self, member: int, state: Any, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot."""

    def restore_learned(self, member: int, state: Any) -> None:
        """Knows what a state has learned, and is at its step; experience and environments are left as they are."""

    def close(self) -> None:
        """Closes all environments."""


def _is_inside(learner: Learner, source: EnvSource) -> bool:
    """Whether training is one compiled program: the environment is written in JAX, and the agent can be compiled."""
    return learner.can_be_compiled and source.functions is not None


class HostLoop:
    """Training of one agent on environments that live outside, once for each seed."""

    def __init__(
        self,
        learner: Learner,
        exploration: Exploration,
        source: EnvSource,
        *,
        seeds: Sequence[int] = (0,),
        num_envs: int = 1,
        eval_max_steps: int = 10_000,
        log_every: int | None = None,
        overlap: bool = False,
        terminal_time_limits: bool = False,
        replay_on: str = "auto",
        save_replay: bool = True,
        devices: int = 1,
    ):
        """Makes the environments and the state; nothing is stepped yet.

        Args:
            learner: the agent.
            exploration: its exploration.
            source: where environments come from.
            seeds: each decides every random draw of its own run; several train side by side, if they learn from replay.
            num_envs: environments of each seed, stepped together, each with its own exploration.
            eval_max_steps: steps after which an evaluation's episode is cut.
            log_every: environment steps of a seed between rows of progress without an evaluation; None: no such rows.
            overlap: learn while the environments step; acting is then one training behind.
            terminal_time_limits: whether training takes a time limit for an end of the task; evaluation does not.
            replay_on: frames: where they are kept: `device`, `host`, or `auto`, which is the device if it is a GPU.
            save_replay: frames: whether snapshots hold replay.
            devices: environments written in JAX: the devices among which they, or the seeds, are divided.
        """
        self.learner, self.exploration, self.seeds = learner, exploration, tuple(seeds)
        self.source = source
        self._log_every = log_every
        self._evaluator = Evaluator(source.make_envs, eval_max_steps)
        self._has_axis = learner.spaces.shows_frames or _is_inside(learner, source) or len(self.seeds) > 1
        if overlap and self._has_axis:
            raise UsageError(
                "overlap is for environments that show vectors, and one seed: with frames, or in JAX, "
                "learning overlaps already"
            )
        if devices > 1 and not _is_inside(learner, source):
            raise UsageError(
                f"devices must be 1, not {devices}, unless training is one compiled program (docs/loops.md)"
            )
        self.collector: Collector
        if _is_inside(learner, source):
            assert source.functions is not None
            self.collector = Inside(
                learner,
                exploration,
                source.functions,
                seeds=self.seeds,
                num_envs=num_envs,
                terminal_time_limits=terminal_time_limits,
                devices=devices,
            )
        elif learner.experience == "returns":
            if len(self.seeds) > 1:
                raise UsageError(
                    "seeds that learn from replay train side by side, and not those that learn from returns"
                )
            self.collector = Population(learner, source.make_env, self.seeds[0], num_envs, eval_max_steps)
        else:
            self.collector = Stepping(
                learner,
                exploration,
                source,
                seeds=self.seeds,
                num_envs=num_envs,
                overlap=overlap,
                terminal_time_limits=terminal_time_limits,
                replay_on=replay_on,
                save_replay=save_replay,
            )

    @property
    def step(self) -> int:
        """Environment steps so far, over all environments of a seed."""
        return self.collector.progress.step

    @property
    def episodes(self) -> int:
        """Episodes so far, of the first seed."""
        return int(self.collector.progress.episodes[0])

    def run(
        self,
        steps: int,
        *,
        eval_every: int,
        eval_episodes: int,
        on_step: Callable[[int], None] = lambda step: None,
        on_episode: Callable[[EndedEpisode], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[list[dict[str, float]]]:
        """Trains until `steps` environment steps of each seed in all, and yields rows of progress, one of each seed.

        A row with a noise-free evaluation follows every `eval_every` steps and the last step, one without every
        `log_every`. `on_step` hears the step count as it grows, `on_episode` of the first seed's episodes as they end;
        `should_stop` is asked where a snapshot can be taken.
        """
        progress, collector = self.collector.progress, self.collector
        progress.on_episode = on_episode
        before, due = progress.step, self._next_row(progress.step, steps, eval_every)
        while progress.step < steps and not should_stop():
            if not collector.advance(on_step, should_stop, due):
                return
            if (step := progress.step) >= due:
                evaluates = step // eval_every > before // eval_every or step >= steps
                yield self._rows(eval_episodes if evaluates else 0)
                before, due = step, self._next_row(step, steps, eval_every)

    def _next_row(self, step: int, steps: int, eval_every: int) -> int:
        """The first step after `step` at which a row of progress is due."""
        every = (eval_every,) if self._log_every is None else (eval_every, self._log_every)
        return min(steps, *((step // each + 1) * each for each in every))

    def policy(self, member: int = 0) -> Policy:
        """The clean policy of one of the seeds, as learned so far."""
        policies = self.collector.policies
        return at_member(policies, member) if self._has_axis else policies

    def evaluate(
        self, episodes: int, seed: int, member: int = 0, watch: Watch | None = None, policy: Policy | None = None
    ) -> np.ndarray:
        """The returns of noise-free episodes of one of the seeds, on environments of their own, [episodes].

        `watch` sees what the episodes show, step by step, and which of them go on. `policy` acts in place of the one
        that was learned, such as a perturbed one.
        """
        own = slice(member * episodes, (member + 1) * episodes)
        watch_own = None if watch is None else lambda shown, running: watch(shown[own], running[own])
        policies = policy
        if policy is not None and self._has_axis:
            policies = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(self.seeds)), policy)
        return self._returns(episodes, [seed] * len(self.seeds), watch_own, policies)[member]

    def state(self, member: int = 0, *, experience: bool = True) -> Any:
        """The state of training of one of the seeds, with its experience or, which may be quicker, without."""
        return self.collector.state(member, experience=experience)

    def snapshot(self, member: int = 0) -> tuple[Any, dict[str, np.ndarray]]:
        """All that is needed of one of the seeds to go on as if never interrupted: its state, and further arrays."""
        state, own = self.collector.snapshot(member)
        return state, {**own, **self.collector.progress.snapshot(member)}

    def restore(self, state: Any, own: dict[str, np.ndarray], member: int = 0) -> None:
        """Goes back to a snapshot; the environments replay their current episodes."""
        self.collector.progress.restore(member, own)
        self.collector.restore(member, state, own)

    def restore_learned(self, state: Any, member: int = 0) -> None:
        """Knows what a state without experience has learned: enough to evaluate, not to train on."""
        self.collector.restore_learned(member, state)

    def close(self) -> None:
        """Closes all environments."""
        self.collector.close()
        self._evaluator.close()

    def _returns(
        self, episodes: int, seeds: Sequence[int], watch: Watch | None = None, policies: Policy | None = None
    ) -> np.ndarray:
        policies = self.collector.policies if policies is None else policies
        return self._evaluator.returns(policies, seeds, episodes, has_axis=self._has_axis, watch=watch)

    def _rows(self, eval_episodes: int) -> list[dict[str, float]]:
        """A row of progress of each seed.

        The step decides an evaluation's seed, so that none depends on those before it or disturbs training.
        """
        progress = self.collector.progress
        returns = np.full((len(self.seeds), 1), np.nan)
        if eval_episodes:
            returns = self._returns(eval_episodes, [EVALUATION_STREAM * seed + self.step for seed in self.seeds])
        ended, progress.ended = progress.ended, [[] for _ in self.seeds]
        columns = self.collector.columns()
        return [
            {**first_columns(self.step, int(progress.episodes[i]), returns[i], ended[i]), **columns[i]}
            for i in range(len(self.seeds))
        ]
