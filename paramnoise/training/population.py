"""The population loop: a generation of perturbed policies, each for an episode or a few, then one update.

Nothing but the state lasts from one generation to the next, so a checkpoint holds that alone, and a generation that was
interrupted is evaluated again.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import numpy as np

from paramnoise.agents.es import ESLearner, ESState, Report, draw_index, epsilons, noise_table, pair_weights
from paramnoise.normalisation import Normaliser
from paramnoise.policies import Policy
from paramnoise.training.core import INIT
from paramnoise.training.evaluation import Evaluator, require_finite
from paramnoise.training.member_pool import MemberPool
from paramnoise.training.members import Broadcast, Episode, MemberEvaluator, Setting
from paramnoise.training.ray_cluster import check_installed


class PopulationState(NamedTuple):
    """All that changes in training, counters apart."""

    learner: ESState


class PopulationLoop:
    """Training by a population on Gymnasium environments; owns the side effects."""

    def __init__(
        self,
        learner: ESLearner,
        make_env: Callable[[], gym.Env],
        *,
        seed: int = 0,
        num_envs: int = 1,
        eval_max_steps: int = 10_000,
    ):
        """Makes the state, and the environments unless workers will make them.

        Args:
            learner: the agent.
            make_env: makes one environment, whose observations are vectors.
            seed: decides every random draw.
            num_envs: members evaluated side by side, in each worker; it changes no result.
            eval_max_steps: steps after which an episode is cut, be it of an evaluation or of a member.
        """
        self.learner, self.seed = learner, seed
        self._setting = Setting(learner, make_env, seed, num_envs, eval_max_steps)
        # Where there is no cluster, what was trained on one can still be evaluated.
        self._members: Any = None if learner.config.engine == "ray" else _members(self._setting)
        self._evaluator = Evaluator(make_env, eval_max_steps)
        self._update = jax.jit(learner.update)
        self.state = PopulationState(jax.jit(learner.init)(jax.random.fold_in(jax.random.PRNGKey(seed), INIT)))
        self.step, self.episodes = 0, 0
        self._returns: list[float] = []
        self._lengths: list[int] = []
        self._reports: list[Report] = []

    @property
    def policy(self) -> Policy:
        """The unperturbed policy."""
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
        """Trains whole generations until at least `steps` environment steps in all, over all members.

        Yields a row of progress after each evaluation: one follows the generation in which a multiple of `eval_every`
        was passed, and the last. When `should_stop` is true the generation at hand is dropped.
        """
        while self.step < steps:
            before = self.step
            episodes = self._evaluate_population(on_step, should_stop)
            if episodes is None:
                return
            self._improve(episodes)
            if self.step // eval_every > before // eval_every or self.step >= steps:
                yield self._row(eval_episodes)

    def evaluate(self, episodes: int, seed: int) -> np.ndarray:
        """The returns of noise-free episodes on environments of their own."""
        return self._evaluator.returns(self.policy, episodes, seed)

    def snapshot(self) -> tuple[PopulationState, dict[str, np.ndarray]]:
        """All that is needed to go on as if never interrupted: the state, and what the next row is made of."""
        own = {
            "step": np.array(self.step),
            "episodes": np.array(self.episodes),
            "returns": np.array(self._returns),
            "lengths": np.array(self._lengths, np.int64),
            "reports": np.array(self._reports, np.float32).reshape(-1, len(Report._fields)),
        }
        return self.state, own

    def restore(self, state: PopulationState, own: dict[str, np.ndarray]) -> None:
        """Goes back to a snapshot."""
        self.state = state
        self.step, self.episodes = int(own["step"]), int(own["episodes"])
        self._returns, self._lengths = own["returns"].tolist(), own["lengths"].tolist()
        self._reports = [Report(*row) for row in own["reports"]]

    def close(self) -> None:
        """Closes all environments, and ends the workers."""
        if self._members is not None:
            self._members.close()
        self._evaluator.close()

    def _evaluate_population(
        self, on_step: Callable[[int], None], should_stop: Callable[[], bool]
    ) -> list[Episode] | None:
        """The episodes of a generation in the order of their numbers; None if it was asked to stop."""
        state = jax.device_get(self.state.learner)
        theta = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.network)])
        broadcast = Broadcast(int(state.generation), theta, state.statistics)
        config = self.learner.config
        ended: list[Episode] = []
        step = self.step
        if self._members is None:
            self._members = _members(self._setting)
        evaluation = self._members.evaluate(broadcast, range(config.members * config.episodes_per_member))
        for episodes in evaluation:
            ended += episodes
            if episodes:
                step += sum(episode.length for episode in episodes)
                on_step(step)
            if should_stop():
                evaluation.close()
                return None
        return sorted(ended, key=lambda episode: episode.number)

    def _improve(self, episodes: list[Episode]) -> None:
        config, generation = self.learner.config, int(self.state.learner.generation)
        size = self.learner.num_parameters
        returns = np.array([episode.total for episode in episodes])
        weights = pair_weights(returns.reshape(config.pairs, 2, -1).mean(axis=-1))
        indices = [draw_index(config, size, self.seed, generation, pair) for pair in range(config.pairs)]
        noise = epsilons(noise_table(config.table_size), indices, size)
        state, report = self._update(self.state.learner, noise, weights, observed(episodes))
        report = jax.device_get(report)
        require_finite(report._asdict(), self.step)
        self.state = PopulationState(state)
        lengths = [episode.length for episode in episodes]
        self.step += sum(lengths)
        self.episodes += len(episodes)
        self._returns += returns.tolist()
        self._lengths += lengths
        self._reports.append(report)

    def _row(self, eval_episodes: int) -> dict[str, float]:
        means = map(float, np.mean(self._reports, axis=0))
        row = {
            **self._evaluator.row(self.policy, eval_episodes, self.seed, self.step, self.episodes, self._returns),
            "episode_length": float(np.mean(self._lengths)),
            "generation": int(self.state.learner.generation),
            "sigma": self.learner.config.sigma,
            **dict(zip(Report._fields, means, strict=True)),
        }
        self._returns, self._lengths, self._reports = [], [], []
        return row


def _members(setting: Setting) -> Any:
    """Who evaluates members: this process, worker processes, or Ray actors."""
    config = setting.learner.config
    if config.engine == "ray":
        check_installed()
        from paramnoise.training.ray_members import RayMemberPool

        return RayMemberPool(setting, config.workers, config.ray_address)
    return MemberEvaluator(setting) if config.workers == 1 else MemberPool(setting, config.workers)


def observed(episodes: list[Episode]) -> Normaliser:
    """The statistics of all states of these episodes, summed up in double precision and in the order given."""
    seen = sum(episode.length for episode in episodes)
    sums = np.sum([episode.sums for episode in episodes], axis=0)
    squares = np.sum([episode.squares for episode in episodes], axis=0)
    spread = np.maximum(squares - sums * sums / seen, 0.0)  # rounding may fall below 0
    statistics: Any = (np.float32(seen), (sums / seen).astype(np.float32), spread.astype(np.float32))
    return Normaliser(*statistics)
