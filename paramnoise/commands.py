"""What each command of the command line does."""

import importlib.util
from collections.abc import Iterable
from pathlib import Path

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version

from paramnoise import api
from paramnoise.claims import CLAIMS, judge
from paramnoise.claims import report as claims_report
from paramnoise.envs.base import ENVS, FAMILIES, EnvEntry, Preset, preset
from paramnoise.parallel.process import INTERRUPTED
from paramnoise.parallel.ray_cluster import connect
from paramnoise.runs.config import RunConfig
from paramnoise.runs.run import run, set_up_process
from paramnoise.runs.video import check_path
from paramnoise.validation import UsageError, require


def train(
    config: RunConfig, run_dir: Path | None, *, resume: bool, checkpoint_seconds: float, tensorboard: bool
) -> int:
    """`paramnoise train`; without `run_dir` the run has a directory below runs/."""
    path = run_dir or _default_run_dir(config, resume)
    set_up_process(config, config.env)
    if getattr(config.agent, "engine", None) == "ray":
        connect(config.agent.ray_address, config.agent.workers)  # an error before anything is written
    summary = run(
        config,
        path,
        resume=resume,
        checkpoint_seconds=checkpoint_seconds,
        tensorboard=tensorboard,
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


def claims(results: Path, out: Path | None, readme: tuple[Path, ...]) -> int:
    """`paramnoise claims`."""
    if not results.is_dir():
        raise UsageError(f"{results} is not a directory: give one that holds results of figures with --results")
    path = out or results / claims_report.JSON
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory: --out takes a file in one that is there")
    outcomes = [judge(claim, results) for claim in CLAIMS]
    pages = {page: claims_report.with_tables(page, outcomes) for page in readme}
    for page, text in pages.items():
        claims_report.write_text(text, page)
    claims_report.write_json(outcomes, path)
    claims_report.print_table(outcomes)
    print(path)
    return 0


def envs() -> int:
    """`paramnoise envs`."""
    groups: dict[str, list[EnvEntry]] = {}
    for entry in ENVS.values():
        groups.setdefault(entry.group, []).append(entry)
    for group, entries in groups.items():
        print(f"{group[0].upper()}{group[1:]}:")
        for entry in entries:
            if entry.help:
                print(f"  {entry.id:<36} {entry.help}")
        _print_names(entry.id for entry in entries if not entry.help)
        print()
    for family in FAMILIES.values():
        print(f"{family.group}{_install_note(*family.needs) if family.needs else ''}:")
        _print_names(family.members)
        print()
    _print_gymnasium()
    return 0


def _print_gymnasium() -> None:
    print("Gymnasium's (any registered id works where the action space fits; other names mean the newest, as listed):")
    kinds: dict[str, list[str]] = {}
    for spec in gym.registry.values():
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs."):
            newest = kinds.setdefault(spec.entry_point.split(".")[2].split(":")[0], [])
            if spec.version == find_highest_version(spec.namespace, spec.name):
                newest.append(spec.id)
    needs = {"box2d": "Box2D", "mujoco": "mujoco"}
    for kind, newest in kinds.items():
        note = _install_note(needs[kind], kind) if kind in needs else ""
        print(f"  {kind}{note}: {', '.join(newest)}")


def _print_names(names: Iterable[str]) -> None:
    if line := ", ".join(names):
        print(f"  {line}")


def _install_note(module: str, extra: str) -> str:
    """How to install an extra, if its module is missing."""
    return "" if importlib.util.find_spec(module) else f" (needs: pip install 'paramnoise[{extra}]')"


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
    names = ("steps", "num_envs", "overlap", "terminal_time_limits", "eval_every", "eval_episodes")
    print("  run: " + ", ".join(f"{name} {values[name]}" for name in names))
    if known != Preset():
        preset_names = [
            *known.for_agent(config.algorithm).with_exploration(config.exploration.kind),
            *known.for_agent(config.algorithm).explorations.get(config.exploration.kind, {}),
            *known.run,
        ]
        print(f"  from the preset of {config.env}, unless set by you: {', '.join(preset_names)}")
    print(f"  directory: {path}", flush=True)
