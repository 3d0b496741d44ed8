"""A cell of the chain figure: one length and one method, its seeds side by side in one compiled program.

A finished seed is kept in its run directory and never run again.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from paramnoise.envs.chain import chain, horizon, optimal_return
from paramnoise.figures.base import Method
from paramnoise.figures.chain_results import Outcome, medians
from paramnoise.figures.pieces import Reporter
from paramnoise.loops.compiled import CompiledLoop
from paramnoise.parallel.sweep import Line
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory

SOLVED_AFTER = 100
"""Consecutive noise-free rollouts at the optimum that count as solved."""
EPISODES_PER_CALL = 50
"""Episodes in one call of the compiled program; between calls a cell can stop."""
TOLERANCE = 1e-4
"""How far a float32 sum of rewards may be from the optimum."""


class Cell(NamedTuple):
    """One length and one method, with its seeds."""

    folder: Path
    """The figure's directory."""
    length: int
    method: Method
    seeds: tuple[int, ...]
    episodes: int
    """The budget."""

    @property
    def name(self) -> str:
        """The cell in a line of progress."""
        return f"Chain-{self.length} {self.method.name}"

    @property
    def steps(self) -> int:
        """The steps of its budget."""
        return self.episodes * horizon(self.length)

    def config(self, seed: int) -> RunConfig:
        """The config of one seed's run."""
        return self.method.config(
            "paramnoise/Chain-v0",
            {"length": self.length},
            seed=seed,
            steps=self.steps,
            eval_every=horizon(self.length),
            eval_episodes=1,
        )

    def directory(self, seed: int) -> RunDirectory:
        """Where one seed's run is kept."""
        return RunDirectory(self.folder / f"Chain-{self.length}" / self.method.name / f"seed-{seed}")

    def outcome(self, seed: int) -> Outcome | None:
        """What came out of one seed's run; None if it has not been run to this budget."""
        summary = self.directory(seed).summary()
        if summary is None or not (summary["solved"] or summary["episodes"] >= self.episodes):
            return None
        solved = summary["solved"] and summary["episodes"] <= self.episodes
        episodes = min(summary["episodes"], self.episodes)
        return Outcome(self.length, self.method.algorithm, self.method.name, seed, episodes, solved)

    def outcomes(self) -> list[Outcome]:
        """What came out of the seeds that are finished."""
        return [outcome for seed in self.seeds if (outcome := self.outcome(seed))]

    def is_finished(self) -> bool:
        """Whether all seeds were run to this budget."""
        return len(self.outcomes()) == len(self.seeds)

    def steps_done(self) -> int:
        """All steps or none, since a cell that was stopped begins anew."""
        return self.steps if self.is_finished() else 0

    def stopped_after(self) -> int:
        """A cell that was stopped leaves nothing."""
        return 0

    def result(self) -> str:
        """How many seeds solved it, in words."""
        (median,) = medians(self.outcomes())
        return f"{median.solved_seeds} of {median.seeds} seeds solved it, median {median.episodes:g} episodes"

    def train(self, line: Line) -> bool:
        """Runs the cell unless it is finished; returns False if it was stopped before the end.

        All seeds of the cell run, so that a result never depends on which of them were left.
        """
        if self.is_finished():
            return True
        config = self.config(self.seeds[0])
        env = chain(self.length)
        learner = config.made_by.build(config.agent, env.name, env.observation_space, env.action_space)
        started, reporter = time.perf_counter(), Reporter(line, len(self.seeds))
        curves: list[dict[str, np.ndarray]] = []
        loop = CompiledLoop(learner, config.exploration, env, seeds=self.seeds, eval_every=config.eval_every)
        returns = np.zeros((0, len(self.seeds)))
        solved: list[int | None] = []
        while len(returns) < self.episodes and not (len(returns) and all(solved)):
            if reporter.should_stop():
                return False
            rows = loop.run(EPISODES_PER_CALL)
            curves.append({**rows, "wall_time": np.full(rows["step"].shape, time.perf_counter() - started)})
            returns = np.concatenate([rows["eval_return_mean"] for rows in curves])[: self.episodes]
            solved = [solved_at(returns[:, i], optimal_return(self.length)) for i in range(len(self.seeds))]
            for value in returns[-1].tolist():
                reporter.on_row({"eval_return_mean": value})
            reporter.on_step(len(returns) * horizon(self.length))
        columns = {name: np.concatenate([rows[name] for rows in curves]) for name in curves[0]}
        for i, seed in enumerate(self.seeds):
            self._write(seed, {name: values[:, i] for name, values in columns.items()}, solved[i])
        return True

    def _write(self, seed: int, columns: dict[str, np.ndarray], solved: int | None) -> None:
        """Writes one seed's run directory; the summary, which marks it as finished, comes last."""
        directory = self.directory(seed)
        directory.claim(self.config(seed), resume=directory.exists())
        episodes = solved or self.episodes
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


def solved_at(returns: Sequence[float] | np.ndarray, optimum: float) -> int | None:
    """The number of episodes after which the last `SOLVED_AFTER` rollouts were all optimal; None if never."""
    streak = 0
    for episode, value in enumerate(returns, start=1):
        streak = streak + 1 if value >= optimum - TOLERANCE else 0
        if streak == SOLVED_AFTER:
            return episode
    return None
