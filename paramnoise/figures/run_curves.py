"""Learning curves of any runs, from their directories: a panel per environment, a line per config.

Runs that differ in their seeds alone are one line, with the median and the quartiles over them.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paramnoise.envs.base import env_label
from paramnoise.figures.curve_results import Band, Point, bands
from paramnoise.figures.sample_efficiency import aligned
from paramnoise.runs.directory import MAY_DIFFER, RunDirectory
from paramnoise.validation import UsageError

SHOWN = {"eval_return_mean": "noise-free return", "sigma": "sigma", "distance": "distance"}
"""The columns of progress.csv that are drawn, from top to bottom, and what axes call them; those of the noise only
where a run has them."""
_NAMES = ("seed", "env", "env_is_id", "env_kwargs", "algorithm", "exploration.kind", *MAY_DIFFER)
"""Fields that tell no two lines of a panel apart, or that each line is named by in any case."""


class Curve(NamedTuple):
    """One line of one panel."""

    env: str
    """The panel."""
    label: str
    column: str
    """Which of `SHOWN` it is."""
    bands: list[Band]


class Run(NamedTuple):
    """A run that has progress to show."""

    directory: RunDirectory
    settings: dict[str, Any]
    """As `RunDirectory.settings` has them."""
    rows: list[dict[str, str]]
    label: str = ""
    """Its agent, its exploration, and what else sets it apart on its environment; seeds alone do not."""

    @property
    def env(self) -> str:
        """The panel that it belongs to."""
        keywords = (f"{name} {value}" for name, value in self.settings["env_kwargs"].items())
        return ", ".join((env_label(self.settings["env"]), *keywords))

    @property
    def base(self) -> str:
        """Its agent and its exploration."""
        return f"{self.settings['algorithm']} {self.settings['exploration.kind']}"


def find_runs(paths: Iterable[Path]) -> list[RunDirectory]:
    """The run directories among paths and below them, each once.

    Raises:
        UsageError: if there is none at or below one of the paths.
    """
    found: dict[Path, RunDirectory] = {}
    for path in paths:
        here = sorted(file.parent for file in path.rglob("config.json")) if path.is_dir() else []
        if not here:
            raise UsageError(f"{path} holds no run, and none is below it")
        found |= {each.resolve(): RunDirectory(each) for each in here if each.resolve() not in found}
    return list(found.values())


def read_runs(directories: Sequence[RunDirectory]) -> list[Run]:
    """The runs that have progress, with their labels.

    Raises:
        UsageError: if none has.
    """
    runs = [run for each in directories if (run := Run(each, each.settings(), each.rows())).rows]
    if not runs:
        raise UsageError(f"{directories[0].path} has no progress to draw yet")
    return [run._replace(label=label) for run, label in zip(runs, _labels(runs), strict=True)]


def column_points(runs: Sequence[Run], column: str) -> list[Point]:
    """A column of progress.csv of all runs; a point's seed is the place of its run among them."""
    return [
        Point(run.env, run.label, run.label, place, int(row["step"]), float(row[column]))
        for place, run in enumerate(runs)
        for row in run.rows
        if row.get(column) and not math.isnan(float(row[column]))
    ]


def read_curves(directories: Sequence[RunDirectory]) -> list[Curve]:
    """The lines to draw.

    Raises:
        UsageError: if no run has a row of progress.
    """
    runs = read_runs(directories)
    return [
        Curve(env, label, column, line)
        for column in SHOWN
        for (env, label), line in bands(aligned(column_points(runs, column))).items()
    ]


def _labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run: its agent, its exploration, and what else differs; seeds alone make no other name."""
    labels = []
    for run in runs:
        alike = [other.settings for other in runs if (other.env, other.base) == (run.env, run.base)]
        names = [
            name
            for name in run.settings
            if name not in _NAMES and len({repr(settings.get(name)) for settings in alike}) > 1
        ]
        values = (f"{name.rpartition('.')[2]} {run.settings[name]}" for name in names)
        labels.append(", ".join((run.base, *values)))
    return labels
