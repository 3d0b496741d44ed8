"""Errors that name the value, the constraint and the remedy."""

import difflib
import importlib.util
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

Value = TypeVar("Value")


class UsageError(ValueError):
    """Input that cannot be used; its message is one line for the user."""


class RunError(RuntimeError):
    """A run that cannot go on; its message is one line for the user, and its last checkpoint is kept."""


def require(holds: bool, name: str, value: object, constraint: str) -> None:
    """Raises UsageError if a setting does not hold its constraint."""
    if not holds:
        raise UsageError(f"{name} must be {constraint}, not {value}")


def require_extra(module: str, extra: str, what: str) -> None:
    """Raises UsageError with the command that installs an extra, if its module is missing."""
    if importlib.util.find_spec(module) is None:
        raise UsageError(f"{what} need an extra that is not installed: run `pip install 'paramnoise[{extra}]'`")


def lookup(kind: str, name: str, known: Mapping[str, Value]) -> Value:
    """What a name stands for, or UsageError with the names that exist."""
    if name not in known:
        raise UsageError(f"unknown {kind} {name!r}: {did_you_mean(name, known)}")
    return known[name]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest that exists, if one is near, and all of them."""
    names = list(known)
    cased = {each.lower(): each for each in reversed(names)}
    near = difflib.get_close_matches(str(name).lower(), cased, n=1)
    return f"{f'did you mean {cased[near[0]]}? ' if near else ''}choose from {', '.join(names)}"


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


def check_types(cls: type, settings: Mapping[str, Any], what: str) -> None:
    """Raises UsageError if a setting is not a field of the dataclass, or its value is of another type."""
    hints = {name: hint for name, hint in typing.get_type_hints(cls).items() if not _is_constant(hint)}
    for name, value in settings.items():
        if name not in hints:
            raise UsageError(f"{what} has no setting {name!r}: {did_you_mean(name, hints) if hints else 'it has none'}")
        if not _fits(value, hints[name]):
            wanted = str(hints[name]) if typing.get_args(hints[name]) else hints[name].__name__
            raise UsageError(f"{name} must be {wanted}, not {value!r}")


def _is_constant(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.ClassVar


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, for the types that settings have; an int is a float too."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple | list) and all(_fits(item, typing.get_args(hint)[0]) for item in value)
    if hint in (int, float):
        allowed = (int, np.integer) if hint is int else (int, float, np.integer, np.floating)
        return isinstance(value, allowed) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else True
