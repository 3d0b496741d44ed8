"""The table of Atari scores: ours, the paper's (table "full-comparison"), a random player's and a human's."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.table import Table

from paramnoise.envs.atari_frames import frames_of
from paramnoise.figures.atari_results import Score
from paramnoise.figures.base import Method
from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_summary import compare, table_console
from paramnoise.markdown import markdown_table
from paramnoise.runs.checkpoint import write_atomically

ES_FRAMES, DQN_FRAMES = 1_000_000_000, 40_000_000
"""The frames of training behind the paper's columns."""


class Published(NamedTuple):
    """What others report on a game, noise-free."""

    es: float
    """Evolution strategies, as the paper quotes Salimans et al. (2017)."""
    epsilon_greedy: float
    """The paper's DQN; the median over three seeds."""
    parameter: float
    """The paper's DQN with parameter noise."""
    random: float
    human: float
    """A professional games tester."""


PUBLISHED = {
    "Alien": Published(994.0, 1535.0, 2070.0, 227.8, 7127.7),
    "Amidar": Published(112.0, 281.0, 403.5, 5.8, 1719.5),
    "BankHeist": Published(225.0, 510.0, 805.0, 14.2, 753.1),
    "BeamRider": Published(744.0, 8184.0, 7884.0, 363.9, 16926.5),
    "Breakout": Published(9.5, 406.0, 390.5, 1.7, 30.5),
    "Enduro": Published(95.0, 1094.0, 1672.5, 0.0, 860.5),
    "Freeway": Published(31.0, 32.0, 31.5, 0.0, 29.6),
    "Frostbite": Published(370.0, 250.0, 1310.0, 65.2, 4334.7),
    "Gravitar": Published(805.0, 300.0, 250.0, 173.0, 3351.4),
    "MontezumaRevenge": Published(0.0, 0.0, 0.0, 0.0, 4753.3),
    "Pitfall": Published(0.0, -73.0, -100.0, -229.4, 6463.7),
    "Pong": Published(21.0, 21.0, 20.0, -20.7, 14.6),
    "PrivateEye": Published(100.0, 133.0, 100.0, 24.9, 69571.3),
    "Qbert": Published(147.5, 7625.0, 7525.0, 163.9, 13455.0),
    "Seaquest": Published(1390.0, 8335.0, 8920.0, 68.4, 42054.7),
    "Solaris": Published(2090.0, 720.0, 400.0, 1236.3, 12326.7),
    "SpaceInvaders": Published(678.5, 1000.0, 1205.0, 148.0, 1668.7),
    "Tutankham": Published(130.3, 109.5, 181.0, 11.4, 167.6),
    "Venture": Published(760.0, 0.0, 0.0, 0.0, 1187.5),
    "WizardOfWor": Published(3480.0, 2350.0, 1850.0, 563.5, 4756.5),
    "Zaxxon": Published(6380.0, 8100.0, 8050.0, 32.5, 9173.3),
}
"""ES and the paper's DQN from the paper's table. Random and human from DQN Zoo (DeepMind, `dqn_zoo/atari_data.py`):
means over games with up to 30 no-ops at the start and at most 108,000 frames, as ours have."""


class Row(NamedTuple):
    """A game of the table."""

    game: str
    frames: int
    """Of training, at which our methods are compared: the last that all runs of the game were evaluated after."""
    last_frames: int
    """The furthest that any run got."""
    seeds: tuple[int, ...]
    """Of each method."""
    ours: tuple[float, ...]
    """By method: the median over seeds of the median game of an evaluation; NaN for one that was not run."""
    published: Published | None


def rows(scores: Iterable[Score], methods: Sequence[Method]) -> list[Row]:
    """The games in the order in which they come; one whose runs have no evaluation at a common step is left out."""
    points = [Point(s.env, "dqn", s.exploration, s.seed, s.step, s.median) for s in scores]
    names = [method.name for method in methods]
    return [
        Row(
            env,
            frames_of(task.step),
            frames_of(task.last_step),
            tuple(len(task.scores.get(name, ())) for name in names),
            tuple(float(np.median(task.scores[name])) if name in task.scores else math.nan for name in names),
            PUBLISHED.get(env),
        )
        for env, task in compare(points).items()
    ]


def report(scores: Sequence[Score], methods: Sequence[Method], path: Path) -> None:
    """Prints the table, and writes it to `path` as Markdown."""
    found = rows(scores, methods)
    header, lines = columns_of(methods), [cells_of(row) for row in found]
    # Where a name may be broken: a table has little room for it.
    broken = [name.replace("-greedy", "- greedy").replace("-two-heads", ", two heads") for name in header]
    table = Table(*broken, title="Noise-free scores: median over seeds of an evaluation's median game")
    for column in table.columns[1:]:
        column.justify = "right"
    for line in lines:
        table.add_row(*line)
    table_console().print(table)
    for env in dict.fromkeys(score.env for score in scores if score.env not in {row.game for row in found}):
        print(f"{env}: not in the table, since its runs have no evaluation at the same step")
    print(NOTE)
    text = f"{markdown_table(header, lines, right=header[1:])}\n\n{NOTE[0].upper()}{NOTE[1:]}.\n"
    write_atomically(path, lambda file: file.write(text.encode()))
    print(path)


NOTE = (
    f"our scores are after the frames in their row, the paper's after {DQN_FRAMES // 10**6}M "
    f"(ES: {ES_FRAMES // 10**6:,}M); fewer frames do not compare with more"
)


def columns_of(methods: Sequence[Method]) -> list[str]:
    """The names of the table's columns."""
    ours = [f"ours: {method.name}" for method in methods]
    paper = [
        f"paper: ES, {_millions(ES_FRAMES)}",
        f"paper: epsilon-greedy, {_millions(DQN_FRAMES)}",
        f"paper: parameter, {_millions(DQN_FRAMES)}",
    ]
    return ["game", "our frames", "seeds", *ours, *paper, "random", "human"]


def cells_of(row: Row) -> list[str]:
    """A game's row of the table, as text."""
    cut = f" of {_millions(row.last_frames)}" if row.frames < row.last_frames else ""
    counts = sorted({count for count in row.seeds if count})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    published = row.published or (math.nan,) * len(Published._fields)
    return [row.game, f"{_millions(row.frames)}{cut}", seeds, *map(_number, (*row.ours, *published))]


def _millions(frames: int) -> str:
    return f"{frames / 1e6:,g}M"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.1f}".removesuffix(".0")
