"""What each command of the command line does."""

import ast
import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
from rich.console import Console
from rich.table import Table

from paramnoise import api
from paramnoise.agents import Algorithm
from paramnoise.envs import OURS
from paramnoise.experiments import chain as chain_figure
from paramnoise.experiments.chain import CHAIN, Cell
from paramnoise.experiments.sweep import cores, run_all
from paramnoise.presets import Preset, make_config, preset
from paramnoise.training.config import RunConfig
from paramnoise.training.display import bar, stop_on_signals
from paramnoise.training.run import run
from paramnoise.validation import UsageError, choose, require
from paramnoise.video import check_path

INTERRUPTED = 128
"""Added to a signal's number, it is the exit status of a stopped command."""


def train(algorithm: Algorithm, args: Any) -> int:
    """`paramnoise train`; `args` is `cli.Train`."""
    kind, *settings = args.exploration or (algorithm.default_exploration,)
    config = make_config(
        algorithm.name,
        args.env,
        key_values("--env-kwargs", args.env_kwargs),
        exploration=kind,
        exploration_settings=key_values("--exploration", settings),
        agent=dataclasses.asdict(args.agent),
        seed=args.seed,
        num_envs=args.num_envs,
        steps=args.steps,
        eval_every=args.eval_every,
        eval_episodes=args.eval_episodes,
        eval_max_steps=args.eval_max_steps,
    )
    path = args.run_dir or _default_run_dir(config, args.resume)
    use_compilation_cache()
    summary = run(
        config,
        path,
        resume=args.resume,
        checkpoint_seconds=args.checkpoint_seconds,
        tensorboard=args.tensorboard,
        on_start=lambda: _print_settings(config, path),
    )
    if summary["status"] == "interrupted":
        print(f"interrupted at step {summary['steps']:,}; go on with --resume --run-dir {path}")
        return INTERRUPTED + summary["signal"]
    print(
        f"finished: {summary['steps']:,} steps in {summary['wall_time']:.1f} s; noise-free evaluation "
        f"{summary['final_eval_return_mean']:.1f}, best {summary['best_eval_return_mean']:.1f}; {path}"
    )
    return 0


def evaluate(run_dir: Path, episodes: int, seed: int, video: Path | None) -> int:
    """`paramnoise evaluate`."""
    require(episodes >= 1, "episodes", episodes, "at least 1")
    if video is not None:
        check_path(video)
    agent = api.load(run_dir)
    filmed = agent.record(video, seed=seed) if video is not None else None
    print(f"{agent.algorithm} on {agent.config.env} after {agent.step:,} steps, noise-free:")
    print(agent.evaluate(episodes, seed))
    if filmed is not None:
        print(f"{video}: the first episode, with a return of {filmed.mean:.1f}")
    return 0


def reproduce_chain(
    scale: str,
    lengths: Sequence[int],
    explorations: Sequence[str],
    seeds: int | None,
    episodes: int | None,
    workers: int | None,
    out: Path,
) -> int:
    """`paramnoise reproduce chain`."""
    size = CHAIN.scales[scale]
    methods = {method.exploration: method for method in CHAIN.methods}
    chosen = [choose("exploration", name, methods) for name in dict.fromkeys(explorations)] or list(CHAIN.methods)
    seeds = size.seeds if seeds is None else seeds
    episodes = size.episodes if episodes is None else episodes
    workers = cores() if workers is None else workers
    for name, value in (("seeds", seeds), ("episodes", episodes), ("workers", workers)):
        require(value >= 1, name, value, "at least 1")
    grid = chain_figure.cells(sorted(set(lengths)) or size.lengths, chosen, seeds, episodes)
    for cell in grid:
        cell.config(0)  # a length that cannot be is an error before anything runs
    status = _run_cells(grid, out, workers)
    outcomes = chain_figure.collect(grid, out)
    if not outcomes:
        print("no run has finished yet")
        return status
    directory = out / CHAIN.name
    chain_figure.write_results(outcomes, directory / "results.csv")
    _print_medians(outcomes)
    _draw_chain(outcomes, directory)
    print(f"{directory / 'results.csv'}\n{directory / 'chain.png'}")
    return status


def plot_chain(out: Path) -> int:
    """`paramnoise plot chain`."""
    path = out / CHAIN.name / "results.csv"
    if not path.exists():
        raise UsageError(f"{path} does not exist: run `paramnoise reproduce chain --out {out}` first")
    _draw_chain(chain_figure.read_results(path), path.parent)
    print(path.parent / "chain.png")
    return 0


def envs() -> int:
    """`paramnoise envs`."""
    print("Ours:")
    for env_id, help_line in OURS.items():
        print(f"  {env_id:<36} {help_line}")
    print("\nGymnasium's (any registered id works where the action space fits; the newest version of each):")
    families: dict[str, dict[str, str]] = {}
    for spec in gym.registry.values():
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs."):
            family = spec.entry_point.split(".")[2].split(":")[0]
            newest = families.setdefault(family, {})
            if spec.name not in newest or (spec.version or 0) > (gym.spec(newest[spec.name]).version or 0):
                newest[spec.name] = spec.id
    needs = {"box2d": "Box2D", "mujoco": "mujoco"}
    for family, newest in families.items():
        missing = family in needs and importlib.util.find_spec(needs[family]) is None
        note = f" (needs: pip install 'paramnoise[{family}]')" if missing else ""
        print(f"  {family}{note}: {', '.join(newest.values())}")
    return 0


def use_compilation_cache() -> None:
    """Keeps compiled programs between runs, in the user's cache unless JAX was told another place."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "paramnoise" / "xla"))


def key_values(option: str, words: Sequence[str]) -> dict[str, Any]:
    """Words of the form key:value as a dict; numbers, booleans, None and lists are read as such."""
    values: dict[str, Any] = {}
    for word in words:
        key, colon, text = word.partition(":")
        if not (key and colon):
            raise UsageError(f"{option} takes key:value, not {word!r}")
        try:
            values[key] = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        except (ValueError, SyntaxError, TypeError):
            values[key] = text
    return values


def _default_run_dir(config: RunConfig, resume: bool) -> Path:
    """runs/AGENT/ENV/EXPLORATION/seed-S; a second run of the same gets -2, and so on; `resume` takes the last."""
    base = Path("runs") / config.algorithm / config.env / config.exploration.kind / f"seed-{config.seed}"
    last, path, number = base, base, 1
    while path.exists():
        last, number = path, number + 1
        path = base.with_name(f"{base.name}-{number}")
    return last if resume else path


def _print_settings(config: RunConfig, path: Path) -> None:
    values = config.to_json()
    known = preset(config.env, config.env_kwargs)
    print(f"{config.algorithm} on {config.env}, exploration {config.exploration.kind}, seed {config.seed}")
    for part in ("agent", "exploration"):
        print(f"  {part}: " + ", ".join(f"{name} {value}" for name, value in values[part].items() if name != "kind"))
    names = ("steps", "num_envs", "eval_every", "eval_episodes")
    print("  run: " + ", ".join(f"{name} {values[name]}" for name in names))
    if known != Preset():
        preset_names = [
            *known.agent_settings(config.made_by.config),
            *known.explorations.get(config.exploration.kind, {}),
            *known.run,
        ]
        print(f"  from the preset of {config.env}, unless set by you: {', '.join(preset_names)}")
    print(f"  directory: {path}", flush=True)


def _run_cells(grid: list[Cell], out: Path, workers: int) -> int:
    """Runs what is not on disk yet; returns the exit status."""
    total = len(grid)
    todo = [cell for cell in grid if not all(cell.outcome(out, seed) for seed in cell.seeds)]
    print(f"{CHAIN.paper} ({CHAIN.name}): {total} cells, {total - len(todo)} on disk, {workers} workers", flush=True)
    failed = 0
    work = _CellWork(out)
    with bar(total, CHAIN.name, "cells") as shown, stop_on_signals() as stop:
        done = total - len(todo)
        shown.advance_to(done)
        for cell, error in run_all(work, todo, min(workers, max(len(todo), 1)), stop):
            done += 1
            shown.advance_to(done)
            if error is None:
                shown.line(f"[{done}/{total}] {_describe_cell(cell, out)}")
            else:
                failed += 1
                shown.line(f"[{done}/{total}] {cell.name}: failed: {' '.join(str(error).split())}")
    if stop:
        print(f"interrupted: {done} of {total} cells are done; the same command goes on from here")
        return INTERRUPTED + (stop.signal or 0)
    return 1 if failed else 0


@dataclasses.dataclass(frozen=True)
class _CellWork:
    """What a worker process does with a cell."""

    out: Path

    def __call__(self, cell: Cell, should_stop: Any) -> bool:
        use_compilation_cache()
        return chain_figure.run_cell(cell, self.out, should_stop)


def _describe_cell(cell: Cell, out: Path) -> str:
    outcomes = [outcome for seed in cell.seeds if (outcome := cell.outcome(out, seed))]
    (median,) = chain_figure.medians(outcomes)
    return f"{cell.name}: {median.solved_seeds} of {median.seeds} seeds solved it, median {median.episodes:g} episodes"


def _print_medians(outcomes: list[chain_figure.Outcome]) -> None:
    labels = {method.exploration: method.label for method in CHAIN.methods}
    table = Table("method", "N", "episodes", "solved", title="Episodes until solved (median over seeds)")
    for column in table.columns[1:]:
        column.justify = "right"
    order = list(labels)
    for median in sorted(chain_figure.medians(outcomes), key=lambda m: (order.index(m.exploration), m.length)):
        solved = f"{'yes' if median.solved else 'no'} ({median.solved_seeds} of {median.seeds})"
        episodes = f"{median.episodes:g}" if median.solved else f"over {median.episodes:g}"
        table.add_row(labels[median.exploration], str(median.length), episodes, solved)
    Console().print(table)


def _draw_chain(outcomes: list[chain_figure.Outcome], directory: Path) -> None:
    from paramnoise.experiments.plots import plot_chain as draw  # matplotlib is slow to import

    draw(outcomes, directory / "chain.png")
