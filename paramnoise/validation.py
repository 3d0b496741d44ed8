"""Errors that name the value, the constraint and the remedy."""

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


class UsageError(ValueError):
    """Input that cannot be used; its message is one line for the user."""


def require(holds: bool, name: str, value: object, constraint: str) -> None:
    """Raises UsageError if a setting does not hold its constraint."""
    if not holds:
        raise UsageError(f"{name} must be {constraint}, not {value}")


def choose(kind: str, name: str, choices: Mapping[str, Value]) -> Value:
    """Looks a name up, or raises UsageError with the names that exist."""
    if name not in choices:
        raise UsageError(f"unknown {kind} {name!r}: choose from {', '.join(choices)}")
    return choices[name]
