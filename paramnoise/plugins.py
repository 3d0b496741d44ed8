"""Plug-ins: modules that register agents, explorations, environments and figures when they are imported.

A plug-in is named in one of three ways: by `--plugin MODULE` on the command line, by the environment variable
PARAMNOISE_PLUGINS, or by an installed package's entry point in the group `paramnoise.plugins`. `import paramnoise`
imports those of the last two. The first is added to the variable, so that worker processes import it too. Those of a
Ray cluster that was there before need the module on every node, installed or in a directory that they can import from.
"""

import importlib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Iterable

from paramnoise.validation import UsageError, warn_in_one_line

VARIABLE = "PARAMNOISE_PLUGINS"
"""The environment variable that names plug-in modules, with commas between them."""
GROUP = "paramnoise.plugins"
"""The group of entry points by which installed packages name their plug-in modules."""

_loaded: dict[str, None] = {}


def plugin_names() -> list[str]:
    """The plug-in modules that PARAMNOISE_PLUGINS names."""
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def loaded_plugins() -> list[str]:
    """The plug-in modules that this process has imported, in order."""
    return list(_loaded)


def load_plugins(modules: Iterable[str] = ()) -> None:
    """Imports plug-ins from the current directory or from where packages are installed; child processes do so too.

    These are the modules given, and those of PARAMNOISE_PLUGINS.

    Raises:
        UsageError: if one cannot be imported.
    """
    names = list(dict.fromkeys([*plugin_names(), *modules]))
    for name in names:
        _load_from_here(name)
    if names:
        os.environ[VARIABLE] = ",".join(names)


def load_known_plugins() -> None:
    """Imports the plug-ins of PARAMNOISE_PLUGINS and of installed packages; one that fails is a warning of one line."""
    for name in plugin_names():
        try:
            _load_from_here(name)
        except UsageError as error:
            warn_in_one_line(f"{error} (named by {VARIABLE})")
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            _load(entry.module)
        except UsageError as error:
            package = entry.dist.name if entry.dist is not None else entry.name
            warn_in_one_line(f"{error} (named by the installed package {package})")


def missing_plugins_hint(made_with: Iterable[str]) -> str:
    """The end of an error about a run: the plug-ins that it was made with and that are not loaded, if any."""
    missing = [name for name in made_with if name not in _loaded]
    if not missing:
        return ""
    options = " ".join(f"--plugin {name}" for name in missing)
    return f"; made with plug-in {', '.join(missing)}: pass {options} before the command, or import it"


def _load_from_here(name: str) -> None:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    _load(name)


def _load(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # a plug-in may raise anything
        raise UsageError(f"plug-in {name!r} cannot be imported: {_described(error)}") from error
    _loaded[name] = None


def _described(error: Exception) -> str:
    """An error as one line, with the place in the plug-in that raised it."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return text if frames[-1].filename == __file__ else f"{text} ({frames[-1].filename}:{frames[-1].lineno})"
