"""Figures: the interface that the command line uses, the options that all of them take, and the registry.

A figure registers where it is defined; so does a user's own, from outside the package.
"""

import abc
import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from paramnoise.figures.figure_sweep import Sweep, run_sweep
from paramnoise.parallel.engine import Engine
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.validation import UsageError, lookup, require

RESULTS = "results.csv"
"""Below a figure's directory: what its runs came to."""
NOT_DRAWN = "no figure, since matplotlib is not installed: pip install matplotlib, then draw it with paramnoise plot"

Scale = TypeVar("Scale")
ScaleName = Literal["smoke", "small", "paper"]


@dataclasses.dataclass(frozen=True)
class Method:
    """An agent with an exploration, and the settings that a figure compares: one panel or one line of it."""

    algorithm: str
    """The agent's name."""
    exploration: str
    """The exploration's name."""
    label: str
    """What the figure calls it."""
    _: dataclasses.KW_ONLY
    variant: str = ""
    """In names, what sets it apart from the figure's other methods of this exploration, such as delta-0.01."""
    agent: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    """Settings of the agent that are not the preset's."""
    exploration_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    """Settings of the exploration that are not the preset's."""
    run: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    """Settings of the run, in place of the scale's."""

    @property
    def name(self) -> str:
        """The exploration with its variant, in paths and in the column exploration of results.csv."""
        return f"{self.exploration}-{self.variant}" if self.variant else self.exploration

    def config(
        self,
        env: str,
        env_kwargs: Mapping[str, Any] | None = None,
        *,
        agent: Mapping[str, Any] | None = None,
        **run: Any,
    ) -> RunConfig:
        """A run of this method: the preset, then the scale's settings given here, then the method's own."""
        return make_config(
            self.algorithm,
            env,
            env_kwargs,
            exploration=self.exploration,
            exploration_settings=self.exploration_settings,
            agent={**(agent or {}), **self.agent},
            **{**run, **self.run},
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What `paramnoise reproduce` takes, whatever the figure."""

    scale: ScaleName = "small"
    """How much of the figure; paper is all of it."""
    explorations: tuple[str, ...] = ()
    """Some of the figure's explorations, or agents in a figure that compares agents; all by default."""
    seeds: int | None = None
    """Seeds per task and exploration, in place of the scale's."""
    workers: int | None = None
    """Runs at once, each on its share of the cores; by default one per core, or per CPU of the Ray cluster."""
    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or tasks on a Ray cluster whose nodes share --out."""
    ray_address: str | None = None
    """The Ray cluster to join, such as auto or HOST:PORT; by default one is started on this machine."""
    out: Path = Path("runs")
    """Where runs, results.csv and the figure are kept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure(abc.ABC, Generic[Scale]):
    """What to run, and how to name, report and draw it."""

    name: str
    """On the command line, and of its directory."""
    paper: str = ""
    """Where the paper shows it; empty for a figure of one's own."""
    methods: tuple[Method, ...]
    scales: dict[str, Scale]
    """How much of it to run, by the names smoke, small and paper; small is the default."""

    arguments: ClassVar[type[Arguments]] = Arguments
    """The options of `paramnoise reproduce NAME`."""
    whole_machine: ClassVar[bool] = False
    """Whether a piece of it fills a machine."""

    def __post_init__(self) -> None:
        if len(self.by_name) < len(self.methods):
            raise UsageError(f"two methods of the figure {self.name} have one name: give one of them a variant")

    @property
    @abc.abstractmethod
    def shows(self) -> str:
        """What the figure shows, in a few words."""

    @abc.abstractmethod
    def sweep(self, args: Any, out: Path, engine: Engine) -> Sweep:
        """What was asked for; raises UsageError if it cannot be run.

        Args:
            args: an object of the class `arguments`.
            out: where figures are kept.
            engine: what will run the sweep.
        """

    @abc.abstractmethod
    def report(self, directory: Path, sweep: Sweep | None) -> None:
        """Prints and draws the results in the figure's directory; `sweep` is what led to them, if that was just run."""

    @property
    def help(self) -> str:
        """A line on its command."""
        return f"Reproduce {self.paper or self.name}: {self.shows}. Explorations: {', '.join(self.by_name)}."

    @property
    def title(self) -> str:
        """The figure in lines for people."""
        return f"{self.paper} ({self.name})" if self.paper else self.name

    @property
    def by_name(self) -> dict[str, Method]:
        """The methods by what they are called."""
        return {self.name_of(method): method for method in self.methods}

    def name_of(self, method: Method) -> str:
        """What a method is called in paths and tables: its own name, or its agent's where a figure compares agents."""
        names = [each.name for each in self.methods]
        return method.name if len(set(names)) == len(names) else method.algorithm

    def reproduce(self, args: Any) -> int:
        """`paramnoise reproduce`: runs what is not on disk, reports and draws; returns the exit status."""
        engine = Engine(
            name=args.engine,
            workers=args.workers,
            ray_address=args.ray_address,
            whole_machine=self.whole_machine or getattr(args, "side_by_side", False),
        )
        sweep = self.sweep(args, engine.place(args.out), engine)
        status = run_sweep(sweep, engine)
        if sweep.write():
            self.report(sweep.directory, sweep)
        else:
            print("no run has a result yet")
        return status

    def plot(self, out: Path) -> int:
        """`paramnoise plot`: reports and draws what results.csv holds; returns the exit status."""
        path = out / self.name / RESULTS
        if not path.exists():
            raise UsageError(f"{path} does not exist: run `paramnoise reproduce {self.name} --out {out}` first")
        if not can_draw():
            raise UsageError(NOT_DRAWN)
        self.report(path.parent, None)
        return 0

    def asked_methods(self, args: Arguments) -> Sequence[Method]:
        """The methods that the arguments name; all if they name none."""
        return [lookup("exploration", name, self.by_name) for name in dict.fromkeys(args.explorations)] or self.methods

    def asked_scale(self, args: Arguments) -> Scale:
        """The scale that the arguments name, with the values that they put in place of its own."""
        scale: Any = lookup("scale", args.scale, self.scales)
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(scale):
            value = getattr(args, field.name, None)
            if value is None or value == ():
                continue
            if isinstance(value, int) and not isinstance(value, bool):
                require(value >= 1, field.name, value, "at least 1")
            changes[field.name] = value
        return dataclasses.replace(scale, **changes)


FIGURES: dict[str, Figure[Any]] = {}
"""Every figure by its name."""
AnyFigure = TypeVar("AnyFigure", bound=Figure[Any])


def register_figure(figure: AnyFigure) -> AnyFigure:
    """Makes a figure known by name to `paramnoise reproduce` and `paramnoise plot`; returns it."""
    FIGURES[figure.name] = figure
    return figure


def can_draw() -> bool:
    """Whether matplotlib is there; it is slow to import, and to run a figure on another machine it is not needed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(path: Path, to_file: Callable[[Path], None]) -> None:
    """Draws a figure to a file and prints its path, or says that nothing is there to draw it with."""
    if not can_draw():
        print(NOT_DRAWN)
        return
    to_file(path)
    print(path)
