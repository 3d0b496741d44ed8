"""The learning curves of any runs, drawn: returns above, and sigma and distance of their noise below."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from paramnoise.figures.run_curves import SHOWN, Curve


def plot_curves(curves: Sequence[Curve], path: Path) -> None:
    """Writes a picture: a column of panels per environment, a line per config with its median and its quartiles."""
    envs = list(dict.fromkeys(curve.env for curve in curves))
    rows = [column for column in SHOWN if any(curve.column == column for curve in curves)]
    colours = {label: f"C{i}" for i, label in enumerate(dict.fromkeys(curve.label for curve in curves))}
    size = (0.8 + 3.8 * len(envs), 0.6 + 2.4 * len(rows) + 0.2 * len(colours))
    figure, axes = plt.subplots(len(rows), len(envs), figsize=size, sharex="col", squeeze=False)
    for curve in curves:
        axis = axes[rows.index(curve.column), envs.index(curve.env)]
        steps = [band.step for band in curve.bands]
        style = {"color": colours[curve.label], "linewidth": 1.3}
        marker = "o" if len(steps) == 1 else ""
        axis.plot(steps, [band.median for band in curve.bands], marker=marker, label=curve.label, **style)
        low, high = [band.low for band in curve.bands], [band.high for band in curve.bands]
        axis.fill_between(steps, low, high, color=colours[curve.label], alpha=0.18, linewidth=0)
    for axis, env in zip(axes[0], envs, strict=True):
        axis.set_title(env, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("environment steps")
    for axis, column in zip(axes[:, 0], rows, strict=True):
        axis.set_ylabel(SHOWN[column])
    for axis in axes.flat:
        axis.grid(color="0.93")
    handles = {label: plt.Line2D([], [], color=colour) for label, colour in colours.items()}
    room = 0.1 + 0.2 * len(handles)  # inches
    figure.tight_layout(rect=(0, room / size[1], 1, 1))
    figure.legend(handles.values(), handles.keys(), loc="lower center", fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
