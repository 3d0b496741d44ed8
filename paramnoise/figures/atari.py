"""The Atari figure (fig. "atari" and "atari-full", app. A.1): scores of the exploring policy against frames.

Its runs are ordinary run directories, OUT/atari/GAME/METHOD/seed-S. The unit of work is a group: one game and one
method, with its seeds side by side in one process.
"""

import dataclasses
import json
import math
import statistics
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paramnoise.agents import DQNConfig
from paramnoise.envs.atari import FRAME_SKIP, GAMES, game_rom, game_title
from paramnoise.figures.curve_results import Point
from paramnoise.figures.figure import Method
from paramnoise.figures.learning_curves import CurveFigure, CurveRun, CurveScale, Reporter
from paramnoise.parallel.sweep import Line
from paramnoise.runs.checkpoint import INDEX
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.run import CHECKPOINT_SECONDS, run_together
from paramnoise.validation import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtariScale(CurveScale):
    """How much of the Atari figure to run."""

    eval_every: int = 500_000
    """Steps between noise-free evaluations."""
    eval_episodes: int = 10
    """Games of an evaluation, as many as the paper's table has."""
    log_every: int = 20_000
    """Steps between points of a curve."""
    num_envs: int | None = None
    """Environments of each seed; None: as many as the preset has."""
    save_replay: bool = False
    """Whether checkpoints hold replay: 7 GB of each run, whose resumed training is then exact."""
    agent: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings of the agent that are not the preset's."""


_FIRST = ("Freeway", "Enduro", "Pong", "Breakout", "Alien", "BankHeist", "Qbert", "Seaquest")
ORDER = (*_FIRST, *(game for game in GAMES if game not in _FIRST))
"""The paper's games as they are run: those first on which it shows the most."""
SCALES = {
    "smoke": AtariScale(
        envs=("Pong",),
        seeds=1,
        steps=4_000,
        eval_every=2_000,
        eval_episodes=1,
        log_every=1_000,
        num_envs=2,  # so that games end within these few steps
        agent={"learning_starts": 3_000, "buffer_size": 10_000},
    ),
    "small": AtariScale(envs=ORDER[:3], seeds=3, steps=1_000_000),
    "paper": AtariScale(envs=ORDER, seeds=3, steps=10_000_000),
}
ATARI = CurveFigure(
    name="atari",
    paper="Figures 1 and 7",
    methods=(
        Method("dqn", "parameter", "Parameter noise"),
        Method("dqn", "epsilon-greedy", "Epsilon-greedy"),
        Method("dqn", "epsilon-greedy-two-heads", "Epsilon-greedy, two heads"),
    ),
    scales=dict(SCALES),
    steps_per_epoch=1_000_000 // FRAME_SKIP,
)
"""The figure; its unit of the x axis is a million frames."""
MADE_OF = {
    "parameter": ("parameter", True),
    "epsilon-greedy": ("epsilon-greedy", False),
    "epsilon-greedy-two-heads": ("epsilon-greedy", True),
}
"""Of each method, the exploration and whether the agent has a policy head."""
LARGE_CHECKPOINT_SECONDS = 600.0
"""The age of a checkpoint at which the next one is due, where it holds replay."""


class Score(NamedTuple):
    """A noise-free evaluation of one run: a row of scores.csv."""

    env: str
    exploration: str
    """The method."""
    seed: int
    step: int
    episodes: int
    """Games of the evaluation."""
    mean: float
    median: float


class AtariRun(CurveRun):
    """One run of the figure."""

    @property
    def method(self) -> str:
        """The method, by its name in paths and tables."""
        agent, kind = self.config.agent, self.config.exploration.kind
        heads = isinstance(agent, DQNConfig) and agent.policy_head
        return next(name for name, made in MADE_OF.items() if made == (kind, heads))

    @property
    def name(self) -> str:
        """Its directory below the figure's."""
        return f"{self.config.env}/{self.method}/seed-{self.config.seed}"

    def curve(self) -> list[Point]:
        """The mean score of the games that the exploring policy ended since the point before; NaN where none ended."""
        config = self.config
        return [
            Point(config.env, config.algorithm, self.method, config.seed, step, float(row["train_return_mean"]))
            for step, row in self._rows_every(config.log_every, config.eval_every)
        ]

    def scores(self) -> list[Score]:
        """The noise-free evaluations so far, up to the steps asked for."""
        config = self.config
        scores = [
            Score(
                config.env,
                self.method,
                config.seed,
                step,
                config.eval_episodes,
                float(row["eval_return_mean"]),
                float(row["eval_return_median"]),
            )
            for step, row in self._rows_every(config.eval_every)
        ]
        return [score for score in scores if not math.isnan(score.mean)]

    def saved_with(self) -> tuple[int, ...]:
        """The seeds that the checkpoint on disk was trained with, its own among them; none if it cannot be read."""
        try:
            index = json.loads((self.directory.checkpoint / INDEX).read_text())
            with np.load(self.directory.checkpoint / index["file"], allow_pickle=False) as arrays:
                return tuple(arrays["own/seeds"].tolist())
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return ()  # training says what is wrong with it

    def _rows_every(self, *intervals: int | None) -> list[tuple[int, dict[str, str]]]:
        """The rows that every run of this config has: a shorter run that was gone on with has one more, at its end."""
        kept, before = [], 0
        for row in self.directory.rows():
            step = int(row["step"])
            if before >= self.config.steps:
                break
            if step >= self.config.steps or any(every and step // every > before // every for every in intervals):
                kept.append((step, row))
            before = step
        return kept


class AtariGroup(NamedTuple):
    """Seeds of one game and one method, which differ in nothing else."""

    runs: tuple[AtariRun, ...]

    @property
    def name(self) -> str:
        """The group in a line of progress."""
        seeds = [str(each.config.seed) for each in self.runs]
        first = self.runs[0]
        return f"{first.config.env}/{first.method} (seed{'s' * (len(seeds) > 1)} {', '.join(seeds)})"

    @property
    def config(self) -> RunConfig:
        """The config of its first seed."""
        return self.runs[0].config

    def steps_done(self) -> int:
        """The steps that all its seeds have rows of."""
        return min(each.steps_done() for each in self.runs)

    def summary(self) -> dict[str, Any] | None:
        """The summaries of its seeds in one: the median score, the least steps; None if a seed has none."""
        found = [each.directory.summary() for each in self.runs]
        summaries = [summary for summary in found if summary is not None]
        if len(summaries) < len(found):
            return None
        finals: list[Any] = [summary.get("final_eval_return_mean") for summary in summaries]
        return {
            "steps": min(summary["steps"] for summary in summaries),
            "final_eval_return_mean": None if None in finals else statistics.median(finals),
        }

    def unfinished(self) -> list["AtariGroup"]:
        """What is left of it, in groups that can go on.

        Seeds that were trained side by side go on together, be it that a kill left some of them finished.

        Raises:
            UsageError: if some of these seeds were not asked for.
        """
        by_seed = {each.config.seed: each for each in self.runs}
        together = {seed: seeds for each in self.runs for seeds in [each.saved_with()] for seed in seeds}
        parts: dict[tuple[int, ...] | bool, list[AtariRun]] = {}
        for seed, each in by_seed.items():
            if each.is_finished():
                continue
            if seed not in together or not each.directory.exists():
                parts.setdefault(each.directory.exists(), []).append(each)
                continue
            seeds = together[seed]
            if max(seeds) not in by_seed:
                raise UsageError(
                    f"{each.directory.path} goes on only together with seeds {', '.join(map(str, seeds))}: "
                    f"give --seeds {max(seeds) + 1} or more"
                )
            parts[seeds] = [by_seed[other] for other in seeds]
        return [AtariGroup(tuple(runs)) for runs in parts.values()]


def grid(scale: AtariScale, methods: Sequence[Method], out: Path) -> list[AtariGroup]:
    """All groups, game by game."""
    return [
        AtariGroup(tuple(AtariRun(ATARI.name, _config(scale, env, method, seed), out) for seed in range(scale.seeds)))
        for env in scale.envs
        for method in methods
    ]


def _config(scale: AtariScale, env: str, method: Method, seed: int) -> RunConfig:
    kind, policy_head = MADE_OF[method.exploration]
    more: dict[str, Any] = {} if scale.num_envs is None else {"num_envs": scale.num_envs}
    return make_config(
        method.algorithm,
        env,
        exploration=kind,
        agent={**scale.agent, "policy_head": policy_head},
        seed=seed,
        steps=scale.steps,
        eval_every=scale.eval_every,
        eval_episodes=scale.eval_episodes,
        log_every=scale.log_every,
        save_replay=scale.save_replay,
        **more,
    )


def find_game(name: str) -> str:
    """A game as the paper writes it, from its name or any of its ids; UsageError if there is none."""
    return game_title(game_rom(name))


def in_order(groups: Iterable[AtariGroup]) -> list[AtariGroup]:
    """What is left of the groups: what was begun first, so that a sweep which is stopped and called again ends some."""
    parts = [part for group in groups for part in group.unfinished()]
    return sorted(parts, key=lambda part: part.steps_done() == 0)


def train(group: AtariGroup, line: Line) -> bool:
    """What a worker does with a group: it begins it or goes on with it, and returns whether it came to the end."""
    summaries = run_together(
        [each.config for each in group.runs],
        [each.directory.path for each in group.runs],
        resume=group.runs[0].directory.exists(),
        checkpoint_seconds=LARGE_CHECKPOINT_SECONDS if group.config.save_replay else CHECKPOINT_SECONDS,
        watcher=Reporter(line, len(group.runs)),
    )
    return all(summary["status"] == "finished" for summary in summaries)
