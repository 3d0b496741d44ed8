"""Every notebook in examples/notebooks/ runs, for a few steps: its code cells in order, in one namespace."""

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot
from rich.console import Console

from paramnoise.networks import own
from paramnoise.runs import display

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples" / "notebooks").glob("*.ipynb"))
STEPS = 120
KILOBYTES = 300


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def is_parameters(cell: dict[str, Any]) -> bool:
    return "parameters" in cell["metadata"].get("tags", [])


def run(path: Path, steps: int) -> dict[str, object]:
    """Executes the code cells; the one that is tagged `parameters` is replaced by a number of steps."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(path), 1):
        source = f"STEPS = {steps}" if is_parameters(cell) else "".join(cell["source"])
        exec(compile(source, f"{path.name}, code cell {number}", "exec"), namespace)
    return namespace


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 3


@pytest.fixture
def in_a_room_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "NETWORKS", dict(own.NETWORKS))  # what a notebook registers is forgotten with it
    before = matplotlib.get_backend()
    matplotlib.use("Agg")
    yield
    pyplot.close("all")
    matplotlib.use(before)


@pytest.mark.examples
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.usefixtures("in_a_room_of_its_own")
def test_a_notebook_runs_and_draws(path: Path):
    agent: Any = run(path, STEPS)["agent"]
    assert agent.step == STEPS
    assert pyplot.get_fignums()
    for number in pyplot.get_fignums():
        pyplot.figure(number).canvas.draw()  # as Jupyter does at the end of a cell


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_one_cell_of_parameters_which_sets_the_steps_alone(path: Path):
    (cell,) = filter(is_parameters, code_cells(path))
    (statement,) = ast.parse("".join(cell["source"])).body
    assert isinstance(statement, ast.Assign)
    assert [target.id for target in statement.targets if isinstance(target, ast.Name)] == ["STEPS"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_one_that_jupyter_opens_and_small(path: Path):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    outputs = [output for cell in code_cells(path) for output in cell["outputs"]]
    assert "error" not in [output["output_type"] for output in outputs]
    assert path.stat().st_size < KILOBYTES * 1024


def test_cells_share_a_namespace_and_run_in_order_with_the_steps_of_the_test(tmp_path):
    cells = [("STEPS = 9", ["parameters"]), ("steps = STEPS", []), ("twice = 2 * steps", [])]
    book = {"cells": [{"cell_type": "code", "metadata": {"tags": tags}, "source": [text]} for text, tags in cells]}
    path = tmp_path / "book.ipynb"
    path.write_text(json.dumps(book))
    assert run(path, 4)["twice"] == 8


class FakeProgress:
    """What rich shows with ipywidgets, which are not installed here."""

    def __init__(self, *columns: object, **settings: object):
        self.console = self

    def __enter__(self):
        return self

    def __exit__(self, *error: object): ...

    def add_task(self, label: str, total: int): ...

    def print(self, text: str, highlight: bool):
        print("on a live display:", text)


@pytest.mark.parametrize("has_widgets", [True, False])
def test_progress_in_a_notebook_is_a_bar_with_widgets_and_lines_without(has_widgets, monkeypatch, capsys):
    monkeypatch.setattr(display, "Console", lambda: Console(force_jupyter=True))
    monkeypatch.setattr(display, "find_spec", lambda name: name if has_widgets else None)
    monkeypatch.setattr(display, "Progress", FakeProgress)
    with display.bar(10, "learning", "steps") as bar:
        bar.line("a row")
    assert capsys.readouterr().out == ("on a live display: a row\n" if has_widgets else "a row\n")
