"""The chain figure (fig. "chain-plot", app. A.3): episodes until solved, against the chain's length.

A cell is one length and one method, its seeds side by side in one compiled program. A finished seed is kept in its run
directory and never run again.
"""

import csv
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paramnoise.agents.base import find_agent
from paramnoise.envs.chain import chain, horizon, optimal_return
from paramnoise.figures.figure import Figure, Method
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.config import RunConfig, make_config
from paramnoise.runs.directory import RunDirectory, csv_text
from paramnoise.validation import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainScale:
    """How much of the chain figure to run."""

    lengths: tuple[int, ...]
    """The lengths of the chain."""
    seeds: int
    """Seeds per cell, from 0."""
    episodes: int
    """Episodes after which an unsolved run ends."""


CHAIN = Figure(
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
        "paper": ChainScale(lengths=tuple(range(5, 101, 5)), seeds=3, episodes=2_000),
    },
)
SOLVED_AFTER = 100
"""Consecutive noise-free rollouts at the optimum that count as solved."""
EPISODES_PER_CALL = 50
"""Episodes in one call of the compiled program; between calls a cell can stop."""
TOLERANCE = 1e-4
"""How far a float32 sum of rewards may be from the optimum."""


class Outcome(NamedTuple):
    """A row of results.csv."""

    length: int
    algorithm: str
    exploration: str
    seed: int
    episodes: int
    """Episodes until solved; the budget if it was not."""
    solved: bool


class Cell(NamedTuple):
    """One length and one method, with its seeds."""

    length: int
    method: Method
    seeds: tuple[int, ...]
    episodes: int
    """The budget."""

    @property
    def name(self) -> str:
        """The cell in a line of progress."""
        return f"Chain-{self.length} {self.method.exploration}"

    def config(self, seed: int) -> RunConfig:
        """The config of one seed's run."""
        return make_config(
            self.method.algorithm,
            "paramnoise/Chain-v0",
            {"length": self.length},
            exploration=self.method.exploration,
            seed=seed,
            steps=self.episodes * horizon(self.length),
            eval_every=horizon(self.length),
            eval_episodes=1,
        )

    def directory(self, out: Path, seed: int) -> RunDirectory:
        """Where one seed's run is kept."""
        return RunDirectory(out / CHAIN.name / f"Chain-{self.length}" / self.method.exploration / f"seed-{seed}")

    def outcome(self, out: Path, seed: int) -> Outcome | None:
        """What came out of one seed's run; None if it has not been run to this budget."""
        summary = self.directory(out, seed).summary()
        if summary is None or not (summary["solved"] or summary["episodes"] >= self.episodes):
            return None
        solved = summary["solved"] and summary["episodes"] <= self.episodes
        episodes = min(summary["episodes"], self.episodes)
        return Outcome(self.length, self.method.algorithm, self.method.exploration, seed, episodes, solved)


def cells(lengths: Iterable[int], methods: Iterable[Method], seeds: int, episodes: int) -> list[Cell]:
    """The grid, the longest chains first, so that no long cell is left for the end."""
    methods = tuple(methods)
    return [
        Cell(length, method, tuple(range(seeds)), episodes)
        for length in sorted(lengths, reverse=True)
        for method in reversed(methods)
    ]


def run_cell(cell: Cell, out: Path, should_stop: Callable[[], bool] = lambda: False) -> bool:
    """Runs the seeds of a cell that are not finished; returns False if it was stopped before the end.

    All seeds of the cell run, so that a result never depends on which of them were left.
    """
    if all(cell.outcome(out, seed) for seed in cell.seeds):
        return True
    config = cell.config(cell.seeds[0])
    env = chain(cell.length)
    learner = find_agent(config.algorithm).build(config.agent, env.name, env.observation_space, env.action_space)
    started = time.perf_counter()
    curves: list[dict[str, np.ndarray]] = []
    loop = CompiledLoop(learner, config.exploration, env, seeds=cell.seeds, eval_every=config.eval_every)
    returns = np.zeros((0, len(cell.seeds)))
    solved: list[int | None] = []
    while len(returns) < cell.episodes and not (len(returns) and all(solved)):
        if should_stop():
            return False
        rows = loop.run(EPISODES_PER_CALL)
        curves.append({**rows, "wall_time": np.full(rows["step"].shape, time.perf_counter() - started)})
        returns = np.concatenate([rows["eval_return_mean"] for rows in curves])[: cell.episodes]
        solved = [solved_at(returns[:, i], optimal_return(cell.length)) for i in range(len(cell.seeds))]
    columns = {name: np.concatenate([rows[name] for rows in curves]) for name in curves[0]}
    for i, seed in enumerate(cell.seeds):
        _write(cell, out, seed, {name: values[:, i] for name, values in columns.items()}, solved[i])
    return True


def solved_at(returns: Sequence[float] | np.ndarray, optimum: float) -> int | None:
    """The number of episodes after which the last `SOLVED_AFTER` rollouts were all optimal; None if never."""
    streak = 0
    for episode, value in enumerate(returns, start=1):
        streak = streak + 1 if value >= optimum - TOLERANCE else 0
        if streak == SOLVED_AFTER:
            return episode
    return None


def _write(cell: Cell, out: Path, seed: int, columns: dict[str, np.ndarray], solved: int | None) -> None:
    """Writes one seed's run directory; the summary, which marks it as finished, comes last."""
    directory = cell.directory(out, seed)
    directory.claim(cell.config(seed), resume=directory.exists())
    episodes = solved or cell.episodes
    rows = [{name: values[i].item() for name, values in columns.items()} for i in range(episodes)]
    for row in rows:
        row["steps_per_second"] = row["step"] / row["wall_time"]
    directory.write_rows(rows)
    directory.write_summary(
        {
            "status": "finished",
            "steps": rows[-1]["step"],
            "episodes": episodes,
            "solved": solved is not None,
            "final_eval_return_mean": rows[-1]["eval_return_mean"],
            "best_eval_return_mean": max(row["eval_return_mean"] for row in rows),
            "wall_time": rows[-1]["wall_time"],
        }
    )


def collect(grid: Iterable[Cell], out: Path) -> list[Outcome]:
    """The outcomes of all finished runs, by length, method and seed."""
    order = {method: i for i, method in enumerate(CHAIN.methods)}
    ordered = sorted(grid, key=lambda cell: (cell.length, order[cell.method]))
    found = [cell.outcome(out, seed) for cell in ordered for seed in cell.seeds]
    return [outcome for outcome in found if outcome is not None]


def write_results(outcomes: Iterable[Outcome], path: Path) -> None:
    """Writes results.csv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = [outcome._asdict() for outcome in outcomes]
    text = csv_text(Outcome._fields, rows)
    write_atomically(path, lambda file: file.write(text.encode()))


def read_results(path: Path) -> list[Outcome]:
    """Reads results.csv, or raises UsageError if it holds no results of the chain."""
    try:
        outcomes = _parse_results(path)
    except (KeyError, ValueError, TypeError):
        raise UsageError(f"{path} does not hold results of the chain") from None
    if not outcomes:
        raise UsageError(f"{path} holds no results yet")
    return outcomes


def _parse_results(path: Path) -> list[Outcome]:
    with path.open(newline="") as file:
        return [
            Outcome(
                int(row["length"]),
                row["algorithm"],
                row["exploration"],
                int(row["seed"]),
                int(row["episodes"]),
                row["solved"] == "True",
            )
            for row in csv.DictReader(file)
        ]


class Median(NamedTuple):
    """The seeds of one cell in one number."""

    length: int
    exploration: str
    episodes: float
    solved: bool
    """Whether the median seed solved it."""
    solved_seeds: int
    seeds: int


def medians(outcomes: Iterable[Outcome]) -> list[Median]:
    """The median number of episodes of each cell; an unsolved seed counts as worse than any solved one."""
    groups: dict[tuple[int, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.length, outcome.exploration), []).append(outcome)
    return [
        Median(
            length,
            exploration,
            float(np.median([outcome.episodes for outcome in group])),
            2 * sum(outcome.solved for outcome in group) > len(group),
            sum(outcome.solved for outcome in group),
            len(group),
        )
        for (length, exploration), group in groups.items()
    ]
