"""The figure `rivals`: the figures of all learners put together, to decide from which exploration to use.

Its parts are figures of their own (`figures/rival_figures.py`), which can be run one after the other; it has no runs
besides theirs.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rich.table import Table

from paramnoise.agents.base import find_agent
from paramnoise.envs.continuous import SPARSE
from paramnoise.figures import atari_results, chain_results, curve_results, rival_figures
from paramnoise.figures.atari_figure import SCORES, AtariFigure
from paramnoise.figures.base import NOT_DRAWN, RESULTS, Arguments, Figure, Method, can_draw, draw, register_figure
from paramnoise.figures.chain_figure import ChainFigure
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_summary import table_console
from paramnoise.figures.curves import SUMMARY
from paramnoise.figures.figure_sweep import Sweep
from paramnoise.figures.standings import HEADER, Group, Standing, cells, standings, write_standings
from paramnoise.markdown import markdown_table
from paramnoise.parallel.engine import Engine
from paramnoise.validation import UsageError, lookup

WIDTH = 160
"""Columns of the printed table where there is no terminal."""
KINDS = ("continuous", "discrete", "on-policy")
"""What parts are about, in the order of the tables."""


class Part(NamedTuple):
    """A figure of one learner, and what of it is put together."""

    figure: Figure[Any]
    kind: str
    """One of `KINDS`."""
    groups: tuple[Group, ...]

    @property
    def learners(self) -> str:
        """Its agents, for people."""
        names = dict.fromkeys(method.algorithm for method in self.figure.methods)
        return ", ".join(find_agent(name).title for name in names)

    def standings(self, out: Path) -> list[Standing]:
        """How its explorations stand; none if it has no results."""
        directory = out / self.figure.name
        if not (directory / RESULTS).exists():
            return []
        return standings(self.figure.name, points_of(self.figure, directory), self.groups)

    def lines(self, rows: Sequence[Standing]) -> list[tuple[str, ...]]:
        """Its standings as rows of the table for people; what has no results has a row that says so."""
        if not rows:
            groups = ", ".join(group.name for group in self.groups)
            return [_not_run(self.learners, groups, ", ".join(self.figure.by_name))]
        have = {(row.group, row.exploration) for row in rows}
        missing = [
            _not_run(find_agent(method.algorithm).title, group.name, name)
            for group in self.groups
            for name, method in self.figure.by_name.items()
            if (group.name, name) not in have
        ]
        return [cells(row, find_agent(row.algorithm).title) for row in rows] + missing


def _not_run(learner: str, tasks: str, exploration: str) -> tuple[str, ...]:
    return (learner, tasks, exploration, "not run yet", *[""] * (len(HEADER) - 4))


def points_of(figure: Figure[Any], directory: Path) -> list[Point]:
    """The results of a part, a score for each run and step.

    On a chain it is the share of the budget of episodes that is left when the chain is solved, 0 if it is not; on a
    game the mean of the noise-free games.
    """
    if isinstance(figure, ChainFigure):
        outcomes = chain_results.read_results(directory / RESULTS)
        budget = figure.scales["paper"].episodes  # the same whatever was run, so that a score has one scale
        left = [max(1 - o.episodes / budget, 0.0) if o.solved else 0.0 for o in outcomes]
        return [
            Point(f"Chain-{o.length}", o.algorithm, o.exploration, o.seed, budget, value)
            for o, value in zip(outcomes, left, strict=True)
        ]
    if isinstance(figure, AtariFigure):
        scores = atari_results.read_scores(directory / SCORES)
        return [Point(each.env, "dqn", each.exploration, each.seed, each.step, each.mean) for each in scores]
    return curve_results.read_results(directory / RESULTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RivalsScale:
    """How much of the comparison to run."""

    parts: tuple[str, ...]
    """The parts, in the order in which they are run."""
    seeds: int | None = None
    """Seeds of every part; None: as many as the part's own scale has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RivalsArguments(Arguments):
    """What `paramnoise reproduce rivals` takes."""

    parts: tuple[str, ...] = ()
    """Some of its parts, such as rivals-td3; all but rivals-atari, which needs a GPU, by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RivalsFigure(Figure[RivalsScale]):
    """A panel per learner and group of tasks, a dot with its interval per exploration, and the table."""

    methods: tuple[Method, ...] = ()
    """None of its own."""
    parts: tuple[Part, ...]

    arguments: ClassVar[type[Arguments]] = RivalsArguments

    @property
    def shows(self) -> str:
        """What the figure shows, in a few words."""
        return "parameter noise beside action noise, pink noise, gSDE, noisy layers and bootstrapped heads"

    @property
    def help(self) -> str:
        """A line on its command."""
        return f"Reproduce {self.name}: {self.shows}. Parts: {', '.join(self.by_part)}."

    @property
    def by_part(self) -> dict[str, Part]:
        """The parts by their figures' names."""
        return {part.figure.name: part for part in self.parts}

    def asked(self, args: RivalsArguments) -> list[tuple[Figure[Any], Arguments]]:
        """The figures that are asked for, each with what is asked of it; UsageError if there is no such part."""
        names = self.asked_scale(args).parts
        figures = [lookup("part", name, self.by_part).figure for name in dict.fromkeys(names)]
        known = dict.fromkeys(name for figure in figures for name in figure.by_name)
        for name in args.explorations:
            lookup("exploration", name, known)
        shared = {field.name: getattr(args, field.name) for field in dataclasses.fields(Arguments)}
        asked = []
        for figure in figures:
            own = tuple(name for name in args.explorations if name in figure.by_name)
            if own or not args.explorations:
                asked.append((figure, figure.arguments(**{**shared, "explorations": own})))
        return asked

    def sweep(self, args: RivalsArguments, out: Path, engine: Engine) -> Sweep:
        """All that was asked for of all parts; raises UsageError if it cannot be run."""
        sweeps = [figure.sweep(own, out, engine) for figure, own in self.asked(args)]
        pieces = [piece for sweep in sweeps for piece in sweep.pieces]
        todo = [piece for sweep in sweeps for piece in sweep.todo]

        def write() -> bool:
            written = [sweep.write() for sweep in sweeps]  # all of them
            return any(written)

        return Sweep(
            headline=f"{self.title}: {len(pieces)} pieces of {len(sweeps)} parts, {len(todo)} to train",
            directory=out / self.name,
            runs=[run for sweep in sweeps for run in sweep.runs],
            pieces=pieces,
            todo=todo,
            unit="pieces",
            write=write,
        )

    def reproduce(self, args: RivalsArguments) -> int:
        """Runs part after part, each as its own command does; returns the exit status."""
        failed = False
        for figure, own in self.asked(args):
            status = figure.reproduce(own)
            if status > 1:  # stopped, or it cannot be run
                return status
            failed = failed or status == 1
        found = self._standings(args.out)
        if any(rows for _, rows in found):
            self._show(found, args.out / self.name)
        return int(failed)

    def plot(self, out: Path) -> int:
        """`paramnoise plot`: reports and draws what the parts' results hold; returns the exit status."""
        found = self._standings(out)
        if not any(rows for _, rows in found):
            raise UsageError(f"no part has results below {out}: run `paramnoise reproduce rivals --out {out}` first")
        if not can_draw():
            raise UsageError(NOT_DRAWN)
        self._show(found, out / self.name)
        return 0

    def report(self, directory: Path, sweep: Sweep | None) -> None:
        """Prints the table, writes summary.csv, and draws the parts that have results."""
        self._show(self._standings(directory.parent), directory)

    def _standings(self, out: Path) -> list[tuple[Part, list[Standing]]]:
        """How every exploration stands, by part, from the results below `out`; it takes seconds."""
        return [(part, part.standings(out)) for part in self.parts]

    def _show(self, found: Sequence[tuple[Part, list[Standing]]], directory: Path) -> None:
        rows = [row for _, own in found for row in own]
        table = Table(*HEADER, title="How explorations stand")
        for part, own in found:
            for line in part.lines(own) if own else ():
                table.add_row(*line)
        table_console(WIDTH).print(table)
        write_standings(rows, directory / SUMMARY)
        print(directory / SUMMARY)

        def to_file(path: Path) -> None:
            from paramnoise.figures.plots import plot_standings

            plot_standings(rows, path)

        draw(directory / f"{self.name}.png", to_file)

    def markdown(self, kind: str, out: Path) -> str:
        """The table of one kind of parts."""
        parts = [part for part in self.parts if part.kind == kind]
        return markdown_table(HEADER, [line for part in parts for line in part.lines(part.standings(out))])


_SPARSE = Group("sparse", SPARSE)
_CONTINUOUS = (Group("dense", rival_figures.RUNNERS), _SPARSE)
PARTS = (
    *(
        Part(figure, "on-policy", (_SPARSE,))
        if figure.methods[0].algorithm in rival_figures.ON_POLICY
        else Part(figure, "continuous", _CONTINUOUS)
        for figure in rival_figures.CONTINUOUS_FIGURES
    ),
    Part(rival_figures.DQN_FIGURE, "discrete", tuple(Group(env, (env,)) for env in ("CartPole-v1", "LunarLander-v3"))),
    Part(rival_figures.CHAIN_FIGURE, "discrete", (Group("chain", tuple(f"Chain-{n}" for n in rival_figures.LENGTHS)),)),
    Part(rival_figures.ATARI_FIGURE, "discrete", tuple(Group(game, (game,)) for game in rival_figures.GAMES)),
)
_ON_CPUS = tuple(part.figure.name for part in PARTS if not part.figure.whole_machine)
RIVALS = register_figure(
    RivalsFigure(
        name="rivals", parts=PARTS, scales={name: RivalsScale(parts=_ON_CPUS) for name in ("smoke", "small", "paper")}
    )
)
