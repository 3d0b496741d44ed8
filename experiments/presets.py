"""Measures the presets of Gymnasium's tasks: each with parameter noise and with the usual exploration, over seeds.

    python experiments/presets.py run --out DIR --workers 2
    python experiments/presets.py page

A run is what `paramnoise train AGENT --env TASK --exploration KIND --seed S` does, in DIR/presets/TASK/KIND/seed-S, and
then 100 noise-free episodes of the policy that it ended with. The same command goes on where the last one was.
"""

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym

import paramnoise as pn
from paramnoise.figures.curve_runs import CurveRun, check_envs
from paramnoise.figures.figure_sweep import Sweep, run_sweep
from paramnoise.markdown import markdown_table, with_table
from paramnoise.parallel.engine import Engine
from paramnoise.parallel.process import cores
from paramnoise.parallel.sweep import Line
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.config import make_config
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError, lookup

NAME, RESULTS, EVALUATION = "presets", "results.csv", "evaluation.json"
"""Below --out; below that; and in each run's directory, once its last policy is evaluated."""
REPOSITORY = Path(__file__).parent.parent
MEASURED = REPOSITORY / "results" / NAME / RESULTS
PAGE = REPOSITORY / "docs" / "presets.md"
EPISODES = 100
"""Of the last evaluation, as many as Gymnasium's thresholds are said for."""
EVALUATION_SEED = 0
"""That of `paramnoise evaluate`, whose episodes are then the same."""


class Task(NamedTuple):
    """A task, and what its preset is measured with."""

    env: str
    agent: str
    explorations: tuple[str, ...]
    """Parameter noise, and the usual ones of such tasks."""
    seeds: int = 5

    @property
    def threshold(self) -> float:
        """The return that counts as solved: Gymnasium's; for Pendulum, of which Gymnasium says none, ours."""
        stated = gym.spec(self.env).reward_threshold
        return -200.0 if stated is None else float(stated)

    def command(self, exploration: str) -> str:
        """What trains one seed."""
        return f"paramnoise train {self.agent} --env {self.env} --exploration {exploration}"

    def runs(self, folder: Path) -> list["PresetRun"]:
        """All runs of the task, a seed with each exploration before the next seed."""
        return [
            PresetRun(
                CurveRun(
                    folder,
                    exploration,
                    exploration,
                    make_config(self.agent, self.env, exploration=exploration, seed=seed),
                )
            )
            for seed in range(self.seeds)
            for exploration in self.explorations
        ]


TASKS = {
    task.env: task
    for task in (
        Task("CartPole-v1", "dqn", ("parameter", "epsilon-greedy")),
        Task("Pendulum-v1", "ddpg", ("parameter", "gaussian")),
        Task("MountainCar-v0", "dqn", ("parameter", "epsilon-greedy"), seeds=10),
        Task("MountainCarContinuous-v0", "ddpg", ("parameter", "ou"), seeds=10),
        Task("Acrobot-v1", "dqn", ("parameter", "epsilon-greedy")),
        Task("LunarLander-v3", "dqn", ("parameter", "epsilon-greedy")),
        Task("LunarLanderContinuous-v3", "td3", ("parameter", "gaussian")),
        Task("BipedalWalker-v3", "td3", ("parameter", "gaussian")),
    )
}
"""By id, about the cheapest first, which is the order in which they run."""


class Measured(NamedTuple):
    """What a run came to: a row of results.csv."""

    env: str
    agent: str
    exploration: str
    seed: int
    steps: int
    final_return: float
    """The mean of 100 noise-free episodes of the policy that the run ended with."""
    reached_at: int | None
    """The step of the first evaluation during training whose mean was at the threshold; None: none was."""
    seconds: float
    """Of training with its evaluations, compilation included."""


class PresetRun(NamedTuple):
    """A run and the evaluation that follows it: a piece of the sweep."""

    training: CurveRun

    @property
    def name(self) -> str:
        """The run in lines for people."""
        return self.training.name

    @property
    def steps(self) -> int:
        """The steps asked for."""
        return self.training.steps

    @property
    def evaluation(self) -> Path:
        """The file of the last evaluation."""
        return self.training.directory.path / EVALUATION

    def steps_done(self) -> int:
        """The steps on disk."""
        return self.training.steps_done()

    def stopped_after(self) -> int:
        """The steps of the checkpoint that it was stopped with."""
        return self.training.stopped_after()

    def is_finished(self) -> bool:
        """Whether it is trained and evaluated."""
        return self.training.is_finished() and self.evaluation.exists()

    def train(self, line: Line) -> bool:
        """Begins the run or goes on with it, and evaluates it; returns whether it came to the end."""
        if not self.training.is_finished() and not self.training.train(line):
            return False
        returns = pn.load(self.training.directory.path).evaluate(EPISODES, EVALUATION_SEED).returns
        text = json.dumps({"episodes": EPISODES, "seed": EVALUATION_SEED, "returns": returns})
        write_atomically(self.evaluation, lambda file: file.write(text.encode()))
        return True

    def result(self) -> str:
        """What came out of it, in words."""
        measured = self.measured()
        return f"return {measured.final_return:.1f} after {measured.steps:,} steps"

    def measured(self) -> Measured:
        """The row of a finished run."""
        config, directory = self.training.config, self.training.directory
        threshold = TASKS[config.env].threshold
        reached = (point.step for point in self.training.curve() if point.value >= threshold)
        return Measured(
            config.env,
            config.algorithm,
            self.training.exploration,
            config.seed,
            config.steps,
            statistics.fmean(json.loads(self.evaluation.read_text())["returns"]),
            next(reached, None),
            round((directory.summary() or {})["wall_time"], 1),
        )


def run(tasks: Iterable[Task], out: Path, workers: int) -> int:
    """`run`: trains and evaluates what is not on disk, and writes results.csv; returns the exit status.

    results.csv holds the finished runs of all tasks, so that several calls can share the work task by task.
    """
    folder, engine = out / NAME, Engine(workers=workers)
    known = {task.env: task.runs(folder) for task in TASKS.values()}
    for each in (each for runs in known.values() for each in runs):
        each.training.check()  # what another preset left there is no result of this one
    runs = [each for task in tasks for each in known[task.env]]
    todo = [each for each in runs if not each.is_finished()]
    check_envs(each.training for each in todo)

    def write() -> bool:
        rows = [each.measured() for runs in known.values() for each in runs if each.is_finished()]
        if rows:
            write_results(rows, folder / RESULTS)
        return bool(rows)

    sweep = Sweep(
        headline=f"{NAME}: {len(runs)} runs, {len(runs) - len(todo)} on disk, {engine}",
        directory=folder,
        runs=runs,
        pieces=runs,
        todo=todo,
        unit="runs",
        write=write,
    )
    status = run_sweep(sweep, engine)
    print(folder / RESULTS if write() else "no run has a result yet")
    return status


def write_results(rows: Iterable[Measured], path: Path) -> None:
    """Writes results.csv."""
    text = csv_text(Measured._fields, (row._asdict() for row in rows))
    write_atomically(path, lambda file: file.write(text.encode()))


def read_results(path: Path) -> list[Measured]:
    """Reads results.csv."""
    with path.open(newline="") as file:
        return [
            Measured(
                row["env"],
                row["agent"],
                row["exploration"],
                int(row["seed"]),
                int(row["steps"]),
                float(row["final_return"]),
                int(row["reached_at"]) if row["reached_at"] else None,
                float(row["seconds"]),
            )
            for row in csv.DictReader(file)
        ]


def table(rows: Sequence[Measured]) -> str:
    """The page's table, from results.csv alone: a row per task and exploration, measured or not."""
    heads = ("task", "solved at", "steps", "command", "median", "seeds", "solved", "reached after", "steps/s")
    lines: list[tuple[str, ...]] = []
    for task in TASKS.values():
        for exploration in task.explorations:
            own = [row for row in rows if (row.env, row.exploration) == (task.env, exploration)]
            name = (f"`{task.env}`", f"{task.threshold:g}")
            command = f"`{task.command(exploration)}`"
            if own:
                lines.append((*name, f"{own[0].steps:,}", command, *_cells(own, task)))
            else:
                lines.append((*name, "", command, "not measured yet", "", "", "", ""))
    return markdown_table(heads, lines, right=("steps", "median", "solved", "reached after", "steps/s"))


def _cells(rows: Sequence[Measured], task: Task) -> tuple[str, ...]:
    """What the seeds of one exploration came to."""
    returns = [row.final_return for row in sorted(rows, key=lambda row: row.seed)]
    reached = [row.reached_at for row in rows if row.reached_at is not None]
    missing = f", {task.seeds - len(rows)} not measured yet" if len(rows) < task.seeds else ""
    return (
        f"{statistics.median(returns):.1f}",
        " ".join(f"{value:.1f}" for value in returns),
        f"{sum(value >= task.threshold for value in returns)} of {len(returns)}{missing}",
        f"{statistics.median(reached):,.0f} ({len(reached)})" if reached else "never",
        f"{statistics.median(row.steps / row.seconds for row in rows):,.0f}",
    )


def page(text: str, rows: Sequence[Measured]) -> str:
    """The page with the table of these results between its marks."""
    return with_table(text, NAME, table(rows))


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="presets.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("run", help="run what is not on disk")
    measure.add_argument("--out", type=Path, required=True, help="where the runs and their results.csv are kept")
    measure.add_argument("--workers", type=int, default=cores(), help="runs side by side; default: the cores")
    measure.add_argument("--tasks", nargs="+", default=list(TASKS), help="some tasks, by id; default: all")
    commands.add_parser("page", help=f"write the table of {PAGE.name} from {MEASURED.relative_to(REPOSITORY)}")
    args = parser.parse_args(words)
    try:
        if args.command == "run":
            return run([lookup("task", name, TASKS) for name in args.tasks], args.out, args.workers)
        text = page(PAGE.read_text(), read_results(MEASURED))
        write_atomically(PAGE, lambda file: file.write(text.encode()))
        return 0
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
