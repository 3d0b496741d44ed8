"""Collects returns: a generation of perturbed policies, each for an episode or a few, then one update.

Nothing but the state lasts from one generation to the next, so a checkpoint holds that alone, and a generation that was
interrupted is evaluated again.
"""

import functools
from collections.abc import Callable, Generator
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.agents.base import Learner
from paramnoise.experience.returns import Broadcast, Episode, Returns, gather, num_parameters
from paramnoise.explorations.base import NoNoise
from paramnoise.loops import state as states
from paramnoise.loops import step as steps
from paramnoise.loops.evaluation import Progress, require_finite
from paramnoise.loops.members import MemberEvaluator, Setting
from paramnoise.loops.state import Losses, TrainState
from paramnoise.networks.policies import Policy
from paramnoise.parallel.local_tasks import LocalTasks
from paramnoise.parallel.ray_cluster import check_installed
from paramnoise.validation import require_memory


class Population:
    """Training by a population, in this process, in others or on a Ray cluster; owns the side effects."""

    def __init__(self, learner: Learner, make_env: Callable[[], gym.Env], seed: int, num_envs: int, max_steps: int):
        """Makes the state, and the environments unless workers will make them.

        Args:
            learner: the agent, whose config says how large a generation is and who evaluates it.
            make_env: makes one environment.
            seed: decides every random draw.
            num_envs: members evaluated side by side, in each worker; it changes no result (pixels: but for rounding).
            max_steps: steps after which a member's episode is cut.
        """
        self.learner, self._seed = learner, seed
        self._setting = Setting(learner, make_env, seed, num_envs, max_steps)
        self._num_parameters = num_parameters(learner.init)
        numbers = learner.config.table_size + (learner.config.pairs + 3) * self._num_parameters  # 3: theta and Adam's
        require_memory(4 * numbers, f"a generation of {learner.config.pairs:,} pairs, with its table of noise,")
        # Where there is no cluster, what was trained on one can still be evaluated.
        self._members: Any = None if learner.config.engine == "ray" else self._make_members()
        self._update = jax.jit(self._updated)
        self._report = jax.jit(functools.partial(steps.report, NoNoise()))
        self.progress = Progress((seed,), 1)
        self._lengths: list[int] = []
        self._state: TrainState = jax.jit(self._init)(jax.random.PRNGKey(seed))

    @property
    def policies(self) -> Policy:
        """The unperturbed policy; where it sees frames, with a leading axis of one seed."""
        policy = self.learner.policy(self._state.learner)
        return jax.tree.map(lambda leaf: leaf[None], policy) if self.learner.spaces.shows_frames else policy

    def advance(self, on_step: Callable[[int], None], should_stop: Callable[[], bool], until: int) -> bool:
        """One generation, and the update on its returns; if it was asked to stop the generation at hand is dropped."""
        state = jax.device_get(self._state.learner)
        theta = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.network)])
        broadcast = Broadcast(int(state.generation), theta, state.statistics)
        ended: list[Episode] = []
        step = self.progress.step
        evaluation = self._evaluated(broadcast)
        for episodes in evaluation:
            ended += episodes
            if episodes:
                step += sum(episode.length for episode in episodes)
                on_step(step)
            if should_stop():
                evaluation.close()
                return False
        self._improve(sorted(ended, key=lambda episode: episode.number))
        return True

    def columns(self) -> list[dict[str, float]]:
        """What a row of progress shows of learning; means start anew."""
        self._state, reported = self._report(self._state)
        row = {
            "episode_length": float(np.mean(self._lengths)) if self._lengths else float("nan"),
            "generation": int(self._state.learner.generation),
            "sigma": self.learner.config.sigma,
            **{name: value.item() for name, value in jax.device_get(reported).items()},
        }
        self._lengths = []
        return [row]

    def state(self, member: int = 0, *, experience: bool = True) -> TrainState:
        """The state of training, which has no experience in it."""
        return self._state._replace(step=jax.device_put(np.int32(self.progress.step)))

    def snapshot(self, member: int) -> tuple[TrainState, dict[str, np.ndarray]]:
        """The state, and what the next row is made of."""
        return self.state(), {"lengths": np.array(self._lengths, np.int64)}

    def restore(self, member: int, state: TrainState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot."""
        self._state, self.progress.step = state, int(state.step)
        self._lengths = own["lengths"].tolist()

    def restore_learned(self, member: int, state: TrainState) -> None:
        """Knows what a state has learned, and is at its step; experience and environments are left as they are."""
        self._state, self.progress.step = state._replace(experience=self._state.experience), int(state.step)

    def close(self) -> None:
        """Closes all environments, and ends the workers."""
        if self._members is not None:
            self._members.close()

    def _init(self, key: Array) -> TrainState:
        pairs, statistics = self.learner.config.pairs, self.learner.init(key).statistics
        gathered = Returns(np.zeros((pairs, 2)), np.zeros((pairs, self._num_parameters), np.float32), statistics)
        return states.init(self.learner, NoNoise(), key, jnp.zeros(0), self.learner.prepare(gathered, 0))

    def _make_members(self) -> Any:
        """Who evaluates members: this process, worker processes, or Ray actors."""
        config, make = self.learner.config, functools.partial(MemberEvaluator, self._setting)
        if config.engine == "ray":
            check_installed()
            from paramnoise.parallel.ray_tasks import RayTasks

            return RayTasks(make, config.workers, config.ray_address)
        return make() if config.workers == 1 else LocalTasks(make, config.workers)

    def _evaluated(self, broadcast: Broadcast) -> Generator[list[Episode]]:
        """Runs all episodes of a generation; yields now and then those that ended."""
        config = self.learner.config
        numbers = range(config.members * config.episodes_per_member)
        if self._members is None:
            self._members = self._make_members()
        if isinstance(self._members, MemberEvaluator):
            yield from self._members.evaluate(broadcast, numbers)
            return
        size = self._setting.num_envs
        chunks = [numbers[i : i + size] for i in range(0, len(numbers), size)]
        results = self._members.run(broadcast, chunks)
        try:
            for done in results:
                yield [episode for episodes in done for episode in episodes]
        finally:
            results.close()

    def _improve(self, episodes: list[Episode]) -> None:
        generation = int(self._state.learner.generation)
        gathered = gather(self.learner.config, self._num_parameters, self._seed, generation, episodes)
        batch = self.learner.prepare(gathered, generation)
        learner, losses, terms = self._update(self._state.learner, self._state.losses, batch)
        require_finite(jax.device_get(terms), self.progress.step)
        self._state = self._state._replace(learner=learner, losses=losses)
        lengths = [episode.length for episode in episodes]
        self.progress.step += sum(lengths)
        for episode in episodes:
            self.progress.end(0, episode.number, episode.total, episode.length)
        self._lengths += lengths

    def _updated(self, learner: Any, losses: Losses, batch: Any) -> tuple[Any, Losses, dict[str, Array]]:
        learner, terms = self.learner.update(learner, batch)
        return learner, steps.add_terms(losses, terms), terms
