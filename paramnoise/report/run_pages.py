"""Pages of the user's own runs: one that compares them, and one for each."""

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paramnoise.figures.base import Method
from paramnoise.figures.colours import BLUE, GREEN, PURPLE, VERMILION
from paramnoise.figures.run_curves import SHOWN, Run, column_points, find_runs, read_runs
from paramnoise.report.panels import Chart, Key, Panel, all_rounded, curve_panel, method_keys, plain_line, rounded
from paramnoise.report.tables import Table
from paramnoise.runs.directory import WALL_CLOCK_COLUMNS

STEPS = "environment steps"
TOGETHER = (
    ("Returns", ("eval_return_mean", "eval_return_median", "train_return_mean")),
    ("The noise: sigma", ("sigma",)),
    ("The noise: distance and its threshold delta", ("distance", "delta")),
)
"""Columns of progress.csv that share a panel of a run's page, by the panel's title; each other has its own."""
COLOURS = (VERMILION, BLUE, GREEN, PURPLE)
FILMS = (".mp4", ".gif")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPage:
    """What the page of one run holds."""

    name: str
    """Of its file."""
    run: Run
    keys: list[Key]
    charts: list[Chart]
    facts: list[tuple[str, str]]
    settings: Table
    films: list[Path]

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.directory.path


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunsPage:
    """What the page that compares runs holds."""

    keys: list[Key]
    charts: list[Chart]
    table: Table
    runs: list[RunPage]


def runs_page(paths: Sequence[Path]) -> RunsPage:
    """The pages of the runs at and below some paths.

    Raises:
        UsageError: if there are none, or none has progress yet.
    """
    runs = read_runs(find_runs(paths))
    labels = {run.label: run for run in runs}
    methods = [
        Method(run.settings["algorithm"], run.settings["exploration.kind"], label) for label, run in labels.items()
    ]
    names = _page_names(runs)
    called = {place: f"seed {run.settings['seed']} ({names[place]})" for place, run in enumerate(runs)}
    charts = []
    for column, title in SHOWN.items():
        points = column_points(runs, column)
        panels = [
            curve_panel((p for p in points if p.env == env), env, STEPS, title, run_names=called)
            for env in dict.fromkeys(point.env for point in points)
        ]
        if panels:
            charts.append(Chart(title.capitalize(), panels))
    rows = [
        [run.env, run.label, str(run.settings["seed"]), *_standing(run), name]
        for run, name in zip(runs, names, strict=True)
    ]
    header = ("environment", "run", "seed", "steps", "last return", "best return", "page")
    return RunsPage(
        keys=method_keys(methods, labels),
        charts=charts,
        table=Table("All runs", header, rows, 2),
        runs=[_page(run, name) for run, name in zip(runs, names, strict=True)],
    )


def _page_names(runs: Sequence[Run]) -> list[str]:
    """A file name for each run, from the end of its path, which has the agent, the task and the seed by default."""
    names: list[str] = []
    for run in runs:
        base = re.sub(r"[^\w.-]+", "-", "-".join(run.directory.path.resolve().parts[-4:]))
        number = sum(name == base or name.startswith(f"{base}--") for name in names)
        names.append(f"{base}--{number + 1}" if number else base)
    return names


def _standing(run: Run) -> list[str]:
    """How far a run is: its steps, its last and its best noise-free return."""
    found = [float(row["eval_return_mean"]) for row in run.rows if row.get("eval_return_mean") not in ("", "nan", None)]
    returns = [f"{rounded(value):,}" for value in (found[-1], max(found))] if found else ["", ""]
    return [f"{int(run.rows[-1]['step']):,}", *returns]


def _page(run: Run, name: str) -> RunPage:
    columns = [
        column
        for column in run.rows[0]
        if column not in ("step", *WALL_CLOCK_COLUMNS)
        and any(row.get(column) not in ("", "nan", None) for row in run.rows)
    ]
    together = {column for _, group in TOGETHER for column in group}
    groups = [(title, [column for column in group if column in columns]) for title, group in TOGETHER]
    groups += [(column, [column]) for column in columns if column not in together]
    panels = [_panel(run, title, group) for title, group in groups if group]
    return RunPage(
        name=name,
        run=run,
        keys=[Key(column, column, _colour(column)) for column in columns],
        charts=[Chart("Progress", panels)],
        facts=_facts(run),
        settings=Table(
            "Settings", ("setting", "value"), [[key, _text(value)] for key, value in run.settings.items()], 2
        ),
        films=sorted(path for path in run.directory.path.iterdir() if path.suffix in FILMS),
    )


def _panel(run: Run, title: str, columns: Sequence[str]) -> Panel:
    lines = [plain_line(column, all_rounded(float(row.get(column) or "nan") for row in run.rows)) for column in columns]
    return Panel(title, STEPS, "", [int(row["step"]) for row in run.rows], lines)


def _colour(column: str) -> str:
    """The place of a column in its panel decides."""
    group = next((group for _, group in TOGETHER if column in group), (column,))
    return COLOURS[group.index(column)]


def _facts(run: Run) -> list[tuple[str, str]]:
    """What is known of how it was made and how it ended."""
    made = json.loads((run.directory.path / "config.json").read_text())
    summary = run.directory.summary() or {}
    steps, last, best = _standing(run)
    facts = [
        ("status", str(summary.get("status", "not finished"))),
        ("steps", steps),
        ("last noise-free return", last),
        ("best noise-free return", best),
        ("commit", str(made.get("git_commit") or "unknown")),
        ("versions", ", ".join(f"{name} {version}" for name, version in made.get("versions", {}).items())),
    ]
    return [(name, value) for name, value in facts if value]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
