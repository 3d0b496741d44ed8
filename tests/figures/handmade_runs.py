"""Runs of the Atari figure made by hand: what training leaves on disk, without training."""

import math
from pathlib import Path

from paramnoise.figures.atari_figure import ATARI, AtariScale
from paramnoise.figures.atari_runs import AtariRun
from paramnoise.figures.seed_groups import SeedGroup
from paramnoise.runs import checkpoint

TINY = AtariScale(envs=("Pong",), seeds=2, steps=40, eval_every=20, eval_episodes=3, log_every=10, num_envs=2)


def groups(out: Path, scale: AtariScale = TINY) -> list[SeedGroup]:
    return ATARI.grid(scale, ATARI.methods, out)


def row(step: int, train: float, score: float = math.nan) -> dict[str, float]:
    """A row of progress; the median game is one point above the mean."""
    return {"step": step, "eval_return_mean": score, "eval_return_median": score + 1, "train_return_mean": train}


def leave(each: AtariRun, rows: list[dict[str, float]], *, status: str = "finished") -> None:
    """Leaves a run directory that ends with the last of the rows."""
    each.directory.write_config(each.config)
    each.directory.write_rows(rows)
    summary = {"status": status, "steps": rows[-1]["step"], "final_eval_return_mean": rows[-1]["eval_return_mean"]}
    each.directory.write_summary(summary)
    checkpoint.save(each.directory.checkpoint, {}, {}, {"step": rows[-1]["step"]})


def finish(group: SeedGroup, base: float) -> None:
    """Leaves the whole group finished; the returns of a seed are its number more than `base`."""
    for each in group.runs:
        value = base + each.config.seed
        rows = [row(10, math.nan), row(20, value, value + 10), row(30, math.nan), row(40, value + 1, value + 20)]
        leave(each, rows)
