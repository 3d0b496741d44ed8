"""The runs of the comparison of our learners with their peers: ours are ordinary runs, a peer's is a curve on disk."""

import copy
import csv
import functools
import importlib
import importlib.metadata
import json
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from learners_settings import AGENTS, EVAL_EPISODES, PACKAGES, TASKS

from paramnoise.figures.curve_results import Point
from paramnoise.figures.curve_runs import CurveRun
from paramnoise.figures.pieces import Progress
from paramnoise.loops.evaluation import EVALUATION_STREAM
from paramnoise.parallel.sweep import Line
from paramnoise.runs.checkpoint import write_atomically
from paramnoise.runs.config import make_config
from paramnoise.runs.directory import csv_text
from paramnoise.validation import UsageError

NAME, CURVE, SETTINGS = "learners", "curve.csv", "settings.json"
"""Below --out; and in the directory of a peer's run: its evaluations, and what it was made with."""
OURS = "ours"
"""Our side, where the other is called by its library."""


class PeerRun(NamedTuple):
    """One run of a peer: a piece of the sweep."""

    folder: Path
    """DIR/learners."""
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
        """The run in lines for people, and its directory below the folder."""
        return f"{self.env}/{self.agent}-{self.library}/seed-{self.seed}"

    @property
    def path(self) -> Path:
        """Its curve so far."""
        return self.folder / self.name / CURVE

    def settings(self) -> dict[str, Any]:
        """What it is made with, as JSON keeps it."""
        compared = AGENTS[self.agent]
        settings = {"keywords": compared.peer, "sigma": compared.sigma, "eval_every": compared.eval_every}
        return json.loads(json.dumps(settings))

    def check(self) -> None:
        """Raises UsageError if the curve on disk was made with other settings."""
        kept = self.path.with_name(SETTINGS)
        if self.path.exists() and (not kept.exists() or json.loads(kept.read_text())["settings"] != self.settings()):
            raise UsageError(f"{self.path.parent} was made with other settings: remove it, or choose another --out")

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
        self._write_settings()
        while model.num_timesteps < self.steps and not line.should_stop():
            due = min(AGENTS[self.agent].eval_every, self.steps - model.num_timesteps)
            model.learn(due, reset_num_timesteps=False, callback=lambda *_: not line.should_stop())
            if not line.should_stop():
                step = model.num_timesteps
                value = noise_free_return(model, self.env, EVALUATION_STREAM * (self.seed + 1) + step)
                rows.append({"step": step, "return": value, "seconds": round(time.perf_counter() - began, 1)})
                self._write(rows)
                line.report(functools.partial(Progress, step, value, step / max(rows[-1]["seconds"], 1e-6)))
        return self.is_finished()

    def _write_settings(self) -> None:
        """Takes the place of what an earlier run left, and says what this one is made with."""
        self.path.unlink(missing_ok=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        package = PACKAGES[self.library]
        made_with = {"settings": self.settings(), "package": f"{package} {importlib.metadata.version(package)}"}
        text = json.dumps(made_with, indent=2)
        write_atomically(self.path.with_name(SETTINGS), lambda file: file.write(f"{text}\n".encode()))

    def _write(self, rows: list[dict[str, float]]) -> None:
        text = csv_text(("step", "return", "seconds"), rows)
        write_atomically(self.path, lambda file: file.write(text.encode()))

    def peer(self) -> Any:
        """The peer, before its first step."""
        compared = AGENTS[self.agent]
        own = {} if compared.sigma is None else {"action_noise": _gaussian(self.env, compared.sigma)}
        made = getattr(importlib.import_module(self.library), self.agent.upper())
        return made(
            "MlpPolicy", make_env(self.env), seed=self.seed, **copy.deepcopy(compared.peer), **own
        )  # it adds to them


def make_env(env: str) -> gym.Env:
    """An environment for a peer, without Gymnasium's check of every step, which ours are made without, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium warns of every version but the newest
        return gym.make(env, disable_env_checker=True)


def _gaussian(env: str, sigma: float) -> Any:
    """The peer's noise on actions, in units of half the action range, in which Stable-Baselines3's loop adds it."""
    from stable_baselines3.common.noise import NormalActionNoise

    shape = make_env(env).action_space.shape or ()
    return NormalActionNoise(np.zeros(shape), np.full(shape, sigma))


def noise_free_return(model: Any, env: str, seed: int) -> float:
    """The mean return of a peer's noise-free episodes, as many as an evaluation of ours has, side by side.

    The seed should be another one for each evaluation, as it is for ours: a score then is of as many first states.
    """
    envs = [make_env(env) for _ in range(EVAL_EPISODES)]
    obs = np.stack([each.reset(seed=seed + place)[0] for place, each in enumerate(envs)])
    returns, running = np.zeros(EVAL_EPISODES), np.ones(EVAL_EPISODES, bool)
    while running.any():
        actions, _ = model.predict(obs, deterministic=True)
        for place in np.flatnonzero(running):
            obs[place], reward, terminated, truncated, _ = envs[place].step(actions[place])
            returns[place] += float(reward)
            running[place] = not (terminated or truncated)
    for each in envs:
        each.close()
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
        num_envs=1,
        eval_every=min(compared.eval_every, steps),
        eval_episodes=EVAL_EPISODES,
    )
    return CurveRun(folder, f"{agent}-{OURS}", OURS, config)


def all_runs(out: Path, agents: Iterable[str], seeds: int | None, steps: int | None) -> list[CurveRun | PeerRun]:
    """All runs, a seed of every agent and task, ours and its peer's, before the next seed; None: as many as are due."""
    agents = list(agents)
    runs: list[CurveRun | PeerRun] = []
    for seed in range(max((seeds or AGENTS[agent].seeds for agent in agents), default=0)):
        for agent in agents:
            if seed >= (seeds or AGENTS[agent].seeds):
                continue
            folder, own_steps = out / NAME, steps or AGENTS[agent].steps
            for env in TASKS:
                runs.append(our_run(folder, agent, env, AGENTS[agent].first_seed + seed, own_steps))
                runs.append(PeerRun(folder, agent, env, seed, own_steps))
    return runs


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
