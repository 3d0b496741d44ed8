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

    def name_of(self, algorithm: str, exploration: str) -> str:
        """What a method is called in paths and tables: its exploration, or its agent where a figure compares agents."""
        explorations = [method.exploration for method in self.methods]
        return exploration if len(set(explorations)) == len(explorations) else algorithm

    @property
    def by_name(self) -> dict[str, Method]:
        """The methods by what they are called."""
        return {self.name_of(method.algorithm, method.exploration): method for method in self.methods}
