"""Figures of learning curves: noise-free return against environment steps, per task and exploration or agent.

A figure is a few lines of data. Its runs are ordinary run directories, OUT/FIGURE/ENV/METHOD/seed-S, each of one config
and one seed; a finished one is never run again.
"""

import dataclasses
import math
import statistics
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from paramnoise.envs.base import NAMESPACE, env_id, short_name
from paramnoise.envs.continuous import DENSE, SPARSE
from paramnoise.figures.curve_results import Point
from paramnoise.figures.figure import Figure, Method
from paramnoise.parallel.sweep import Line
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.run import run
from paramnoise.validation import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveScale:
    """How much of a figure of learning curves to run."""

    envs: tuple[str, ...]
    """The tasks, one panel each; about the slowest first, since they are run in this order."""
    seeds: int
    """Seeds per task and exploration, from 0."""
    steps: int
    """Environment steps of a run, times what the figure says of its agent."""
    eval_every: int = 10_000
    """Environment steps between noise-free evaluations."""
    eval_episodes: int = 20
    """Episodes of an evaluation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveFigure(Figure[CurveScale]):
    """A panel per task, a line per method."""

    steps_per_epoch: int = 10_000
    """Environment steps in one unit of the x axis."""
    times: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How many times the steps of a scale an agent gets; once unless it is named."""
    thresholds: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    """Returns to be reached, by task; where there are any, the figure is about the steps that this takes."""


def _scales(
    paper: tuple[str, ...], small: tuple[str, ...], smoke: tuple[str, ...], smoke_steps: int
) -> dict[str, CurveScale]:
    """Runs of `small` are the beginnings of those of `paper`, which goes on with them."""
    return {
        "smoke": CurveScale(envs=smoke, seeds=1, steps=smoke_steps, eval_every=smoke_steps // 2, eval_episodes=2),
        "small": CurveScale(envs=small, seeds=3, steps=200_000),
        "paper": CurveScale(envs=paper, seeds=5, steps=1_000_000),
    }


DDPG = (
    Method("ddpg", "none", "No noise"),
    Method("ddpg", "gaussian", "Uncorrelated action noise"),
    Method("ddpg", "ou", "Correlated action noise (OU)"),
    Method("ddpg", "parameter", "Adaptive parameter noise"),
)
TRPO = (
    Method("trpo", "none", "Action noise of the policy alone"),
    Method("trpo", "parameter", "Parameter noise"),
)
EFFICIENCY = (
    Method("es", "none", "Evolution strategies"),
    Method("ddpg", "parameter", "DDPG, parameter noise"),
    Method("trpo", "parameter", "TRPO, parameter noise"),
)
REACHED: dict[str, tuple[float, ...]] = {
    "HalfCheetah-v4": (1_000.0, 2_000.0),
    "Hopper-v4": (1_000.0,),
    "InvertedPendulum-v4": (950.0,),
    f"{NAMESPACE}SparseCartpoleSwingup-v0": (100.0, 400.0),
    f"{NAMESPACE}SparseMountainCar-v0": (0.9,),
}
"""The returns that `reproduce es` waits for, each at some way to what its task allows; docs/experiments.md says why."""
FIGURES: dict[str, CurveFigure] = {
    figure.name: figure
    for figure in (
        CurveFigure(
            name="ddpg-dense",
            paper="Figures 2 and 8",
            methods=DDPG,
            scales=_scales(paper=DENSE, small=DENSE[:3], smoke=(DENSE[0], DENSE[-1]), smoke_steps=2_000),
        ),
        CurveFigure(
            name="ddpg-sparse",
            paper="Figure 5",
            methods=DDPG,
            scales=_scales(paper=SPARSE, small=SPARSE[2:], smoke=(SPARSE[2], SPARSE[4]), smoke_steps=2_000),
        ),
        CurveFigure(
            name="trpo-dense",
            paper="Figure 3",
            methods=TRPO,
            scales=_scales(paper=DENSE[:3], small=DENSE[:3], smoke=(DENSE[0], DENSE[-1]), smoke_steps=10_000),
            steps_per_epoch=5_000,
        ),
        CurveFigure(
            name="trpo-sparse",
            paper="Figure 9",
            methods=TRPO,
            scales=_scales(paper=SPARSE[2:], small=SPARSE[2:], smoke=(SPARSE[2], SPARSE[4]), smoke_steps=10_000),
            steps_per_epoch=5_000,
        ),
        CurveFigure(
            name="es",
            paper="Section 4.3",
            methods=EFFICIENCY,
            scales={
                "smoke": CurveScale(envs=(DENSE[-1],), seeds=1, steps=2_000, eval_every=1_000, eval_episodes=2),
                "small": CurveScale(envs=tuple(REACHED), seeds=3, steps=200_000, eval_every=5_000, eval_episodes=10),
                "paper": CurveScale(envs=tuple(REACHED), seeds=5, steps=1_000_000, eval_every=5_000, eval_episodes=10),
            },
            times={"es": 25},  # as much more as it had in the paper's comparison
            thresholds=REACHED,
        ),
    )
}
"""Every figure of learning curves by its name on the command line."""


class CurveRun(NamedTuple):
    """One run of a figure."""

    figure: str
    config: RunConfig
    out: Path

    @property
    def name(self) -> str:
        """The run in a line of progress, and its directory below the figure's."""
        config = self.config
        method = FIGURES[self.figure].name_of(config.algorithm, config.exploration.kind)
        return f"{config.env.removeprefix(NAMESPACE)}/{method}/seed-{config.seed}"

    @property
    def directory(self) -> RunDirectory:
        """Where it is kept."""
        return RunDirectory(self.out / self.figure / self.name)

    def is_finished(self) -> bool:
        """Whether what is on disk covers the steps asked for."""
        if not self.directory.exists() or (summary := self.directory.summary()) is None:
            return False
        return summary["status"] != "failed" and summary["steps"] >= self.config.steps

    def summary(self) -> dict[str, Any] | None:
        """What came out, if it ended."""
        return self.directory.summary()

    def check(self) -> None:
        """Raises UsageError if the directory holds what this run cannot go on with."""
        held = self.directory
        longer = dataclasses.replace(self.config, steps=held.config().steps) if held.exists() else self.config
        held.check(longer if self.is_finished() else self.config, resume=held.exists())

    def curve(self) -> list[Point]:
        """The evaluations so far, up to the steps asked for."""
        config, points, before = self.config, [], 0
        for row in self.directory.rows():
            step = int(row["step"])
            if before >= config.steps:
                break
            # A shorter run that was gone on with has a row at its end, where others have none.
            if step // config.eval_every > before // config.eval_every or step >= config.steps:
                value = float(row["eval_return_mean"])
                points.append(Point(config.env, config.algorithm, config.exploration.kind, config.seed, step, value))
            before = step
        return points

    def steps_done(self) -> int:
        """The steps up to the last evaluation on disk."""
        rows = self.directory.rows()
        return min(int(rows[-1]["step"]), self.config.steps) if rows else 0


def grid(figure: CurveFigure, scale: CurveScale, methods: Sequence[Method], out: Path) -> list[CurveRun]:
    """All runs, task by task; the seeds of a task one after the other, so that a stopped sweep can be compared."""
    return [
        CurveRun(
            figure.name,
            make_config(
                method.algorithm,
                env,
                exploration=method.exploration,
                seed=seed,
                steps=scale.steps * figure.times.get(method.algorithm, 1),
                eval_every=scale.eval_every,
                eval_episodes=scale.eval_episodes,
            ),
            out,
        )
        for env in scale.envs
        for seed in range(scale.seeds)
        for method in methods
    ]


def find_env(name: str) -> str:
    """The id of an environment that Gymnasium knows, from its id or name."""
    env = env_id(name)
    if env not in gym.registry:
        raise UsageError(
            f"unknown environment {name!r}: choose from {', '.join(map(short_name, (*DENSE, *SPARSE)))}, "
            "or give an id that `paramnoise envs` lists"
        )
    return env


def in_order(runs: Iterable[CurveRun]) -> list[CurveRun]:
    """Runs that were begun, so that a sweep which is stopped and called again ends some; then the longest first."""
    return sorted(runs, key=lambda each: (each.steps_done() == 0, each.steps_done() - each.config.steps))


def train(each: CurveRun, line: Line) -> bool:
    """What a worker does with a run: it begins it or goes on with it, and returns whether it came to the end."""
    directory = each.directory
    summary = run(each.config, directory.path, resume=directory.exists(), watcher=Reporter(line))
    return summary["status"] == "finished"


class Progress(NamedTuple):
    """How far a run is, as its worker tells it."""

    step: int
    value: float | None
    """The return of the last evaluation; None before the first."""
    steps_per_second: float


class Reporter:
    """Follows a run in a worker, or several seeds side by side, and passes on what it hears."""

    signal = None

    def __init__(self, line: Line, seeds: int = 1):
        """Reports along a line to the sweep."""
        self._values: deque[float] = deque(maxlen=seeds)  # of the last evaluation, one of each seed
        self._first: tuple[int, float] | None = None
        self._report = line.report
        self.should_stop = line.should_stop

    def on_step(self, step: int) -> None:
        """Passes on how far the run is."""
        if self._first is None:
            self._first = (step, time.monotonic())  # from here, so that compilation does not count
        self._report(lambda: self._progress(step))

    def on_row(self, row: dict[str, float]) -> None:
        """Keeps the return of an evaluation; a row may be without one."""
        if not math.isnan(row["eval_return_mean"]):
            self._values.append(row["eval_return_mean"])

    def _progress(self, step: int) -> Progress:
        first, started = self._first or (step, 0.0)
        value = statistics.median(self._values) if self._values else None
        return Progress(step, value, (step - first) / max(time.monotonic() - started, 1e-6))
