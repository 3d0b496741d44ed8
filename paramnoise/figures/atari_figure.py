"""The Atari figure (fig. "atari" and "atari-full", app. A.1): scores of the exploring policy against frames.

Its runs are ordinary run directories, OUT/atari/GAME/METHOD/seed-S. The unit of work is a group: one game and one
method, with its seeds side by side in one process.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from paramnoise.envs.atari_frames import FRAME_SKIP
from paramnoise.envs.atari_games import GAMES, game_rom, game_title
from paramnoise.figures import atari_results, atari_scores
from paramnoise.figures.atari_runs import AtariRun
from paramnoise.figures.base import RESULTS, Arguments, Figure, Method, draw, register_figure
from paramnoise.figures.curve_results import read_results
from paramnoise.figures.curves import CurveScale, TaskArguments
from paramnoise.figures.figure_sweep import Sweep
from paramnoise.figures.seed_groups import SeedGroup, in_order
from paramnoise.parallel.engine import Engine
from paramnoise.runs.config import RunConfig
from paramnoise.runs.files import CHECKPOINT_SECONDS

SCORES, TABLE = "scores.csv", "scores.md"
"""Beside results.csv: the noise-free scores, and the table that they make."""
LARGE_CHECKPOINT_SECONDS = 600.0
"""The age of a checkpoint at which the next one is due, where it holds replay."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtariScale(CurveScale):
    """How much of the Atari figure to run."""

    eval_every: int = 500_000
    """Steps between noise-free evaluations."""
    eval_episodes: int = 10
    """Games of an evaluation, as many as the paper's table has."""
    log_every: int = 20_000
    """Steps between points of a curve."""
    num_envs: int | None = None
    """Environments of each seed; None: as many as the preset has."""
    save_replay: bool = False
    """Whether checkpoints hold replay: 7 GB of each run, whose resumed training is then exact."""
    agent: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings of the agent that are not the preset's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtariArguments(TaskArguments):
    """What `paramnoise reproduce atari` takes."""

    envs: tuple[str, ...] = ()
    """Games, by name or id, in place of the scale's; any game of the emulator's works."""
    steps: int | None = None
    """Steps of a run, 4 frames each, in place of the scale's."""
    log_every: int | None = None
    """Steps between points of a curve, in place of the scale's."""
    num_envs: int | None = None
    """Environments of each seed, in place of the preset's."""
    save_replay: bool = False
    """Keep replay in checkpoints, 7 GB of each run, so that a resumed run is exact; else it is filled anew."""
    workers: int | None = None
    """Groups of seeds side by side, which share all cores and the GPU; by default 1, or 1 per GPU or node of Ray's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtariFigure(Figure[AtariScale]):
    """A panel per game, a line per method, and a table of noise-free scores."""

    steps_per_epoch: int = 1_000_000 // FRAME_SKIP
    """Environment steps in one unit of the x axis, a million frames."""

    arguments: ClassVar[type[Arguments]] = AtariArguments
    whole_machine: ClassVar[bool] = True

    @property
    def shows(self) -> str:
        """What the figure shows, in a few words."""
        return "scores of the exploring policy on Atari games, and the table of noise-free scores"

    def grid(self, scale: AtariScale, methods: Sequence[Method], out: Path) -> list[SeedGroup[AtariRun]]:
        """All groups, game by game."""
        return [
            SeedGroup(
                tuple(
                    AtariRun(out / self.name, self.name_of(method), method.name, _config(scale, env, method, seed))
                    for seed in range(scale.seeds)
                ),
                LARGE_CHECKPOINT_SECONDS if scale.save_replay else CHECKPOINT_SECONDS,
            )
            for env in scale.envs
            for method in methods
        ]

    def sweep(self, args: AtariArguments, out: Path, engine: Engine) -> Sweep:
        """What was asked for; raises UsageError if it cannot be run."""
        scale = self.asked_scale(args)
        scale = dataclasses.replace(scale, envs=tuple(dict.fromkeys(map(find_game, scale.envs))))
        groups = self.grid(scale, self.asked_methods(args), out)
        runs = [each for group in groups for each in group.runs]
        for each in runs:
            each.check()
        todo = in_order(groups)
        done = sum(each.is_finished() for each in runs)
        left = f"{len(todo)} group{'s' * (len(todo) != 1)} to train{f', {engine}' * (engine.name == 'ray')}"
        return Sweep(
            headline=f"{self.title}: {len(runs)} runs, {done} on disk, {left}",
            directory=out / self.name,
            runs=runs,
            pieces=todo,
            todo=todo,
            unit="groups",
            write=lambda: _write(runs, out / self.name),
        )

    def report(self, directory: Path, sweep: Sweep | None) -> None:
        """Prints the table of scores, draws the curves, and says where all of it is."""
        points = read_results(directory / RESULTS)
        scores = atari_results.read_scores(directory / SCORES)
        if sweep is not None and (unfinished := sweep.unfinished()):
            print(unfinished)
        if scores:
            atari_scores.report(scores, self.methods, directory / TABLE)
            print(directory / SCORES)
        print(directory / RESULTS)
        shown = atari_results.carried(points)
        if not shown:
            print("no figure, since no game has ended yet")
            return

        def to_file(path: Path) -> None:
            from paramnoise.figures.plots import plot_learning_curves

            plot_learning_curves(self, shown, path, x_label="million frames", y_label="score while exploring")

        draw(directory / f"{self.name}.png", to_file)


def find_game(name: str) -> str:
    """A game as the paper writes it, from its name or any of its ids; UsageError if there is none."""
    return game_title(game_rom(name))


def _write(runs: Sequence[AtariRun], directory: Path) -> bool:
    """Writes results.csv and scores.csv from what is on disk; returns whether there is anything to write."""
    points = [point for each in runs for point in each.curve()]
    if points:
        atari_results.write_curves(points, directory / RESULTS)
        atari_results.write_scores((score for each in runs for score in each.scores()), directory / SCORES)
    return bool(points)


def _config(scale: AtariScale, env: str, method: Method, seed: int) -> RunConfig:
    more: dict[str, Any] = {} if scale.num_envs is None else {"num_envs": scale.num_envs}
    return method.config(
        env,
        agent=scale.agent,
        seed=seed,
        steps=scale.steps,
        eval_every=scale.eval_every,
        eval_episodes=scale.eval_episodes,
        log_every=scale.log_every,
        save_replay=scale.save_replay,
        **more,
    )


_FIRST = ("Freeway", "Enduro", "Pong", "Breakout", "Alien", "BankHeist", "Qbert", "Seaquest")
ORDER = (*_FIRST, *(game for game in GAMES if game not in _FIRST))
"""The paper's games as they are run: those first on which it shows the most."""

SMOKE = AtariScale(
    envs=("Pong",),
    seeds=1,
    steps=4_000,
    eval_every=2_000,
    eval_episodes=1,
    log_every=1_000,
    num_envs=2,  # so that games end within these few steps
    agent={"learning_starts": 3_000, "buffer_size": 10_000},
)
"""The scale smoke of every figure of Atari games."""

ATARI = register_figure(
    AtariFigure(
        name="atari",
        paper="Figures 1 and 7",
        methods=(
            Method("dqn", "parameter", "Parameter noise", agent={"policy_head": True}),
            Method("dqn", "epsilon-greedy", "Epsilon-greedy", agent={"policy_head": False}),
            Method(
                "dqn", "epsilon-greedy", "Epsilon-greedy, two heads", variant="two-heads", agent={"policy_head": True}
            ),
        ),
        scales={
            "smoke": SMOKE,
            "small": AtariScale(envs=ORDER[:3], seeds=3, steps=1_000_000),
            "paper": AtariScale(envs=ORDER, seeds=3, steps=10_000_000),
        },
    )
)
