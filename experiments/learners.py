"""Do our learners learn as well as their peers with the same settings? HalfCheetah, Hopper, Walker2d, over seeds.

    python experiments/learners.py run --out DIR --workers 2
    python experiments/learners.py status --out DIR
    python experiments/learners.py report --out DIR
    python experiments/learners.py page

It needs the extra bench. A run of ours is in DIR/learners/AGENT/TASK/ours/seed-S and goes on where it was stopped; one
of a peer is beside it and begins anew if it was stopped; a finished run is never run again. `status` says what is left,
and how many hours of one core that takes. `report` prints, for each agent, the ratio of the interquartile means over
the three tasks, ours over theirs, with its 95 % interval. `page` writes docs/learners.md and its pictures from
results/learners/results.csv, which is a copy of DIR/learners/results.csv.
"""

import argparse
import csv
import dataclasses
import functools
import importlib
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from rich.table import Table

from paramnoise.envs.base import ENVS
from paramnoise.figures.base import Method
from paramnoise.figures.curve_results import Point, read_results, write_results
from paramnoise.figures.curve_runs import CurveRun, check_envs
from paramnoise.figures.curve_summary import table_console
from paramnoise.figures.figure_sweep import Sweep, run_sweep
from paramnoise.figures.pieces import Progress
from paramnoise.figures.statistics import Estimate, estimate_ratio, interquartile_mean, normalise
from paramnoise.markdown import markdown_table, with_table
from paramnoise.parallel.engine import Engine
from paramnoise.parallel.process import cores
from paramnoise.parallel.sweep import Line
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.config import make_config
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError, lookup, require_extra

NAME, RESULTS, CURVE, OURS = "learners", "results.csv", "curve.csv", "ours"
REPOSITORY = Path(__file__).parent.parent
MEASURED = REPOSITORY / "results" / NAME / RESULTS
PAGE = REPOSITORY / "docs" / "learners.md"
ASKED = 0.8
"""What the lower end of a ratio's interval should reach."""
TASKS = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")
SEEDS = 10
EVAL_EPISODES, LAST = 10, 5
"""Noise-free episodes of an evaluation, and the evaluations whose mean is a run's score."""
EVALUATION_SEED = 1_000_000
"""Where the seeds of the episodes begin by which peers are evaluated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """An agent of ours and its peer, with settings that mean the same."""

    steps: int
    """Environment steps of a run."""
    exploration: str
    """Of ours; the peer has the same noise."""
    settings: Mapping[str, Any]
    """Fields of our agent's config."""
    explored: Mapping[str, Any]
    """Fields of our exploration."""
    peer: Mapping[str, Any]
    """Keywords of the peer."""
    library: str = "sbx"
    """The peer's module, `sbx` or `stable_baselines3`."""
    eval_every: int = 10_000
    """Steps between evaluations."""
    sigma: float | None = None
    """The standard deviation of the peer's Gaussian noise on actions."""


SHARED = {"batch_size": 128, "buffer_size": 300_000, "gamma": 0.99, "learning_starts": 10_000}
PLAIN = {
    **SHARED,
    "hidden_sizes": (64, 64),
    "layer_norm": False,
    "normalise_observations": False,
    "random_steps": 10_000,
    "tau": 0.005,
    "actor_learning_rate": 3e-4,
    "critic_learning_rate": 3e-4,
}
PEER = {
    **SHARED,
    "learning_rate": 3e-4,
    "train_freq": 1,
    "gradient_steps": 1,
    "policy_kwargs": {"net_arch": [64, 64]},
}
AGENTS = {
    "td3": Compared(
        steps=300_000,
        exploration="gaussian",
        settings=PLAIN,
        explored={"sigma": 0.1},
        peer={**PEER, "tau": 0.0025},  # SBX moves its targets at every train step, ours and the paper at every second
        sigma=0.1,
    ),
    "sac": Compared(
        steps=300_000,
        exploration="none",
        settings=PLAIN,
        explored={},
        peer={**PEER, "tau": 0.005},
    ),
    "ppo": Compared(
        steps=49 * 10_240,  # the first multiple of the steps between evaluations that is at least 500,000
        exploration="none",
        settings={},  # the defaults of both are the same
        explored={},
        peer={"device": "cpu"},
        library="stable_baselines3",
        eval_every=5 * 2_048,  # whole batches, between which alone the peer can be evaluated
    ),
}
"""By name, in the order in which they run."""
LIBRARIES = {"sbx": "SBX", "stable_baselines3": "Stable-Baselines3"}


class PeerRun(NamedTuple):
    """One run of a peer: a piece of the sweep."""

    folder: Path
    """The agent's, DIR/learners/AGENT."""
    agent: str
    env: str
    seed: int
    steps: int

    @property
    def library(self) -> str:
        """The peer's module."""
        return AGENTS[self.agent].library

    @property
    def name(self) -> str:
        """The run in lines for people, and its directory below the agent's."""
        return f"{self.env}/{self.library}/seed-{self.seed}"

    @property
    def path(self) -> Path:
        """Its curve so far."""
        return self.folder / self.name / CURVE

    def curve(self) -> list[Point]:
        """The evaluations on disk, up to the steps asked for."""
        if not self.path.exists():
            return []
        own = (self.env, self.agent, self.library, self.seed)
        return [Point(*own, int(row["step"]), float(row["return"])) for row in self._rows()]

    def _rows(self) -> list[dict[str, str]]:
        """Those of its file up to the first that has as many steps as are asked for."""
        with self.path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        enough = [place for place, row in enumerate(rows) if int(row["step"]) >= self.steps]
        return rows[: enough[0] + 1] if enough else rows

    def rate(self) -> float | None:
        """Steps per second, evaluations included; None before the first."""
        if not self.curve():
            return None
        last = self._rows()[-1]
        return int(last["step"]) / float(last["seconds"])

    def steps_done(self) -> int:
        """The steps on disk that will not be done again."""
        return self.steps if self.is_finished() else 0

    def stopped_after(self) -> int:
        """None: a peer's run begins anew."""
        return 0

    def is_finished(self) -> bool:
        """Whether its curve is whole."""
        points = self.curve()
        return bool(points) and points[-1].step >= self.steps

    def result(self) -> str:
        """What came out of it, in words."""
        return f"return {self.curve()[-1].value:.1f} after {self.steps:,} steps"

    def train(self, line: Line) -> bool:
        """Trains from the beginning, with an evaluation every so often; returns whether it came to the end."""
        model, rows, began = self.peer(), [], time.perf_counter()
        while model.num_timesteps < self.steps and not line.should_stop():
            due = min(AGENTS[self.agent].eval_every, self.steps - model.num_timesteps)
            model.learn(due, reset_num_timesteps=False, callback=lambda *_: not line.should_stop())
            if not line.should_stop():
                step, value = model.num_timesteps, noise_free_return(model, self.env, self.seed)
                rows.append({"step": step, "return": value, "seconds": round(time.perf_counter() - began, 1)})
                self._write(rows)
                line.report(functools.partial(Progress, step, value, step / max(rows[-1]["seconds"], 1e-6)))
        return self.is_finished()

    def _write(self, rows: list[dict[str, float]]) -> None:
        text = csv_text(("step", "return", "seconds"), rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, lambda file: file.write(text.encode()))

    def peer(self) -> Any:
        """The peer, before its first step."""
        compared = AGENTS[self.agent]
        own = {} if compared.sigma is None else {"action_noise": _gaussian(self.env, compared.sigma)}
        made = getattr(importlib.import_module(self.library), self.agent.upper())
        return made("MlpPolicy", gym.make(self.env), seed=self.seed, **compared.peer, **own)


def _gaussian(env: str, sigma: float) -> Any:
    """The peer's noise on actions, in units of half the action range, in which Stable-Baselines3's loop adds it."""
    from stable_baselines3.common.noise import NormalActionNoise

    shape = gym.spec(env).make().action_space.shape or ()
    return NormalActionNoise(np.zeros(shape), np.full(shape, sigma))


def noise_free_return(model: Any, env: str, seed: int) -> float:
    """The mean return of a peer's noise-free episodes, as many as an evaluation of ours has."""
    made, returns = gym.make(env), []
    for episode in range(EVAL_EPISODES):
        obs, _ = made.reset(seed=EVALUATION_SEED + EVAL_EPISODES * seed + episode)
        returns.append(0.0)
        ended = False
        while not ended:
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = made.step(action)
            returns[-1] += float(reward)
            ended = terminated or truncated
    made.close()
    return float(np.mean(returns))


def our_run(folder: Path, agent: str, env: str, seed: int, steps: int) -> CurveRun:
    """The run of ours that a peer's is compared with."""
    compared = AGENTS[agent]
    config = make_config(
        agent,
        env,
        exploration=compared.exploration,
        exploration_settings=compared.explored,
        agent=compared.settings,
        seed=seed,
        steps=steps,
        eval_every=min(compared.eval_every, steps),
        eval_episodes=EVAL_EPISODES,
    )
    return CurveRun(folder, OURS, OURS, config)


def all_runs(out: Path, agents: Iterable[str], seeds: int, steps: int | None) -> list[CurveRun | PeerRun]:
    """All runs, a seed of every agent and task, ours and its peer's, before the next seed."""
    runs: list[CurveRun | PeerRun] = []
    for seed in range(seeds):
        for agent in agents:
            folder, own_steps = out / NAME / agent, steps or AGENTS[agent].steps
            for env in TASKS:
                runs.append(our_run(folder, agent, env, seed, own_steps))
                runs.append(PeerRun(folder, agent, env, seed, own_steps))
    return runs


def run(out: Path, agents: Sequence[str], seeds: int, steps: int | None, workers: int) -> int:
    """`run`: trains what is not on disk, and writes results.csv; returns the exit status."""
    for library in {AGENTS[agent].library for agent in agents}:
        require_extra(library, "bench", "the peers")
    known = all_runs(out, AGENTS, seeds, steps)
    runs = [each for each in known if agent_of(each) in agents]
    ours = [each for each in runs if isinstance(each, CurveRun)]
    for each in ours:
        each.check()
    check_envs(ours)
    todo, engine = [each for each in runs if not each.is_finished()], Engine(workers=workers)

    def write() -> bool:
        points = [point for each in known for point in each.curve()]  # several calls may share the work
        if points:
            write_results(points, out / NAME / RESULTS)
        return bool(points)

    sweep = Sweep(
        headline=f"{NAME}: {len(runs)} runs, {len(runs) - len(todo)} on disk, {engine}",
        directory=out / NAME,
        runs=runs,
        pieces=runs,
        todo=todo,
        unit="runs",
        write=write,
    )
    status = run_sweep(sweep, engine)
    print(out / NAME / RESULTS if write() else "no run has a result yet")
    return status


def agent_of(each: CurveRun | PeerRun) -> str:
    """The agent that a run is of, or its peer."""
    return each.agent if isinstance(each, PeerRun) else each.config.algorithm


def side_of(each: CurveRun | PeerRun) -> str:
    """Ours, or the peer's library."""
    return each.library if isinstance(each, PeerRun) else OURS


def rate_of(each: CurveRun | PeerRun) -> float | None:
    """Steps per second of a run so far; None before its first evaluation."""
    if isinstance(each, PeerRun):
        return each.rate()
    rows = each.directory.rows()
    return int(rows[-1]["step"]) / float(rows[-1]["wall_time"]) if rows else None


def show_status(out: Path, agents: Sequence[str], seeds: int, steps: int | None) -> int:
    """`status`: prints what is done and left, and the hours of one core that this takes."""
    table = Table("agent", "side", "finished", "steps left", "steps/s of a core", "core-hours left")
    for column in table.columns[2:]:
        column.justify = "right"
    runs, total, unknown = all_runs(out, agents, seeds, steps), 0.0, 0
    for agent in agents:
        for side in (OURS, AGENTS[agent].library):
            own = [each for each in runs if (agent_of(each), side_of(each)) == (agent, side)]
            left = sum(each.steps - each.steps_done() for each in own)
            rates = [rate for each in own if (rate := rate_of(each)) is not None]
            rate = statistics.median(rates) if rates else None
            hours = left / rate / 3600 if rate else None
            total, unknown = total + (hours or 0), unknown + (hours is None)
            finished = f"{sum(each.is_finished() for each in own)} of {len(own)}"
            shown = ("", "?") if rate is None or hours is None else (f"{rate:,.0f}", f"{hours:.1f}")
            table.add_row(agent, side, finished, f"{left:,}", *shown)
    table_console(100).print(table)
    not_begun = f", and those of {unknown} more without an evaluation yet" if unknown else ""
    print(f"{total:.1f} core-hours left{not_begun}")
    return 0


def scores(points: Iterable[Point], agent: str, side: str) -> list[np.ndarray]:
    """The score of each seed, for each task that has some: the mean of a run's last evaluations, between its bounds."""
    values: dict[str, dict[int, list[float]]] = {}
    for point in sorted(points, key=lambda point: point.step):
        if (point.algorithm, point.exploration) == (agent, side):
            values.setdefault(point.env, {}).setdefault(point.seed, []).append(point.value)
    found = []
    for env, runs in sorted(values.items()):
        bounds = ENVS[env].bounds
        assert bounds is not None
        own = np.array([np.mean(returns[-LAST:]) for returns in runs.values()])
        found.append(normalise(own, bounds.low, bounds.high))
    return found


def compare(points: Sequence[Point], agent: str) -> tuple[float, float, Estimate]:
    """The interquartile mean of ours and of the peer over all tasks, and their ratio with its interval."""
    ours, theirs = (scores(points, agent, side) for side in (OURS, AGENTS[agent].library))
    means = [float(interquartile_mean(np.concatenate(side))) for side in (ours, theirs)]
    return means[0], means[1], estimate_ratio(ours, theirs)


def report(out: Path) -> int:
    """`report`: prints what results.csv says of each agent."""
    path = out / NAME / RESULTS
    if not path.exists():
        raise UsageError(f"{path} does not exist: `run` writes it")
    points = read_results(path)
    for agent, compared in AGENTS.items():
        if not any(point.algorithm == agent for point in points):
            print(f"{agent}: not run yet")
            continue
        seeds = {(point.env, point.exploration, point.seed) for point in points if point.algorithm == agent}
        ours, theirs, ratio = compare(points, agent)
        print(
            f"{agent}: interquartile mean {ours:.3f}, {compared.library} {theirs:.3f}; ratio {ratio.value:.3f} "
            f"(95 % interval {ratio.low:.3f} to {ratio.high:.3f}); {len(seeds)} runs"
        )
    return 0


def table(points: Sequence[Point]) -> str:
    """The page's table, from results.csv alone: a row per agent, run or not."""
    heads = ("agent", "peer", "IQM, ours", "IQM, peer", "ratio (95% interval)", f"lower end at least {ASKED}", "seeds")
    lines: list[Sequence[str]] = []
    for agent, compared in AGENTS.items():
        own = [point for point in points if point.algorithm == agent]
        name = (agent.upper(), LIBRARIES[compared.library])
        sides = [scores(own, agent, side) for side in (OURS, compared.library)]
        if min(map(len, sides)) < len(TASKS):
            lines.append((*name, "not run yet" if not own else "not all tasks run yet", "", "", "", ""))
            continue
        ours, theirs, ratio = compare(own, agent)
        seeds = min(len(task) for side in sides for task in side)
        interval = f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        reached = "yes" if ratio.low >= ASKED else "no"
        lines.append((*name, f"{ours:.3f}", f"{theirs:.3f}", interval, reached, f"{seeds} of {SEEDS}"))
    return markdown_table(heads, lines)


class Curves(NamedTuple):
    """The two sides of one agent as lines of a figure."""

    methods: Sequence[Method]
    steps_per_epoch: int = 10_000


def pictures(points: Iterable[Point]) -> str:
    """The curves of the agents that have results, in Markdown."""
    have = {point.algorithm for point in points}
    return "\n".join(
        f"![{agent.upper()}: ours and {LIBRARIES[compared.library]}](../results/{NAME}/{agent}.png)"
        for agent, compared in AGENTS.items()
        if agent in have
    )


def draw(points: Sequence[Point], folder: Path) -> None:
    """Draws both curves of each agent that has results: a panel per task."""
    from paramnoise.figures.plots import plot_learning_curves

    for agent, compared in AGENTS.items():
        sides = {OURS: "Ours", compared.library: LIBRARIES[compared.library]}
        lines = Curves([Method(agent, side, label) for side, label in sides.items()])
        if own := [point for point in points if point.algorithm == agent]:
            plot_learning_curves(lines, own, folder / f"{agent}.png")


def page(text: str, points: Sequence[Point]) -> str:
    """The page with the table and the pictures of these results between its marks."""
    return with_table(with_table(text, "ratios", table(points)), "curves", pictures(points))


def write_page() -> int:
    """`page`: writes the page's table and its pictures from the results that are kept."""
    points = read_results(MEASURED) if MEASURED.exists() else []
    draw(points, MEASURED.parent)
    text = page(PAGE.read_text(), points)
    write_atomically(PAGE, lambda file: file.write(text.encode()))
    print(PAGE)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="learners.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("run", help="run what is not on disk")
    training.add_argument("--workers", type=int, default=cores(), help="runs side by side; default: the cores")
    status = commands.add_parser("status", help="what is done and left")
    for command in (training, status):
        command.add_argument("--agents", nargs="+", default=list(AGENTS), help="some agents; default: all")
        command.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds of each; default: {SEEDS}")
        command.add_argument("--steps", type=int, help="environment steps of a run; default: those of its agent")
    for command in (training, status, commands.add_parser("report", help="print the ratios")):
        command.add_argument("--out", type=Path, required=True, help="where the runs and results.csv are kept")
    commands.add_parser("page", help=f"write {PAGE.name} from {MEASURED.relative_to(REPOSITORY)}")
    args = parser.parse_args(words)
    try:
        if args.command == "page":
            return write_page()
        if args.command == "report":
            return report(args.out)
        for name in args.agents:
            lookup("agent", name, AGENTS)
        if args.command == "status":
            return show_status(args.out, args.agents, args.seeds, args.steps)
        return run(args.out, args.agents, args.seeds, args.steps, args.workers)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
