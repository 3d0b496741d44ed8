"""The map of the code is true: every name that docs/architecture.md gives for an item of the paper exists."""

import importlib
import re
from pathlib import Path

import pytest

from paramnoise.figures.base import FIGURES

PAGE = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text()
TABLE = PAGE.partition("## From the paper to the code")[2].partition("\n## ")[0]
ROWS = [line.split("|")[1:-1] for line in TABLE.splitlines() if line.startswith("|")][2:]
NAMES = sorted({name for *_, code in ROWS for name in re.findall(r"`([^`]+)`", code)})
PACKAGE = Path(__file__).parent.parent / "paramnoise"


def find(name: str) -> object:
    """The object of a dotted name below the package: a module's, or a class's."""
    parts = name.split(".")
    depth = next(n for n in range(len(parts), 0, -1) if (PACKAGE / "/".join(parts[:n])).with_suffix(".py").exists())
    found: object = importlib.import_module(".".join(["paramnoise", *parts[:depth]]))
    for part in parts[depth:]:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("paramnoise ")])
def test_a_name_in_the_table_is_in_the_code(name: str):
    assert find(name) is not None


def test_every_command_in_the_table_is_a_figure_and_every_figure_is_in_the_table():
    commands = {name.removeprefix("paramnoise reproduce ") for name in NAMES if name.startswith("paramnoise ")}
    assert commands == {name for name, figure in FIGURES.items() if figure.paper}


def test_every_numbered_equation_figure_and_table_of_the_paper_has_a_row():
    items = " ".join(item for item, *_ in ROWS)
    ranges = re.findall(r"eq\. (\d+)(?: to (\d+))?", items)
    equations = {n for first, last in ranges for n in range(int(first), int(last or first) + 1)}
    figures = set(map(int, re.findall(r"figure (\d+)", items)))
    assert equations == set(range(1, 11))
    assert figures == set(range(1, 10))
    assert "table 1" in items


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)\b", PAGE))))
def test_a_file_named_on_the_page_exists(path: str):
    assert (PACKAGE / path).exists() or (PACKAGE.parent / path).exists()
