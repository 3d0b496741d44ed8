"""Numbers that change with time, written so that configs, run directories and the command line can hold them.

A setting that may change is a number, or a text such as `linear:1e-3:1e-5:100000`: the kind, the first value, the last
value, and over how many steps.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from paramnoise.validation import UsageError, lookup, require

FORM = "KIND:FIRST:LAST:STEPS"


def _exponential(first: float, last: float, steps: int) -> optax.Schedule:
    return optax.exponential_decay(first, steps, last / first, end_value=last)


def _cosine(first: float, last: float, steps: int) -> optax.Schedule:
    return optax.cosine_decay_schedule(first, steps, alpha=last / first)


KINDS: dict[str, Callable[[float, float, int], optax.Schedule]] = {
    "linear": optax.linear_schedule,
    "cosine": _cosine,
    "exponential": _exponential,
}
"""From the first value to the last, which then stays."""


def linear(first: float, last: float, steps: int) -> str:
    """A setting that goes linearly from the first value to the last, and stays there."""
    return f"linear:{first!r}:{last!r}:{steps}"


def first_value(setting: float | str) -> float:
    """The value of a setting at its first step."""
    return _parse(setting)[1] if isinstance(setting, str) else setting


def at(setting: float | str, step: ArrayLike) -> Array:
    """The value of a setting at a step."""
    value: Any = as_optax(setting)
    return jnp.asarray(value(step) if callable(value) else value, jnp.float32)


def as_optax(setting: float | str) -> float | optax.Schedule:
    """The setting as Optax takes it: a number as it is, or a function of the count of steps."""
    if not isinstance(setting, str):
        return setting
    kind, first, last, steps = _parse(setting)
    return KINDS[kind](first, last, steps)


def check(name: str, setting: float | str, constraint: str = "above 0") -> None:
    """Raises UsageError unless the setting is a number or a schedule whose values are all above 0."""
    values = _parse(setting)[1:3] if isinstance(setting, str) else (setting,)
    require(all(value > 0 for value in values), name, setting, constraint)


def _parse(text: str) -> tuple[str, float, float, int]:
    kind, *numbers = text.split(":")
    lookup("schedule", kind, KINDS)
    try:
        first, last, steps = numbers
        values = float(first), float(last), int(float(steps))
    except ValueError:
        raise UsageError(f"{text!r} is no schedule: write {FORM}, such as linear:1e-3:1e-5:100000") from None
    require(values[2] >= 1, f"the steps of {text!r}", values[2], "at least 1")
    return kind, *values
