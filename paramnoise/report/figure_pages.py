"""A page for each directory of results: its charts, its tables, its claims, and how it was made.

What a directory holds is told by the columns of its results.csv; what its methods are called, by the registered figure
of its name, if there is one.
"""

import csv
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from paramnoise.claims import Outcome as Judged
from paramnoise.envs.atari_frames import frames_of
from paramnoise.envs.base import env_label
from paramnoise.figures import atari_results, chain_results, curve_results
from paramnoise.figures.atari_figure import SCORES
from paramnoise.figures.atari_scores import DQN_FRAMES, ES_FRAMES, PUBLISHED
from paramnoise.figures.base import FIGURES, RESULTS, Method
from paramnoise.figures.chain_results import Outcome, medians
from paramnoise.figures.colours import COLOURS
from paramnoise.figures.curve_distances import DISTANCES, Distance, read_distances
from paramnoise.figures.curve_results import Point
from paramnoise.report import notes, tables
from paramnoise.report.panels import (
    MEDIAN,
    Centre,
    Chart,
    Key,
    Line,
    Panel,
    Trace,
    curve_panel,
    level,
    method_keys,
    method_of,
    rounded,
)
from paramnoise.report.tables import Table

STEPS, RETURN = "environment steps", "noise-free return"
DOTTED = (2, 4)
DQN_MILLIONS, ES_MILLIONS = f"{DQN_FRAMES // 10**6}M frames", f"{ES_FRAMES // 10**6:,}M frames"
PAPER_KEYS = {
    "parameter": Key("paper parameter", f"Paper: parameter, {DQN_MILLIONS}", COLOURS["parameter"], DOTTED),
    "epsilon_greedy": Key(
        "paper epsilon-greedy", f"Paper: epsilon-greedy, {DQN_MILLIONS}", COLOURS["epsilon-greedy"], DOTTED
    ),
    "es": Key("paper es", f"Paper: ES, {ES_MILLIONS}", COLOURS["es"], DOTTED),
}
"""How published scores are drawn, by the name of the field that holds them."""
DELTA = Key("delta", "Its threshold delta", "#808080", DOTTED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FigurePage:
    """What the page of one figure holds."""

    name: str
    """That of the directory."""
    title: str
    shows: str
    """In a few words."""
    keys: list[Key] = dataclasses.field(default_factory=list)
    charts: list[Chart] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    claims: list[Judged] = dataclasses.field(default_factory=list)
    how_title: str = ""
    how: str = ""
    """How the results were made, in HTML."""
    command: str = ""
    """What makes them anew."""
    files: list[Path] = dataclasses.field(default_factory=list)
    """To download."""


def figure_pages(results: Path, outcomes: Sequence[Judged]) -> list[FigurePage]:
    """The pages of all directories that hold results, the registered figures first, in their order."""
    places = {name: place for place, name in enumerate(FIGURES)}
    found = sorted(
        (path.parent for path in results.glob(f"*/{RESULTS}")),
        key=lambda directory: (places.get(directory.name, len(places)), directory.name),
    )
    return [_page(directory, outcomes) for directory in found]


def _page(directory: Path, outcomes: Sequence[Judged]) -> FigurePage:
    name = directory.name
    figure = FIGURES.get(name)
    readme = directory / "README.md"
    text = readme.read_text() if readme.exists() else ""
    page = FigurePage(
        name=name,
        title=figure.title if figure else name,
        shows=figure.shows if figure else "",
        claims=[outcome for outcome in outcomes if outcome.claim.figure == name],
        how_title=notes.title_of(text),
        how=notes.to_html(text),
        command=f"paramnoise reproduce {name}" if figure else "",
        files=sorted(directory.glob("*.csv")),
    )
    columns = _columns(directory / RESULTS)
    if {"length", "episodes", "solved"} <= columns:
        return _with_chain(page, directory)
    if {"env", "frames", "return"} <= columns:
        return _with_games(page, directory)
    if set(curve_results.COLUMNS) <= columns:
        return _with_curves(page, directory)
    return dataclasses.replace(page, tables=[tables.csv_table(directory / RESULTS)])


def _columns(path: Path) -> set[str]:
    with path.open(newline="") as file:
        return set(next(csv.reader(file), ()))


def _methods(name: str, found: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Method]:
    """The methods of a figure that have results, by agent and name: those that it knows first, in its order."""
    figure = FIGURES.get(name)
    known = {(method.algorithm, method.name): method for method in (figure.methods if figure else ())}
    present = dict.fromkeys(found)
    own = {pair: method for pair, method in known.items() if pair in present}
    return own | {pair: method_of(*pair) for pair in present if pair not in own}


def _named(methods: dict[tuple[str, str], Method]) -> dict[tuple[str, str], str]:
    """What each method is called on a page: by its name, or its agent's too where that alone is not enough."""
    names = [name for _, name in methods]
    return {pair: pair[1] if names.count(pair[1]) == 1 else " ".join(pair) for pair in methods}


def _with_curves(page: FigurePage, directory: Path) -> FigurePage:
    points = curve_results.read_results(directory / RESULTS)
    methods = _methods(page.name, ((point.algorithm, point.exploration) for point in points))
    names = _named(methods)
    keys = method_keys(list(methods.values()), names.values())
    labels = {key.name: key.label for key in keys}
    figure = FIGURES.get(page.name)
    thresholds = getattr(figure, "thresholds", {})
    points = [point._replace(exploration=names[point.algorithm, point.exploration]) for point in points]
    distances = [
        each._replace(exploration=names[each.algorithm, each.exploration])
        for each in read_distances(directory / DISTANCES)
    ]
    charts = [Chart("Learning curves", _panels(points, RETURN, log_x=bool(thresholds)))]
    if distances:
        charts.append(Chart("Distance between perturbed and clean policy", _distance_panels(distances)))
        keys = [*keys, DELTA]
    if thresholds:
        raw = curve_results.read_results(directory / RESULTS)
        shown = [tables.efficiency_table(raw, thresholds)]
    else:
        shown = tables.curve_tables(points, getattr(figure, "subjects", ("parameter",)), labels)
    return dataclasses.replace(page, keys=keys, charts=charts, tables=shown)


def _panels(points: Sequence[Point], y_label: str, *, log_x: bool = False) -> list[Panel]:
    envs = dict.fromkeys(point.env for point in points)
    return [
        curve_panel((p for p in points if p.env == env), env_label(env), STEPS, y_label, log_x=log_x) for env in envs
    ]


def _distance_panels(distances: Sequence[Distance]) -> list[Panel]:
    panels = _panels([Point(*each[:5], each.distance) for each in distances], "distance")
    deltas = {
        env_label(env): {each.delta for each in distances if each.env == env}
        for env in {each.env for each in distances}
    }
    return [
        panel._replace(lines=[*panel.lines, *(level(DELTA.name, delta, panel.x) for delta in deltas[panel.title])])
        for panel in panels
    ]


def _with_games(page: FigurePage, directory: Path) -> FigurePage:
    points = atari_results.carried(curve_results.read_results(directory / RESULTS))
    methods = _methods(page.name, ((point.algorithm, point.exploration) for point in points))
    keys = [*method_keys(list(methods.values()), [name for _, name in methods]), *PAPER_KEYS.values()]
    points = [point._replace(step=frames_of(point.step)) for point in points]
    panels = [
        _with_published(curve_panel((p for p in points if p.env == env), env, "frames", "score while exploring"), env)
        for env in dict.fromkeys(point.env for point in points)
    ]
    scores = atari_results.read_scores(directory / SCORES)
    shown = [tables.score_table(scores, list(methods.values()))] if scores else []
    return dataclasses.replace(page, keys=keys, charts=[Chart("Scores", panels)], tables=shown)


def _with_published(panel: Panel, game: str) -> Panel:
    """The panel with the paper's numbers as lines."""
    published = PUBLISHED.get(game)
    if published is None:
        return panel
    lines = [level(key.name, getattr(published, field), panel.x) for field, key in PAPER_KEYS.items()]
    return panel._replace(lines=[*panel.lines, *lines])


def _with_chain(page: FigurePage, directory: Path) -> FigurePage:
    outcomes = chain_results.read_results(directory / RESULTS)
    methods = _methods(page.name, ((each.algorithm, each.exploration) for each in outcomes))
    keys = method_keys(list(methods.values()), [name for _, name in methods])
    labels = {key.name: key.label for key in keys}
    x = sorted({each.length for each in outcomes})
    lines = [_chain_line(name, [each for each in outcomes if each.exploration == name], x) for name in labels]
    budget = max(each.episodes for each in outcomes)
    title = f"Solved within {budget:,} episodes: full dots"
    panel = Panel(title, "states of the chain", "episodes until solved", list(x), lines, log_y=True)
    chart = Chart("Episodes until solved", [panel])
    return dataclasses.replace(page, keys=keys, charts=[chart], tables=[tables.chain_table(outcomes, labels)])


def _chain_line(name: str, outcomes: list[Outcome], x: list[int]) -> Line:
    cells = {cell.length: cell for cell in medians(outcomes)}
    centre = [rounded(cells[length].episodes) if length in cells else None for length in x]
    nothing: list[float | None] = [None] * len(x)
    runs = {(each.seed, each.length): each for each in outcomes}
    traces = []
    for seed in sorted({each.seed for each in outcomes}):
        own = [runs.get((seed, length)) for length in x]
        for solved, mark, word in ((True, "full", "solved"), (False, "hollow", "not solved")):
            values: list[float | None] = [each.episodes if each and each.solved == solved else None for each in own]
            if any(value is not None for value in values):
                traces.append(Trace(f"seed {seed}, {word}", values, mark))
    counts = [cells[length].seeds if length in cells else 0 for length in x]
    return Line(name, {MEDIAN: Centre(centre, nothing, nothing)}, traces, counts)
