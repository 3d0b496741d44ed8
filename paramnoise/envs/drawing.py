"""Pictures of flat worlds, in plain NumPy: filled convex polygons and thick lines."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

Point = tuple[float, float]
Colour = tuple[int, int, int]

WIDTH, HEIGHT = 400, 300
"""The size of a picture in pixels."""
BACKGROUND: Colour = (255, 255, 255)


class View(NamedTuple):
    """The part of the world that a picture shows."""

    centre: Point
    width: float
    """How much of the world's x axis fits in; the height follows from the picture's shape."""


class Canvas:
    """A picture of the world, y upward, painted over from back to front."""

    def __init__(self, view: View):
        """Makes an empty picture."""
        self.pixels = np.full((HEIGHT, WIDTH, 3), BACKGROUND, np.uint8)
        self._scale = WIDTH / view.width
        self._left = view.centre[0] - view.width / 2
        self._top = view.centre[1] + view.width * HEIGHT / WIDTH / 2

    def polygon(self, corners: Iterable[Point], colour: Colour) -> None:
        """Fills a convex polygon; its corners go around either way."""
        self._fill(self._to_pixels(corners), colour)

    def polyline(self, points: Iterable[Point], colour: Colour, thickness: float = 3.0) -> None:
        """Draws a line through the points, `thickness` pixels wide."""
        at = self._to_pixels(points)
        for start, end in itertools.pairwise(at):
            along = (end - start) / max(float(np.hypot(*(end - start))), 1e-9) * thickness / 2
            across = np.array([-along[1], along[0]])
            tail, head = start - along, end + along  # half a thickness longer, to close the gaps at bends
            self._fill(np.array([tail - across, head - across, head + across, tail + across]), colour)

    def _fill(self, corners: np.ndarray, colour: Colour) -> None:
        low = np.maximum(np.floor(corners.min(0)).astype(int), 0)
        high = np.minimum(np.ceil(corners.max(0)).astype(int) + 1, (WIDTH, HEIGHT))
        if (low >= high).any():
            return
        columns = np.arange(low[0], high[0]) + 0.5
        rows = np.arange(low[1], high[1])[:, None] + 0.5
        sides = [
            (end[0] - start[0]) * (rows - start[1]) - (end[1] - start[1]) * (columns - start[0])
            for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True)
        ]
        inside = np.all(np.greater_equal(sides, 0), axis=0) | np.all(np.less_equal(sides, 0), axis=0)
        self.pixels[low[1] : high[1], low[0] : high[0]][inside] = colour

    def _to_pixels(self, points: Iterable[Point]) -> np.ndarray:
        """Points of the world as (column, row)."""
        return (np.array(list(points), float) - (self._left, self._top)) * (self._scale, -self._scale)
