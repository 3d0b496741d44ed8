"""Errors that name the value, the constraint and the remedy."""

import difflib
import importlib.util
import logging
import math
import os
import traceback
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Value = TypeVar("Value")
LARGEST = 10**15
"""No count is larger: with more elements than that, an array could not be addressed."""


class UsageError(ValueError):
    """Input that cannot be used; its message is one line for the user."""


class RunError(RuntimeError):
    """A run that cannot go on; its message is one line for the user, and its last checkpoint is kept."""

    def __init__(self, message: str = "", details: str = ""):
        """Takes the line, and what a file of the run directory tells beside it: the traceback of code not ours."""
        super().__init__(message)
        self.details = details


def require(holds: bool, name: str, value: object, constraint: str) -> None:
    """Raises UsageError if a setting does not hold its constraint."""
    if not holds:
        raise UsageError(f"{name} must be {constraint}, not {value}")


def whole(name: str, value: Any, least: int) -> int:
    """A whole number as Python's own, whatever it came as: 100_000, 1e5 or one of NumPy's.

    Raises:
        UsageError: if it is none, or too small.
    """
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    require(is_number and float(value).is_integer(), name, brief(value), "a whole number")
    require(value >= least, name, value, f"at least {least}")
    return int(value)


def require_extra(module: str, extra: str, what: str) -> None:
    """Raises UsageError with the command that installs an extra, if its module is missing."""
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"{what} need an extra that is not installed: run `pip install 'paramnoise[{extra}]'`")


def lookup(kind: str, name: str, known: Mapping[str, Value]) -> Value:
    """What a name stands for, or UsageError with the names that exist."""
    if name not in known:
        raise UsageError(f"unknown {kind} {name!r}: {did_you_mean(name, known) if known else 'none is registered'}")
    return known[name]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest that exists, if one is near, and all of them."""
    names = list(known)
    cased = {each.lower(): each for each in reversed(names)}
    near = difflib.get_close_matches(str(name).lower(), cased, n=1)
    return f"{f'did you mean {cased[near[0]]}? ' if near else ''}choose from {', '.join(names)}"


def require_memory(needed: int, what: str) -> None:
    """Raises UsageError if something takes more memory than there is, before any of it is taken."""
    there = memory_of_machine()
    if there is not None and needed > there:
        raise UsageError(f"{what} would take {in_units(needed)} of memory, and there are {in_units(there)} here")


def memory_of_machine() -> int | None:
    """The bytes of memory that this machine has, or its container may take; None: not known."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        return None
    try:
        return min(there, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container, or one without a bound
        return there


def in_units(size: int) -> str:
    """Bytes for people."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(max(int(math.log2(max(size, 1))) // 10, 0), len(units) - 1)
    return f"{size / 1024**power:,.1f} {units[power]}" if power else f"{size} bytes"


def brief(value: Any) -> str:
    """A value of any type, in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    shown = one_line(repr(value))
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return "None" if value is None else f"{shown} of type {type(value).__name__}"


def one_line(text: Any) -> str:
    """Anything's text without its line breaks."""
    return " ".join(str(text).split())


def printable(text: str) -> str:
    """Text with its line breaks and other characters of control escaped: a path or an id may hold any."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def raised_by(what: str, error: Exception) -> RunError:
    """What code that is not ours raised, as an error of one line; its traceback is kept as details."""
    line = f"{what} raised {type(error).__name__}: {one_line(error)}"
    return RunError(line, "".join(traceback.format_exception(error)))


def system_error(error: OSError) -> str:
    """An error of the operating system as one line: where it happened, and what."""
    places = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return one_line(": ".join([*places, error.strerror]) if error.strerror else error)


def warn_in_one_line(message: str) -> None:
    """Tells the user something, in a line of its own without the place in our code that `warnings` would show."""
    logging.getLogger("paramnoise").warning("paramnoise: warning: %s", message)


def check_types(cls: type, settings: Mapping[str, Any], what: str) -> None:
    """Raises UsageError if a setting is not a field of the dataclass, or its value is of another type."""
    hints = {name: hint for name, hint in typing.get_type_hints(cls).items() if not _is_constant(hint)}
    for name, value in settings.items():
        if name not in hints:
            raise UsageError(f"{what} has no setting {name!r}: {did_you_mean(name, hints) if hints else 'it has none'}")
        if not _fits(value, hints[name]):
            wanted = str(hints[name]) if typing.get_args(hints[name]) else hints[name].__name__
            raise UsageError(f"{name} must be {wanted}, not {brief(value)}")
    check_numbers(settings)


def check_numbers(settings: Mapping[str, Any]) -> None:
    """Raises UsageError if a number, or one among several, is infinite or larger than any that can be meant."""
    for name, value in settings.items():
        for number in value if isinstance(value, tuple | list) else (value,):
            is_float = isinstance(number, float | np.floating)
            require(not is_float or math.isfinite(number), name, value, "a finite number")
            require(not isinstance(number, int) or abs(number) <= LARGEST, name, value, f"at most {LARGEST:,}")


def _is_constant(hint: Any) -> bool:
    return hint is typing.ClassVar or typing.get_origin(hint) is typing.ClassVar


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, for the types that settings have; an int is a float too."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple | list) and all(_fits(item, typing.get_args(hint)[0]) for item in value)
    if hint in (int, float):
        allowed = (int, np.integer) if hint is int else (int, float, np.integer, np.floating)
        return isinstance(value, allowed) and not isinstance(value, bool)
    if typing.get_origin(hint) is typing.Literal:  # which of the values it may be is the config's to say
        return isinstance(value, tuple({type(option) for option in typing.get_args(hint)}))
    kind = typing.get_origin(hint) or hint
    return isinstance(value, kind) if isinstance(kind, type) else True
