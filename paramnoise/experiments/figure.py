"""A figure of the paper as data: which runs, which seeds, which budget."""

import dataclasses
from typing import NamedTuple


class Method(NamedTuple):
    """An agent with an exploration: one panel or one line of a figure."""

    algorithm: str
    exploration: str
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of a figure to run."""

    lengths: tuple[int, ...]
    """The lengths of the chain."""
    seeds: int
    """Seeds per cell, from 0."""
    episodes: int
    """Episodes after which an unsolved run ends."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """What to run and how to name it."""

    name: str
    paper: str
    """Where the paper shows it."""
    methods: tuple[Method, ...]
    scales: dict[str, Scale]
