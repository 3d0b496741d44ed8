"""Statistics over seeds and tasks, with bootstrap intervals: interquartile mean, probability of improvement, spread.

Those that Agarwal et al. (2021, arXiv 2108.13264) recommend where seeds are few. Scores come as one array per task with
a value per seed; tasks may differ in the number of seeds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

REPETITIONS = 2_000
"""Resamples behind an interval."""
SHUFFLES = 20_000
"""Random orders behind a p value."""
CONFIDENCE = 0.95
"""What an interval covers of the resamples."""


class Estimate(NamedTuple):
    """A number and its bootstrap interval."""

    value: float
    low: float
    """NaN, as `high` is, where a task has a single seed: there is nothing to resample."""
    high: float


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean along the last axis without the lowest and the highest quarter, each rounded down to whole scores."""
    ordered = np.sort(scores, axis=-1)
    count = ordered.shape[-1]
    cut = count // 4
    return ordered[..., cut : count - cut].mean(axis=-1)


def estimate_interquartile_mean(tasks: Sequence[np.ndarray], repetitions: int = REPETITIONS, seed: int = 0) -> Estimate:
    """The interquartile mean of all runs together; the interval resamples the seeds within each task."""
    rng = np.random.default_rng(seed)
    ordered = _ordered(tasks)
    resampled = np.concatenate([scores[_draw(rng, scores, repetitions)] for scores in ordered], axis=-1)
    return _estimate(interquartile_mean(np.concatenate(ordered)), interquartile_mean(resampled), ordered)


def estimate_ratio(
    ours: Sequence[np.ndarray], others: Sequence[np.ndarray], repetitions: int = REPETITIONS, seed: int = 0
) -> Estimate:
    """Our interquartile mean of all runs together over that of the others; the interval resamples the seeds of both.

    Tasks do not count alike: those with the highest and the lowest scores are most of what such a mean leaves out.
    """
    rng = np.random.default_rng(seed)
    x, y = _ordered(ours), _ordered(others)
    resampled = [
        interquartile_mean(np.concatenate([scores[_draw(rng, scores, repetitions)] for scores in side], axis=-1))
        for side in (x, y)
    ]
    value = interquartile_mean(np.concatenate(x)) / interquartile_mean(np.concatenate(y))
    return _estimate(value, resampled[0] / resampled[1], [*x, *y])


def estimate_ratio_by_task(
    ours: Sequence[np.ndarray], others: Sequence[np.ndarray], repetitions: int = REPETITIONS, seed: int = 0
) -> Estimate:
    """The mean over tasks of our interquartile mean over that of the others; the interval resamples the seeds of both.

    Raises:
        ValueError: if the others' mean of a task is not above 0, so that nothing is a part of it. Where that is so of a
            resample, there is no interval.
    """
    rng = np.random.default_rng(seed)
    x, y = _ordered(ours), _ordered(others)
    units = np.array([interquartile_mean(scores) for scores in y])
    if units.min() <= 0:
        raise ValueError(f"the mean of a task is {units.min():g}, and a ratio needs one above 0")
    above, below = (
        np.array([interquartile_mean(scores[_draw(rng, scores, repetitions)]) for scores in side]) for side in (x, y)
    )
    value = np.mean([interquartile_mean(scores) for scores in x] / units)
    if below.min() <= 0:
        return Estimate(float(value), np.nan, np.nan)
    return _estimate(value, np.mean(above / below, axis=0), [*x, *y])


def probability_of_improvement(
    ours: Sequence[np.ndarray], others: Sequence[np.ndarray], repetitions: int = REPETITIONS, seed: int = 0
) -> Estimate:
    """How often a run of ours scores above one of the others on a task, a tie counted half; the mean over tasks.

    On one task this is the U of Mann and Whitney per pair of runs. The interval resamples the seeds of both sides.
    """
    rng = np.random.default_rng(seed)
    values, resampled = [], []
    for x, y in zip(_ordered(ours), _ordered(others), strict=True):
        wins = np.where(x[:, None] == y, 0.5, x[:, None] > y)  # (seeds of ours, seeds of others)
        rows, columns = _draw(rng, x, repetitions), _draw(rng, y, repetitions)
        values.append(wins.mean())
        resampled.append(wins[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2)))
    return _estimate(np.mean(values), np.mean(resampled, axis=0), [*ours, *others])


def permutation_p(
    ours: Sequence[np.ndarray], others: Sequence[np.ndarray], shuffles: int = SHUFFLES, seed: int = 0
) -> float:
    """How likely runs that do not differ would be as far from a probability of improvement of 0.5, on either side.

    Runs change sides within their task; both sides keep their sizes. The order as it is counts as one of the shuffles.
    """
    rng = np.random.default_rng(seed)
    found, shuffled = 0.0, np.zeros(shuffles)
    for x, y in zip(_ordered(ours), _ordered(others), strict=True):
        scores = np.concatenate([x, y])
        wins = np.where(scores[:, None] == scores, 0.5, scores[:, None] > scores)
        found += wins[: len(x), len(x) :].mean() - 0.5
        order = rng.permuted(np.tile(np.arange(len(scores)), (shuffles, 1)), axis=1)
        rows, columns = order[:, : len(x)], order[:, len(x) :]
        shuffled += wins[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2)) - 0.5
    as_far = np.abs(shuffled) >= abs(found) - 1e-9
    return float((1 + as_far.sum()) / (1 + shuffles))


def holm(p_values: Sequence[float]) -> list[float]:
    """P values of several comparisons, each raised so that below 0.05 any of them is wrong once in 20 times (Holm)."""
    order = np.argsort(p_values)
    raised = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return adjusted.tolist()


def estimate_spread_ratio(
    ours: np.ndarray, others: np.ndarray, repetitions: int = REPETITIONS, seed: int = 0
) -> Estimate:
    """The interquartile range of our seeds over that of the others; the interval resamples the seeds of both sides.

    1 where neither has any spread, infinite where only the others have none.
    """
    rng = np.random.default_rng(seed)
    x, y = _ordered([ours, others])
    resampled = _part(x[_draw(rng, x, repetitions)], y[_draw(rng, y, repetitions)])
    parts = _estimate(_part(x, y), resampled, [x, y])
    return Estimate(*(part / (1 - part) if part < 1 else part * np.inf for part in parts))


def normalise(scores: np.ndarray, low: float, high: float) -> np.ndarray:
    """Scores with `low` at 0 and `high` at 1; all 0 where the two are the same."""
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores, dtype=float)


def _part(ours: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Our interquartile range, along the last axis, over the sum of both: it grows with their ratio, and is finite."""
    own, theirs = (np.diff(np.percentile(scores, [25, 75], axis=-1), axis=0)[0] for scores in (ours, others))
    whole = own + theirs
    return np.divide(own, whole, out=np.full_like(whole, 0.5), where=whole > 0)


def _ordered(tasks: Sequence[np.ndarray]) -> list[np.ndarray]:
    """In order, so that an interval does not depend on which seed is which."""
    return [np.sort(scores) for scores in tasks]


def _draw(rng: np.random.Generator, scores: np.ndarray, repetitions: int) -> np.ndarray:
    """Indices of as many seeds as there are, with replacement, in each repetition."""
    return rng.integers(len(scores), size=(repetitions, len(scores)))


def _estimate(value: np.ndarray | float, resampled: np.ndarray, tasks: Sequence[np.ndarray]) -> Estimate:
    if min(len(scores) for scores in tasks) < 2:
        return Estimate(float(value), np.nan, np.nan)
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return Estimate(float(value), low, high)
