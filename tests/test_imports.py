"""Imports go one way: each room may import from those before it, none from those after it."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import paramnoise

ROOT = Path(paramnoise.__file__).parent
ROOMS = (
    *(
        "version",
        "validation",
        "keys",
        "plugins",
        "gymnasium_ids",
        "schedules",
        "markdown",
        "noise",
        "networks",
        "explorations",
        "experience",
        "agents",
        "parallel",
    ),
    *(
        "loops",
        "envs",
        "runs",
        "figures",
        "claims",
        "report",
        "parsing",
        "callbacks",
        "keywords",
        "api",
        "commands",
        "train_words",
        "words",
    ),
    *("__init__", "cli", "__main__"),
)
"""Packages and top-level modules, in the order of imports."""
RESTRICTED = {"sb3": {"sb3", "noise", "validation"}}
"""Rooms outside that order: all that they may import from; nobody imports from them."""
DOOR = "paramnoise.cli"
"""What imports the rest only once it is needed, so that the first page of help answers at once."""
NEEDS_AN_EXTRA = ("ray_", "mujoco_guard", "plots")
"""How the names of modules begin that need an optional package: these may be imported inside a function."""


class Import(NamedTuple):
    """One import of a module of the package by another."""

    importer: str
    line: int
    imported: str
    is_lazy: bool

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}, imports {self.imported}"


def module_name(path: Path, root: Path) -> str:
    name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
    return name if path.parent == root else name.removesuffix(".__init__")


def imports_of(root: Path) -> list[Import]:
    """Every import of the package's modules by each other, also those inside functions."""
    paths = {module_name(path, root): path for path in sorted(root.rglob("*.py"))}
    return [each for name, path in paths.items() for each in _imports(name, ast.parse(path.read_text()), set(paths))]


def _imports(importer: str, tree: ast.Module, modules: set[str]) -> Iterator[Import]:
    own, at_import = importer.partition(".")[0], _run_at_import(tree)
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{importer}, line {node.lineno}: write the whole name of what is imported"
            # What is taken from a package is a module of it, or a name in its __init__.
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else str(node.module) for name in whole]
        for name in dict.fromkeys(names):
            if name.partition(".")[0] == own:
                imported = f"{own}.__init__" if name == own else name
                yield Import(importer, node.lineno, imported, node not in at_import)


def _run_at_import(tree: ast.AST) -> set[ast.AST]:
    """The nodes outside of functions."""
    inside = [node for node in ast.iter_child_nodes(tree) if not isinstance(node, ast.FunctionDef | ast.Lambda)]
    return set(inside).union(*map(_run_at_import, inside))


def room(module: str) -> str:
    return module.split(".")[1]


def is_allowed(each: Import) -> bool:
    importer, imported = room(each.importer), room(each.imported)
    if importer in RESTRICTED:
        return imported in RESTRICTED[importer]
    placed = importer in ROOMS and imported in ROOMS
    return placed and ROOMS.index(imported) <= ROOMS.index(importer)


def cycle(imports: list[Import]) -> list[str]:
    """The modules of a cycle, if there is one."""
    graph: dict[str, set[str]] = {}
    for each in imports:
        graph.setdefault(each.importer, set()).add(each.imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def is_of_an_extra(module: str) -> bool:
    return module.rpartition(".")[2].startswith(NEEDS_AN_EXTRA)


IMPORTS = imports_of(ROOT)


def test_every_room_has_its_place_in_the_order():
    rooms = {room(module_name(path, ROOT)) for path in ROOT.rglob("*.py")}
    assert rooms <= {*ROOMS, *RESTRICTED}
    assert {*ROOMS} <= rooms


def test_a_room_imports_from_those_before_it_alone():
    assert [str(each) for each in IMPORTS if not is_allowed(each)] == []


def test_no_module_imports_itself_by_a_detour():
    assert cycle(IMPORTS) == []


def test_only_modules_that_need_an_extra_are_imported_inside_functions():
    lazy = [each for each in IMPORTS if each.is_lazy and each.importer != DOOR]
    assert [str(each) for each in lazy if not is_of_an_extra(each.imported)] == []


@pytest.fixture
def house(tmp_path):
    """Writes a package of a few modules and returns its imports."""

    def write(**modules: str) -> list[Import]:
        root = tmp_path / "house"
        for name, text in {"noise/__init__": "", "runs/__init__": "", **modules}.items():
            path = root / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return imports_of(root)

    return write


def test_an_import_against_the_order_is_seen_wherever_it_stands(house):
    lazy = "def late():\n    from house.runs import run\n"
    imports = house(**{"noise/scale": lazy, "runs/run": "import house.noise.scale\n"})
    assert [(str(each), each.is_lazy, is_allowed(each)) for each in imports] == [
        ("house.noise.scale, line 2, imports house.runs.run", True, False),
        ("house.runs.run, line 1, imports house.noise.scale", False, True),
    ]
    assert set(cycle(imports)) == {"house.noise.scale", "house.runs.run"}


def test_a_name_from_a_package_is_an_import_of_its_init(house):
    imports = house(**{"runs/__init__": "from house.runs.run import go\n", "runs/run": "from house.runs import go\n"})
    assert {each.imported for each in imports} == {"house.runs", "house.runs.run"}
    assert cycle(imports)
