"""The figures, drawn from results.csv alone."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from paramnoise.experiments.chain import CHAIN, Outcome, medians

SOLVED, UNSOLVED = "tab:green", "tab:blue"


def plot_chain(outcomes: list[Outcome], path: Path) -> None:
    """Median episodes until solved against the chain's length, one panel per method (fig. "chain-plot")."""
    present = {outcome.exploration for outcome in outcomes}
    methods = [method for method in CHAIN.methods if method.exploration in present]
    figure, axes = plt.subplots(
        1, len(methods), figsize=(3.6 * len(methods), 3.2), sharex=True, sharey=True, squeeze=False
    )
    for axis, method in zip(axes[0], methods, strict=True):
        own = [outcome for outcome in outcomes if outcome.exploration == method.exploration]
        points = sorted(medians(own))
        axis.plot([p.length for p in points], [p.episodes for p in points], color="0.8", linewidth=1, zorder=1)
        for solved, colour, label in ((True, SOLVED, "solved"), (False, UNSOLVED, "not solved")):
            seeds = [o for o in own if o.solved == solved]
            axis.scatter(
                [o.length for o in seeds], [o.episodes for o in seeds], s=6, color=colour, alpha=0.35, zorder=2
            )
            shown = [p for p in points if p.solved == solved]
            axis.scatter(
                [p.length for p in shown], [p.episodes for p in shown], s=26, color=colour, label=label, zorder=3
            )
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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
