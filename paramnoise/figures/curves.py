"""Figures of learning curves: noise-free return against environment steps, per task and exploration or agent.

A figure is a few lines of data. Its runs are ordinary run directories, OUT/FIGURE/ENV/METHOD/seed-S, each of one config
and one seed; a finished one is never run again.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import gymnasium as gym

from paramnoise.envs.base import env_id, short_name
from paramnoise.envs.continuous import DENSE, SPARSE
from paramnoise.figures import curve_summary, sample_efficiency, seed_groups
from paramnoise.figures.base import RESULTS, Arguments, Figure, Method, draw
from paramnoise.figures.curve_distances import DISTANCES, distances_of, write_distances
from paramnoise.figures.curve_results import read_results, write_results
from paramnoise.figures.curve_runs import CurveRun, check_envs, in_order
from paramnoise.figures.figure_sweep import Sweep
from paramnoise.parallel.engine import Engine
from paramnoise.validation import UsageError

SUMMARY = "summary.csv"
"""Beside a figure's results.csv: what they come to."""


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
class TaskArguments(Arguments):
    """What `paramnoise reproduce` takes for a figure with a panel per task."""

    envs: tuple[str, ...] = ()
    """Tasks, by id or short name, in place of the scale's; any id of Gymnasium's works."""
    steps: int | None = None
    """Environment steps of a run, in place of the scale's; ES gets 25 times as many in the figure es."""
    eval_every: int | None = None
    """Environment steps between noise-free evaluations, in place of the scale's."""
    eval_episodes: int | None = None
    """Episodes of an evaluation, in place of the scale's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveArguments(TaskArguments):
    """What `paramnoise reproduce` takes for a figure of learning curves."""

    side_by_side: bool = False
    """Train the seeds of a task and method in one program, on a GPU if there is one; --workers, by default 1, are then
    such groups at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveFigure(Figure[CurveScale]):
    """A panel per task, a line per method."""

    steps_per_epoch: int = 10_000
    """Environment steps in one unit of the x axis."""
    times: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How many times the steps of a scale an agent gets; once unless it is named."""
    thresholds: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    """Returns to be reached, by task; where there are any, the figure is about the steps that this takes."""
    subjects: tuple[str, ...] = ("parameter",)
    """The methods that are held against each other one."""

    arguments: ClassVar[type[Arguments]] = CurveArguments

    @property
    def shows(self) -> str:
        """What the figure shows, in a few words."""
        return "steps until a return is reached" if self.thresholds else "learning curves, a panel per task"

    def grid(self, scale: CurveScale, methods: Sequence[Method], out: Path) -> list[CurveRun]:
        """All runs, task by task; the seeds of a task one after the other, so that a stopped sweep can be compared."""
        return [
            CurveRun(
                out / self.name,
                self.name_of(method),
                method.name,
                method.config(
                    env,
                    seed=seed,
                    steps=scale.steps * self.times.get(method.algorithm, 1),
                    eval_every=scale.eval_every,
                    eval_episodes=scale.eval_episodes,
                ),
            )
            for env in scale.envs
            for seed in range(scale.seeds)
            for method in methods
        ]

    def sweep(self, args: CurveArguments, out: Path, engine: Engine) -> Sweep:
        """What was asked for; raises UsageError if it cannot be run."""
        scale = self.asked_scale(args)
        scale = dataclasses.replace(scale, envs=tuple(dict.fromkeys(map(find_env, scale.envs))))
        runs = self.grid(scale, self.asked_methods(args), out)
        for each in runs:
            each.check()
        left = in_order(each for each in runs if not each.is_finished())
        check_envs(left)
        groups = seed_groups.in_order(seed_groups.by_task_and_method(runs)) if args.side_by_side else []
        to_train = f", {len(groups)} group{'s' * (len(groups) != 1)} to train" if args.side_by_side else ""

        def write() -> bool:
            points = [point for each in runs for point in each.curve()]
            if points:
                write_results(points, out / self.name / RESULTS)
                distances = (distance for each in runs for distance in distances_of(each))
                write_distances(distances, out / self.name / DISTANCES)
            return bool(points)

        return Sweep(
            headline=f"{self.title}: {len(runs)} runs, {len(runs) - len(left)} on disk{to_train}, {engine}",
            directory=out / self.name,
            runs=runs,
            pieces=groups if args.side_by_side else runs,
            todo=groups if args.side_by_side else left,
            unit="groups" if args.side_by_side else "runs",
            write=write,
        )

    def report(self, directory: Path, sweep: Sweep | None) -> None:
        """Prints a table of what the curves come to, writes it to summary.csv, and draws the curves."""
        points = read_results(directory / RESULTS)
        if self.thresholds:
            sample_efficiency.report(points, self.thresholds, directory / SUMMARY)
        else:
            curve_summary.report(points, directory / SUMMARY, self.subjects)
        if sweep is not None:
            if unfinished := sweep.unfinished():
                print(unfinished)
            print(directory / RESULTS)

        def to_file(path: Path) -> None:
            from paramnoise.figures.plots import plot_learning_curves, plot_sample_efficiency

            (plot_sample_efficiency if self.thresholds else plot_learning_curves)(self, points, path)

        draw(directory / f"{self.name}.png", to_file)


def find_env(name: str) -> str:
    """The id of an environment that Gymnasium knows, from its id or name."""
    env = env_id(name)
    if env not in gym.registry:
        raise UsageError(
            f"unknown environment {name!r}: choose from {', '.join(map(short_name, (*DENSE, *SPARSE)))}, "
            "or give an id that `paramnoise envs` lists"
        )
    return env
