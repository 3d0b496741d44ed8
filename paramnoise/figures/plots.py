"""The figures, drawn from results.csv alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from paramnoise.agents.base import find_agent
from paramnoise.envs.base import env_label
from paramnoise.figures.base import Method
from paramnoise.figures.chain_results import Outcome, medians
from paramnoise.figures.colours import STYLES, Look, looks
from paramnoise.figures.curve_results import Band, Point, bands
from paramnoise.figures.sample_efficiency import Reach, aligned, reaches
from paramnoise.figures.standings import Standing

COLUMNS = 4
"""Panels side by side at the most."""


def plot_chain(outcomes: list[Outcome], methods: Sequence[Method], path: Path) -> None:
    """Median episodes until solved against the chain's length, one panel per method (fig. "chain-plot").

    A full dot is solved, an empty one is not.
    """
    present = {outcome.exploration for outcome in outcomes}
    methods = [method for method in methods if method.name in present]
    figure, axes = plt.subplots(
        1, len(methods), figsize=(3.6 * len(methods), 3.2), sharex=True, sharey=True, squeeze=False
    )
    for axis, method, (colour, _) in zip(axes[0], methods, looks(methods), strict=True):
        own = [outcome for outcome in outcomes if outcome.exploration == method.name]
        points = sorted(medians(own))
        axis.plot([p.length for p in points], [p.episodes for p in points], color="0.8", linewidth=1, zorder=1)
        for solved, face, label in ((True, colour, "solved"), (False, "white", "not solved")):
            drawn: dict[str, Any] = {"facecolor": face, "edgecolor": colour}
            seeds = [o for o in own if o.solved == solved]
            axis.scatter([o.length for o in seeds], [o.episodes for o in seeds], s=6, alpha=0.5, zorder=2, **drawn)
            shown = [p for p in points if p.solved == solved]
            axis.scatter([p.length for p in shown], [p.episodes for p in shown], s=26, label=label, zorder=3, **drawn)
        axis.set_title(method.label, fontsize=10)
        axis.set_xlabel("chain length N")
        axis.grid(color="0.93")
    most = max(outcome.episodes for outcome in outcomes)
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_ylim(80, 1.25 * max(most, 100))
    axes[0, 0].yaxis.set_major_locator(FixedLocator([100, 200, 500, 1_000, 2_000]))
    axes[0, 0].yaxis.set_major_formatter(ScalarFormatter())
    axes[0, 0].yaxis.set_minor_locator(NullLocator())
    axes[0, 0].set_ylabel("episodes until solved")
    axes[0, -1].legend(loc="lower right", fontsize=8, title="large: median\nsmall: each seed", title_fontsize=7)
    figure.tight_layout()
    _save(figure, path)


class Lines(Protocol):
    """What a figure of learning curves says of its lines and its x axis."""

    @property
    def methods(self) -> Sequence[Method]:
        """A line each."""

    @property
    def steps_per_epoch(self) -> int:
        """Environment steps in one unit of the x axis."""


class LinesToReturns(Lines, Protocol):
    """What a figure says of returns to be reached, too."""

    @property
    def thresholds(self) -> Mapping[str, tuple[float, ...]]:
        """The returns, by task."""


def plot_learning_curves(
    drawn: Lines,
    points: list[Point],
    path: Path,
    *,
    x_label: str | None = None,
    y_label: str = "noise-free return",
) -> None:
    """Median return over seeds and its interquartile band against epochs, one panel per task."""
    lines = bands(points)
    envs = list(dict.fromkeys(env for env, _ in lines))
    figure, axes = _panels(len(envs))
    for axis, env in zip(axes.flat, envs, strict=False):
        own = {exploration: line for (other, exploration), line in lines.items() if other == env}
        for method, look in zip(drawn.methods, looks(drawn.methods), strict=True):
            if method.name in own:
                _draw_line(axis, own[method.name], drawn.steps_per_epoch, look, method.label)
        seeds = sorted({max(band.seeds for band in line) for line in own.values()})
        counted = f"{seeds[0]} seed{'s' * (seeds[0] > 1)}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
        axis.set_title(f"{env_label(env)} ({counted})", fontsize=10)
        axis.set_xlabel(x_label or f"epoch ({drawn.steps_per_epoch:,} steps)")
        axis.grid(color="0.93")
    _finish(figure, axes, path, y_label)


def plot_sample_efficiency(drawn: LinesToReturns, points: list[Point], path: Path) -> None:
    """As `plot_learning_curves`, against steps on a log axis; a dot on a dashed line is a seed that has reached it."""
    envs = list(dict.fromkeys(point.env for point in points))
    figure, axes = _panels(len(envs))
    for axis, env in zip(axes.flat, envs, strict=False):
        for method, look in zip(drawn.methods, looks(drawn.methods), strict=True):
            own = [p for p in points if (p.env, p.algorithm, p.exploration) == (env, method.algorithm, method.name)]
            for line in bands(aligned(own)).values():
                _draw_line(axis, line, 1, look, method.label)
            _draw_reaches(axis, reaches(own, drawn.thresholds), look)
        for threshold in drawn.thresholds.get(env, ()):
            axis.axhline(threshold, color="0.4", linestyle="--", linewidth=0.8, zorder=1)
        axis.set_xscale("log")
        axis.set_title(env_label(env), fontsize=10)
        axis.set_xlabel("environment steps")
        axis.grid(color="0.93")
    _finish(figure, axes, path)


def plot_standings(rows: Sequence[Standing], path: Path) -> None:
    """A panel per learner and group of tasks: the interquartile mean of each exploration, with its interval."""
    panels: dict[tuple[str, str], list[Standing]] = {}
    for row in rows:
        panels.setdefault((row.figure, row.group), []).append(row)
    figure, axes = _panels(len(panels))
    for axis, own in zip(axes.flat, panels.values(), strict=False):
        for place, row in enumerate(own):
            colour = looks([Method(row.algorithm, row.exploration, "")])[0].colour
            axis.plot([row.iqm], [place], "o", color=colour)
            axis.plot([row.low, row.high], [place, place], color=colour, linewidth=1.5)
        axis.set_yticks(range(len(own)), [row.exploration for row in own], fontsize=8)
        axis.invert_yaxis()
        least = min(own, key=lambda row: row.tasks)
        axis.set_title(f"{find_agent(own[0].algorithm).title}, {least.scope}", fontsize=10)
        axis.set_xlabel("interquartile mean (95% interval)")
        axis.grid(axis="x", color="0.93")
    figure.tight_layout()
    _save(figure, path)


class Solved(NamedTuple):
    """A line of `plot_until_solved`: what a method needs until it has solved tasks of growing size."""

    method: Method
    seeds: Mapping[int, Sequence[float]]
    """By size, of each seed; infinite where it did not solve the task."""


def plot_until_solved(panels: Mapping[tuple[str, str], Sequence[Solved]], path: Path) -> None:
    """A panel for each title and y axis, against the size of the task: medians as a line, every seed as a dot.

    A median exists where more than half of the seeds have solved the task; crosses below the upper edge are sizes
    where no more than half have.
    """
    figure, axes = _panels(len(panels))
    for axis, ((title, y_label), lines) in zip(axes.flat, panels.items(), strict=False):
        for place, (line, look) in enumerate(zip(lines, looks([line.method for line in lines]), strict=True)):
            middle = {size: float(np.median(values)) for size, values in sorted(line.seeds.items())}
            there = {size: value for size, value in middle.items() if np.isfinite(value)}
            style = {"color": look.colour, "label": line.method.label, "linewidth": 1.3, "markersize": 4}
            axis.plot(list(there), list(there.values()), look.style, marker="o", **style)
            dots = [(size, each) for size, values in line.seeds.items() for each in values if np.isfinite(each)]
            axis.scatter(*zip(*dots, strict=True) if dots else ([], []), s=6, alpha=0.4, color=look.colour)
            missed = [size for size in middle if size not in there]
            height, edge = 0.97 - 0.03 * place, axis.get_xaxis_transform()
            axis.plot(missed, [height] * len(missed), "x", color=look.colour, markersize=4, transform=edge)
        sizes = sorted({size for line in lines for size in line.seeds})
        axis.set_yscale("log")
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(FixedLocator(sizes))
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_locator(NullLocator())
        axis.margins(y=0.25)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("size")
        axis.set_ylabel(y_label)
        axis.grid(color="0.93")
    _finish(figure, axes, path, y_label=None)


def _draw_reaches(axis: Axes, found: list[Reach], look: Look) -> None:
    there = np.array([(reach.steps, reach.threshold) for reach in found if reach.steps is not None]).reshape(-1, 2)
    marker = "o" if look.style == STYLES[0] else "s"
    axis.scatter(
        there[:, 0], there[:, 1], s=16, marker=marker, color=look.colour, edgecolors="white", linewidths=0.5, zorder=4
    )


def _panels(count: int) -> tuple[MatplotlibFigure, Any]:
    """A figure with so many panels, and its axes in rows and columns: as few rows as hold them, as even as can be."""
    rows = -(-count // COLUMNS)
    columns = -(-count // rows)
    figure, axes = plt.subplots(rows, columns, figsize=(1.2 + 3.4 * columns, 0.4 + 2.7 * rows), squeeze=False)
    for axis in axes.flat[count:]:
        axis.remove()
    return figure, axes


def _finish(figure: MatplotlibFigure, axes: Any, path: Path, y_label: str | None = "noise-free return") -> None:
    """Names what is shown, unless each panel has, puts one legend below all panels, and writes the file."""
    for axis in axes[:, 0] if y_label is not None else ():
        axis.set_ylabel(y_label)
    handles = {
        label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    columns = axes.shape[1]
    height = 0.15 + 0.18 * -(-len(handles) // columns)  # inches
    figure.set_figheight(figure.get_figheight() + height)
    figure.tight_layout(rect=(0, height / figure.get_figheight(), 1, 1))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=columns, fontsize=8, frameon=False)
    _save(figure, path)


def _draw_line(axis: Axes, line: list[Band], steps_per_epoch: int, look: Look, label: str) -> None:
    """Draws one method: as it looks while all its seeds have a value, dotted where only some got so far."""
    most = max(band.seeds for band in line)
    whole = [band for band in line if band.seeds == most]
    rest = line[len(whole) - 1 :] if len(whole) < len(line) else []
    for part, style, name in ((whole, look.style, label), (rest, ":", None)):  # what dotted means is in the docs
        if part:
            epochs = [band.step / steps_per_epoch for band in part]
            axis.plot(epochs, [band.median for band in part], style, color=look.colour, label=name, linewidth=1.3)
            low, high = [band.low for band in part], [band.high for band in part]
            axis.fill_between(epochs, low, high, color=look.colour, alpha=0.18, linewidth=0)


def _save(figure: MatplotlibFigure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
