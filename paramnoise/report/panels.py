"""Charts as data: what a page draws of learning curves, with every seed's own, in the form that it is inlined in.

A panel has one x axis for all its lines. A value that a line does not have there is None.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from paramnoise.figures.base import Method
from paramnoise.figures.colours import COLOURS, STYLES, looks
from paramnoise.figures.curve_results import Point, bands
from paramnoise.figures.sample_efficiency import aligned
from paramnoise.figures.statistics import estimate_interquartile_mean

DIGITS = 6
"""Significant digits of a number on a page, which its readouts show all of."""
DASHES: Mapping[str, tuple[int, ...]] = dict(zip(STYLES, ((), (8, 4), (8, 3, 2, 3)), strict=True))
"""In pixels, by the style of a line."""
MEDIAN, IQM = "median", "iqm"
"""What stands for the seeds of a line: their median and quartiles, or their interquartile mean and its interval."""

Values = list[float | None]


class Key(NamedTuple):
    """How a method is named and drawn, on the whole page."""

    name: str
    label: str
    colour: str
    dash: tuple[int, ...] = ()


class Centre(NamedTuple):
    """The seeds of a line in one number at each x, and the band around it; the band is empty where there is none."""

    value: Values
    low: Values
    high: Values


class Trace(NamedTuple):
    """One seed's own curve."""

    name: str
    values: Values
    mark: str = ""
    """Empty: a line. Else its points alone are drawn, `full` or `hollow`."""


class Line(NamedTuple):
    """One method in one panel."""

    key: str
    """The name of its key."""
    centres: dict[str, Centre]
    """By `MEDIAN` and `IQM`; what a line lacks, another of its centres stands for."""
    traces: list[Trace]
    seeds: list[int]
    """How many seeds the centres are of, at each x."""


class Panel(NamedTuple):
    """One chart."""

    title: str
    x_label: str
    y_label: str
    x: list[float]
    lines: list[Line]
    log_x: bool = False
    """Whether its x axis is logarithmic at first."""
    log_y: bool = False
    """Whether its y axis is."""


class Chart(NamedTuple):
    """Panels under one heading, with the methods that they share."""

    heading: str
    panels: list[Panel]


def method_keys(methods: Sequence[Method], names: Iterable[str]) -> list[Key]:
    """A key for each method, under the names given."""
    return [
        Key(name, method.label, look.colour, DASHES[look.style])
        for name, method, look in zip(names, methods, looks(methods), strict=True)
    ]


def method_of(algorithm: str, name: str) -> Method:
    """A method that no figure knows, from its names in results.csv: parameter-delta-0.01 is a variant of parameter."""
    known = max((each for each in COLOURS if f"{name}-".startswith(f"{each}-")), key=len, default=name)
    return Method(algorithm, known, f"{algorithm}, {name}", variant=name[len(known) + 1 :])


def curve_panel(
    points: Iterable[Point],
    title: str,
    x_label: str,
    y_label: str,
    *,
    run_names: Mapping[int, str] | None = None,
    log_x: bool = False,
) -> Panel:
    """A panel of learning curves.

    Args:
        points: its evaluations; `exploration` of a point names the key of its line.
        title: what it shows.
        x_label: what its steps are.
        y_label: what its values are.
        run_names: what the runs of points are called, by `seed`; by default they are called seeds.
        log_x: whether its x axis is logarithmic at first.
    """
    by_key: dict[str, list[Point]] = {}
    for point in points:
        by_key.setdefault(point.exploration, []).append(point)
    x = sorted({point.step for own in by_key.values() for point in own})
    lines = [_line(key, own, x, run_names or {}) for key, own in by_key.items()]
    return Panel(title, x_label, y_label, [rounded(step) for step in x], lines, log_x=log_x)


def _line(key: str, points: list[Point], x: list[int], run_names: Mapping[int, str]) -> Line:
    shared = aligned(points)
    at: dict[int, list[float]] = {}
    for point in shared:
        at.setdefault(point.step, []).append(point.value)
    (line,) = bands(shared).values()
    medians = {band.step: (band.median, band.low, band.high) for band in line}
    means = {step: estimate_interquartile_mean([np.array(values)]) for step, values in at.items()}
    centres = {MEDIAN: _centre(medians, x), IQM: _centre(means, x)}
    return Line(key, centres, _traces(points, x, run_names), [len(at.get(step, ())) for step in x])


def _centre(numbers: Mapping[int, tuple[float, float, float]], x: list[int]) -> Centre:
    nothing = (math.nan,) * 3
    value, low, high = zip(*(numbers.get(step, nothing) for step in x), strict=True)
    return Centre(all_rounded(value), all_rounded(low), all_rounded(high))


def _traces(points: list[Point], x: list[int], run_names: Mapping[int, str]) -> list[Trace]:
    runs: dict[int, dict[int, float]] = {}
    for point in points:
        runs.setdefault(point.seed, {})[point.step] = point.value
    return [
        Trace(run_names.get(seed, f"seed {seed}"), all_rounded(curve.get(step, math.nan) for step in x))
        for seed, curve in sorted(runs.items())
    ]


def plain_line(key: str, values: Values) -> Line:
    """A line of one run, without seeds or bands."""
    nothing: Values = [None] * len(values)
    return Line(key, {MEDIAN: Centre(values, nothing, nothing)}, [], [])


def level(key: str, value: float, x: Sequence[float]) -> Line:
    """A horizontal line, such as a published score."""
    return plain_line(key, [rounded(value)] * len(x))


def all_rounded(numbers: Iterable[float]) -> Values:
    """Numbers as a page has them; None for what is not finite."""
    return [rounded(number) if math.isfinite(number) else None for number in numbers]


def rounded(number: float) -> float:
    """A number with as many digits as a page has; whole where it can be."""
    short = float(f"{number:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def inlined(keys: Sequence[Key], charts: Sequence[Chart]) -> dict[str, Any]:
    """What a page's script takes."""
    return {
        "keys": [key._asdict() for key in keys],
        "panels": [_inlined_panel(panel) for chart in charts for panel in chart.panels],
    }


def _inlined_panel(panel: Panel) -> dict[str, Any]:
    lines = [
        {
            "key": line.key,
            "centres": {name: centre._asdict() for name, centre in line.centres.items()},
            "traces": [trace._asdict() for trace in line.traces],
            "seeds": line.seeds,
        }
        for line in panel.lines
    ]
    return {**panel._asdict(), "lines": lines}
