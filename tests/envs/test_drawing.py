"""Pictures: where in the world a pixel is, what is painted over what, and what lies outside."""

import numpy as np
import pytest

from paramnoise.envs.drawing import HEIGHT, WIDTH, Canvas, View

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
VIEW = View(centre=(10.0, 5.0), width=4.0)  # 100 pixels for 1 unit: x from 8 to 12, y from 3.5 to 6.5
UNIT = [(9.0, 4.0), (10.0, 4.0), (10.0, 5.0), (9.0, 5.0)]


def painted(canvas: Canvas, colour=RED) -> np.ndarray:
    """Where the picture has a colour, bool[HEIGHT, WIDTH]."""
    return (canvas.pixels == colour).all(axis=-1)


def extent(mask: np.ndarray) -> tuple[int, int, int, int]:
    """The first and last row and column of what is painted."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])


def test_an_empty_picture_is_white_and_of_the_size_that_videos_have():
    pixels = Canvas(VIEW).pixels
    assert pixels.shape == (HEIGHT, WIDTH, 3)
    assert pixels.dtype == np.uint8
    assert (pixels == 255).all()


@pytest.mark.parametrize("corners", [UNIT, UNIT[::-1]])
def test_a_polygon_is_filled_where_it_lies_in_the_world_with_y_upward(corners):
    canvas = Canvas(VIEW)
    canvas.polygon(corners, RED)
    mask = painted(canvas)
    assert extent(mask) == pytest.approx((150, 249, 100, 199), abs=1)
    assert mask[151:249, 101:199].all()


def test_a_slanted_polygon_covers_its_area():
    canvas = Canvas(VIEW)
    canvas.polygon([(10, 4), (11, 5), (10, 6), (9, 5)], RED)  # 2 square units
    assert painted(canvas).sum() == pytest.approx(20_000, rel=0.03)


def test_what_is_painted_later_covers_what_was_before_and_nothing_else():
    canvas = Canvas(VIEW)
    canvas.polygon(UNIT, RED)
    before = painted(canvas)
    canvas.polygon([(9.5, 4.5), (10.5, 4.5), (10.5, 5.5), (9.5, 5.5)], BLUE)
    blue = painted(canvas, BLUE)
    assert blue[150:200, 151:250].all()
    np.testing.assert_array_equal(painted(canvas), before & ~blue)


@pytest.mark.parametrize("thickness", [1, 3, 7])
def test_a_line_is_as_many_pixels_wide_as_it_is_thick(thickness):
    canvas = Canvas(VIEW)
    canvas.polyline([(8.5, 5.0), (11.5, 5.0)], RED, thickness)
    mask = painted(canvas)
    assert (mask[:, 60:340].sum(axis=0) == thickness).all()
    assert extent(mask)[2:] == pytest.approx((50, 349), abs=1 + thickness / 2)


def test_a_line_has_no_gap_at_a_bend():
    canvas = Canvas(VIEW)
    canvas.polyline([(9.0, 4.0), (10.0, 5.0), (11.0, 4.0)], RED, thickness=9)
    assert painted(canvas)[146:150, 200].all()


def test_what_lies_outside_of_the_view_is_cut_off():
    canvas = Canvas(VIEW)
    canvas.polygon([(0, 0), (1, 0), (1, 1)], RED)
    assert not painted(canvas).any()
    canvas.polygon([(-1e6, -1e6), (10.0, -1e6), (10.0, 1e6), (-1e6, 1e6)], RED)
    assert extent(painted(canvas)) == pytest.approx((0, HEIGHT - 1, 0, 199), abs=1)


def test_pixels_are_a_copy_that_later_painting_leaves_alone():
    canvas = Canvas(VIEW)
    pixels = canvas.pixels
    canvas.polygon(UNIT, RED)
    assert (pixels == 255).all()
    pixels[:] = 0
    assert painted(canvas, WHITE).any()
