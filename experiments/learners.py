"""Do our learners learn as well as those of SBX with the same settings? HalfCheetah, Hopper, Walker2d, over seeds.

    python experiments/learners.py run --out DIR --workers 2
    python experiments/learners.py report --out DIR

It needs the extra bench. A run of ours is in DIR/learners/AGENT/TASK/ours/seed-S and goes on where it was stopped; one
of a peer is beside it and begins anew if it was stopped. `report` prints, for each agent, the ratio of the
interquartile means over the three tasks, ours over theirs, with its 95 % interval.
"""

import argparse
import csv
import dataclasses
import functools
import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from paramnoise.envs.base import ENVS
from paramnoise.figures.curve_results import Point, read_results, write_results
from paramnoise.figures.curve_runs import CurveRun, check_envs
from paramnoise.figures.figure_sweep import Sweep, run_sweep
from paramnoise.figures.pieces import Progress
from paramnoise.figures.statistics import Estimate, estimate_ratio, interquartile_mean, normalise
from paramnoise.parallel.engine import Engine
from paramnoise.parallel.process import cores
from paramnoise.parallel.sweep import Line
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.config import make_config
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError, lookup, require_extra

NAME, RESULTS, CURVE, OURS = "learners", "results.csv", "curve.csv", "ours"
TASKS = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")
SEEDS = 10
EVAL_EVERY, EVAL_EPISODES, LAST = 10_000, 10, 5
"""Steps between evaluations, noise-free episodes of each, and the evaluations whose mean is a run's score."""
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
    """The peer's module; `stable_baselines3` where SBX has no such agent."""
    sigma: float | None = None
    """The standard deviation of the peer's Gaussian noise on actions."""


SHARED = {"batch_size": 256, "buffer_size": 300_000, "gamma": 0.99, "learning_starts": 10_000}
PLAIN = {
    **SHARED,
    "hidden_sizes": (256, 256),
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
    "policy_kwargs": {"net_arch": [256, 256]},
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
}
"""By name, in the order in which they run. PPO's place is here: 500,000 steps, and its settings for both sides."""


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
        with self.path.open(newline="") as file:
            rows = [(int(row["step"]), float(row["return"])) for row in csv.DictReader(file)]
        own = (self.env, self.agent, self.library, self.seed)
        return [Point(*own, step, value) for step, value in rows if step <= self.steps]

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
        model, rows = self.peer(), []
        while model.num_timesteps < self.steps and not line.should_stop():
            due = min(EVAL_EVERY, self.steps - model.num_timesteps)
            model.learn(due, reset_num_timesteps=False, callback=lambda *_: not line.should_stop())
            if not line.should_stop():
                rows.append({"step": model.num_timesteps, "return": noise_free_return(model, self.env, self.seed)})
                self._write(rows)
                line.report(functools.partial(Progress, model.num_timesteps, rows[-1]["return"], 0.0))
        return self.is_finished()

    def _write(self, rows: list[dict[str, float]]) -> None:
        text = csv_text(("step", "return"), rows)
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
        eval_every=min(EVAL_EVERY, steps),
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
    runs = all_runs(out, agents, seeds, steps)
    ours = [each for each in runs if isinstance(each, CurveRun)]
    for each in ours:
        each.check()
    check_envs(ours)
    todo, engine = [each for each in runs if not each.is_finished()], Engine(workers=workers)

    def write() -> bool:
        points = [point for each in runs for point in each.curve()]
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
    points = read_results(out / NAME / RESULTS)
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


def main(words: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="learners.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("run", help="run what is not on disk")
    training.add_argument("--workers", type=int, default=cores(), help="runs side by side; default: the cores")
    training.add_argument("--agents", nargs="+", default=list(AGENTS), help="some agents; default: all")
    training.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds of each; default: {SEEDS}")
    training.add_argument("--steps", type=int, help="environment steps of a run; default: those of its agent")
    reporting = commands.add_parser("report", help="print the ratios")
    for command in (training, reporting):
        command.add_argument("--out", type=Path, required=True, help="where the runs and results.csv are kept")
    args = parser.parse_args(words)
    try:
        if args.command == "report":
            return report(args.out)
        for name in args.agents:
            lookup("agent", name, AGENTS)
        return run(args.out, args.agents, args.seeds, args.steps, args.workers)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
