"""Learning curves, drawn."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from paramnoise.envs.continuous import DENSE
from paramnoise.figures import plots
from paramnoise.figures.base import FIGURES, Method
from paramnoise.figures.chain_results import Outcome
from paramnoise.figures.colours import COLOURS, looks
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


@pytest.mark.parametrize(("tasks", "across"), [(1, 1), (4, 4), (5, 3), (7, 4)])
def test_rows_of_panels_are_few_and_as_even_as_can_be(drawn, tasks, across):
    figure, _ = drawn([point for env in DENSE[:tasks] for point in points(env, "none", [2])])
    assert len({round(axis.get_position().x0, 3) for axis in figure.axes}) == across


def test_an_exploration_has_one_colour_everywhere(drawn):
    figure, _ = drawn(points(DENSE[0], "parameter", [2]) + points(DENSE[0], "ou", [2]) + points(DENSE[1], "ou", [2]))
    first, second = figure.axes
    colours = {line.get_label(): line.get_color() for line in first.lines}
    assert len(set(colours.values())) == 2
    assert {line.get_label(): line.get_color() for line in second.lines}.items() <= colours.items()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [FIGURE.methods[i].label for i in (2, 3)]


def test_a_method_has_the_same_colour_in_every_figure():
    found = {}
    for figure in FIGURES.values():
        for method, look in zip(figure.methods, looks(figure.methods), strict=True):
            if not method.variant:
                found.setdefault((method.exploration, method.algorithm == "es"), set()).add(look.colour)
    assert all(len(colours) == 1 for colours in found.values())
    assert found["parameter", False] != found["none", False] != found["none", True]


def test_two_figures_draw_parameter_noise_in_the_same_colour(drawn, tmp_path):
    figure, _ = drawn(points(DENSE[0], "parameter", [2]))
    plots.plot_learning_curves(FIGURES["trpo-dense"], points(DENSE[0], "parameter", [2]), tmp_path / "other.png")
    assert plt.gcf() is not figure
    assert plt.gcf().axes[0].lines[0].get_color() == figure.axes[0].lines[0].get_color()
    plots.plot_chain([Outcome(5, "dqn", "parameter", 0, 100, True)], FIGURES["chain"].methods, tmp_path / "chain.png")
    dots = plt.gcf().axes[0].collections[0].get_facecolor()[0, :3]
    np.testing.assert_array_equal(dots, to_rgb(figure.axes[0].lines[0].get_color()))


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_no_two_methods_of_a_figure_look_alike(figure):
    assert len(set(looks(figure.methods))) == len(figure.methods)


def test_strange_explorations_get_colours_that_no_other_of_the_figure_has():
    names = ("parameter", "mine", "ou", "yours", "mine")
    mine, yours, again = (looks([Method("ddpg", name, "") for name in names])[i] for i in (1, 3, 4))
    assert len({mine.colour, yours.colour, COLOURS["parameter"], COLOURS["ou"]}) == 4
    assert again.colour == mine.colour
    assert again.style != mine.style


def test_where_seeds_are_missing_the_line_is_dotted(drawn):
    figure, _ = drawn(points(DENSE[0], "none", [4, 2]) + points(DENSE[0], "ou", [4]))
    styles = [(line.get_color(), line.get_linestyle(), line.get_xdata()[-1]) for line in figure.axes[0].lines]
    none, ou = COLOURS["none"], COLOURS["ou"]
    assert styles == [(none, "-", 2), (none, ":", 4), (ou, "-", 4)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [FIGURE.methods[i].label for i in (0, 2)]
    assert figure.axes[0].get_title() == f"{DENSE[0]} (1 to 2 seeds)"
