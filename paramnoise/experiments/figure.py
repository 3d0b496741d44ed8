"""A figure of the paper as data: which runs, which seeds, which budget."""

import dataclasses
from typing import Generic, NamedTuple, TypeVar

Scale = TypeVar("Scale")


class Method(NamedTuple):
    """An agent with an exploration: one panel or one line of a figure."""

    algorithm: str
    exploration: str
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure(Generic[Scale]):
    """What to run and how to name it."""

    name: str
    paper: str
    """Where the paper shows it."""
    methods: tuple[Method, ...]
    scales: dict[str, Scale]
    """How much of it to run, by the names smoke, small and paper."""
