"""Noise-free episodes of an agent: their returns, and films of them."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paramnoise.envs import EnvLike
from paramnoise.loops.evaluation import EVALUATION_STREAM
from paramnoise.loops.host import HostLoop
from paramnoise.loops.vector import episode_seed
from paramnoise.networks.policies import Policy
from paramnoise.runs import video
from paramnoise.runs.config import RunConfig
from paramnoise.runs.side_by_side import record_games_side_by_side, record_side_by_side


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The returns of noise-free episodes."""

    returns: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns))

    @property
    def median(self) -> float:
        """The median return."""
        return float(np.median(self.returns))

    @property
    def std(self) -> float:
        """The standard deviation of the returns."""
        return float(np.std(self.returns))

    def __str__(self) -> str:
        return f"mean {self.mean:.1f}, median {self.median:.1f}, std {self.std:.1f} over {len(self.returns)} episodes"


def film(loop: HostLoop, config: RunConfig, env: EnvLike, path: Path, episodes: int, seed: int) -> Evaluation:
    """Films the first noise-free episodes of an evaluation with the same seed, one after the other."""
    if loop.learner.spaces.shows_frames:
        return Evaluation(tuple(video.record_frames(loop, path, episodes, seed)))
    made = video.rendering_env(env, config.env_kwargs)
    seeds = [episode_seed(EVALUATION_STREAM + seed, i, 0) for i in range(episodes)]
    return Evaluation(tuple(video.record(made, loop.policy(), path, seeds, config.eval_max_steps)))


def film_perturbed(
    loop: HostLoop,
    config: RunConfig,
    env: EnvLike,
    policies: Sequence[Policy],
    path: Path,
    seed: int,
    max_steps: int,
) -> Evaluation:
    """Films one episode under the clean policy, which is the first, and under perturbed ones, side by side."""
    clean, *perturbed = policies
    named = {"clean": clean, **{f"perturbed {number}": policy for number, policy in enumerate(perturbed, 1)}}
    if loop.learner.spaces.shows_frames:
        return Evaluation(tuple(record_games_side_by_side(loop, named, path, seed, max_steps)))
    make_env = functools.partial(video.rendering_env, env, config.env_kwargs)
    first = episode_seed(EVALUATION_STREAM + seed, 0, 0)
    return Evaluation(tuple(record_side_by_side(make_env, named, path, first, max_steps)))
