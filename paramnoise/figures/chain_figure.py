"""The chain figure (fig. "chain-plot", app. A.3): episodes until solved, against the chain's length."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from paramnoise.figures.base import RESULTS, Arguments, Figure, Method, draw, register_figure
from paramnoise.figures.chain_cells import Cell
from paramnoise.figures.chain_results import Outcome, print_medians, read_results, write_results
from paramnoise.figures.figure_sweep import Sweep
from paramnoise.parallel.engine import Engine


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainScale:
    """How much of the chain figure to run."""

    lengths: tuple[int, ...]
    """The lengths of the chain."""
    seeds: int
    """Seeds per cell, from 0."""
    episodes: int
    """Episodes after which an unsolved run ends."""
    fewer_seeds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Seeds of methods that have fewer, by the method's name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainArguments(Arguments):
    """What `paramnoise reproduce chain` takes."""

    lengths: tuple[int, ...] = ()
    """The chains' lengths, in place of the scale's."""
    episodes: int | None = None
    """Episodes after which an unsolved run ends, in place of the scale's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainFigure(Figure[ChainScale]):
    """A panel per method; a piece is a cell, one length and one method with its seeds."""

    arguments: ClassVar[type[Arguments]] = ChainArguments

    @property
    def shows(self) -> str:
        """What the figure shows, in a few words."""
        return "episodes until solved, against the chain's length"

    def grid(self, scale: ChainScale, methods: Sequence[Method], out: Path) -> list[Cell]:
        """All cells, the longest chains first, so that no long cell is left for the end."""
        return [
            Cell(out / self.name, length, method, tuple(range(_seeds(scale, self.name_of(method)))), scale.episodes)
            for length in sorted(set(scale.lengths), reverse=True)
            for method in reversed(methods)
        ]

    def asked_scale(self, args: Arguments) -> ChainScale:
        """As for every figure; seeds that are asked for are those of all methods."""
        scale = super().asked_scale(args)
        return scale if args.seeds is None else dataclasses.replace(scale, fewer_seeds={})

    def sweep(self, args: ChainArguments, out: Path, engine: Engine) -> Sweep:
        """What was asked for; raises UsageError if it cannot be run."""
        cells = self.grid(self.asked_scale(args), self.asked_methods(args), out)
        for cell in cells:
            cell.config(0)  # a length that cannot be is an error before anything runs
        todo = [cell for cell in cells if not cell.is_finished()]

        def write() -> bool:
            outcomes = self.collect(cells)
            if outcomes:
                write_results(outcomes, out / self.name / RESULTS)
            return bool(outcomes)

        return Sweep(
            headline=f"{self.title}: {len(cells)} cells, {len(cells) - len(todo)} on disk, {engine}",
            directory=out / self.name,
            runs=cells,
            pieces=cells,
            todo=todo,
            unit="cells",
            write=write,
        )

    def collect(self, cells: Iterable[Cell]) -> list[Outcome]:
        """The outcomes of all finished runs, by length, method and seed."""
        order = {method: i for i, method in enumerate(self.methods)}
        ordered = sorted(cells, key=lambda cell: (cell.length, order[cell.method]))
        return [outcome for cell in ordered for outcome in cell.outcomes()]

    def report(self, directory: Path, sweep: Sweep | None) -> None:
        """Prints the medians if the figure was just run, and draws them."""
        outcomes = read_results(directory / RESULTS)
        if sweep is not None:
            print_medians(outcomes, self.methods)
            print(directory / RESULTS)

        def to_file(path: Path) -> None:
            from paramnoise.figures.plots import plot_chain

            plot_chain(outcomes, self.methods, path)

        draw(directory / f"{self.name}.png", to_file)


def _seeds(scale: ChainScale, method: str) -> int:
    return scale.fewer_seeds.get(method, scale.seeds)


CHAIN = register_figure(
    ChainFigure(
        name="chain",
        paper="Figure 4",
        methods=(
            Method("dqn", "parameter", "Parameter space noise DQN"),
            Method("bootstrapped-dqn", "bootstrap", "Bootstrapped DQN"),
            Method("dqn", "epsilon-greedy", "Epsilon-greedy DQN"),
        ),
        scales={
            "smoke": ChainScale(lengths=(5, 10), seeds=1, episodes=200),
            "small": ChainScale(lengths=(10, 40, 70), seeds=3, episodes=2_000),
            "paper": ChainScale(
                lengths=tuple(range(5, 101, 5)),
                seeds=10,
                episodes=2_000,
                fewer_seeds={"epsilon-greedy": 5},  # a seed that fails takes ten times as long as one that solves it
            ),
        },
    )
)
