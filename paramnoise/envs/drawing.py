"""Pictures of flat worlds: filled polygons and thick lines."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

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
        self._image = Image.new("RGB", (WIDTH, HEIGHT), BACKGROUND)
        self._draw = ImageDraw.Draw(self._image)
        self._scale = WIDTH / view.width
        self._left = view.centre[0] - view.width / 2
        self._top = view.centre[1] + view.width * HEIGHT / WIDTH / 2

    @property
    def pixels(self) -> np.ndarray:
        """The picture so far, uint8[HEIGHT, WIDTH, 3]."""
        return np.array(self._image)

    def polygon(self, corners: Iterable[Point], colour: Colour) -> None:
        """Fills a polygon; its corners go around either way."""
        self._draw.polygon(self._to_pixels(corners), fill=colour)

    def polyline(self, points: Iterable[Point], colour: Colour, thickness: int = 3) -> None:
        """Draws a line through the points, `thickness` pixels wide."""
        self._draw.line(self._to_pixels(points), fill=colour, width=thickness, joint="curve")

    def _to_pixels(self, points: Iterable[Point]) -> list[Point]:
        """Points of the world as (column, row), where whole numbers are the middles of pixels."""
        return [((x - self._left) * self._scale - 0.5, (self._top - y) * self._scale - 0.5) for x, y in points]
