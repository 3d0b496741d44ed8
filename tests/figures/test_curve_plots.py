"""Learning curves, drawn."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from paramnoise.envs.continuous import DENSE
from paramnoise.figures import plots
from paramnoise.figures.base import FIGURES
from paramnoise.figures.curve_results import Point

FIGURE = FIGURES["ddpg-dense"]


def points(env: str, exploration: str, lengths: list[int]) -> list[Point]:
    """A seed per length, whose return is its number everywhere."""
    return [
        Point(env, "ddpg", exploration, seed, 10_000 * (i + 1), float(seed))
        for seed, length in enumerate(lengths)
        for i in range(length)
    ]


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws points; returns the figure, kept open, and its file."""
    monkeypatch.setattr(plt, "close", lambda figure: None)
    path = tmp_path / "new" / "figure.png"

    def draw(shown: list[Point]):
        plots.plot_learning_curves(FIGURE, shown, path)
        return plt.gcf(), path

    yield draw
    monkeypatch.undo()
    plt.close("all")


def test_a_panel_per_task_with_epochs_and_the_number_of_seeds(drawn):
    figure, path = drawn([point for env in DENSE for point in points(env, "none", [2, 2, 2])])
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [axis.get_title() for axis in figure.axes] == [f"{env} (3 seeds)" for env in DENSE]
    line = figure.axes[0].lines[0]
    np.testing.assert_array_equal(line.get_xydata(), [[1, 1], [2, 1]])
    assert "10,000 steps" in figure.axes[0].get_xlabel()
    (band,) = figure.axes[0].collections
    assert (band.get_paths()[0].vertices[:, 1].min(), band.get_paths()[0].vertices[:, 1].max()) == (0.5, 1.5)


def test_an_exploration_has_one_colour_everywhere(drawn):
    figure, _ = drawn(points(DENSE[0], "parameter", [2]) + points(DENSE[0], "ou", [2]) + points(DENSE[1], "ou", [2]))
    first, second = figure.axes
    colours = {line.get_label(): line.get_color() for line in first.lines}
    assert len(set(colours.values())) == 2
    assert {line.get_label(): line.get_color() for line in second.lines}.items() <= colours.items()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [FIGURE.methods[i].label for i in (2, 3)]


def test_where_seeds_are_missing_the_line_is_dotted(drawn):
    figure, _ = drawn(points(DENSE[0], "none", [4, 2]) + points(DENSE[0], "ou", [4]))
    styles = [(line.get_color(), line.get_linestyle(), line.get_xdata()[-1]) for line in figure.axes[0].lines]
    assert styles == [("C0", "-", 2), ("C0", ":", 4), ("C2", "-", 4)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [FIGURE.methods[i].label for i in (0, 2)]
    assert figure.axes[0].get_title() == f"{DENSE[0]} (1 to 2 seeds)"
