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
from gymnasium.envs.registration import find_highest_version

from paramnoise import api
from paramnoise.agents.base import AgentEntry
from paramnoise.envs.atari import GAMES, is_atari
from paramnoise.envs.base import ENVS, Preset, preset
from paramnoise.envs.continuous import DENSE
from paramnoise.parallel.ray_cluster import connect
from paramnoise.runs.config import RunConfig, RunSettings, make_config
from paramnoise.runs.run import run
from paramnoise.runs.video import check_path
from paramnoise.validation import UsageError, require

INTERRUPTED = 128
"""Added to a signal's number, it is the exit status of a stopped command."""


def train(algorithm: AgentEntry, args: Any) -> int:
    """`paramnoise train`; `args` is `cli.Train`."""
    kind, *settings = args.exploration or (algorithm.default_exploration,)
    config = make_config(
        algorithm.name,
        args.env,
        key_values("--env-kwargs", args.env_kwargs),
        exploration=kind,
        exploration_settings=key_values("--exploration", settings),
        agent=dataclasses.asdict(args.agent),
        **{field.name: getattr(args, field.name) for field in dataclasses.fields(RunSettings)},
    )
    path = args.run_dir or _default_run_dir(config, args.resume)
    use_compilation_cache()
    if algorithm.experience == "returns" or not is_atari(args.env):  # workers are how a population uses more cores
        use_one_thread()
    if getattr(config.agent, "engine", None) == "ray":
        connect(config.agent.ray_address, config.agent.workers)  # an error before anything is written
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


def envs() -> int:
    """`paramnoise envs`."""
    print("Ours (names without namespace and version work too):")
    for entry in ENVS.values():
        if entry.help:
            print(f"  {entry.id:<36} {entry.help}")
    print("\nThe paper's dense tasks (by name: HalfCheetah is HalfCheetah-v4):")
    print(f"  {', '.join(DENSE)}")
    needed = "" if importlib.util.find_spec("ale_py") else " (needs: pip install 'paramnoise[atari]')"
    print(f"\nAtari, the paper's 21 games{needed}; any other of ale-py's works too:")
    print(f"  {', '.join(GAMES)}")
    print(
        "\nGymnasium's (any registered id works where the action space fits; other names mean the newest, as listed):"
    )
    families: dict[str, list[str]] = {}
    for spec in gym.registry.values():
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs."):
            family = spec.entry_point.split(".")[2].split(":")[0]
            newest = families.setdefault(family, [])
            if spec.version == find_highest_version(spec.namespace, spec.name):
                newest.append(spec.id)
    needs = {"box2d": "Box2D", "mujoco": "mujoco"}
    for family, newest in families.items():
        missing = family in needs and importlib.util.find_spec(needs[family]) is None
        note = f" (needs: pip install 'paramnoise[{family}]')" if missing else ""
        print(f"  {family}{note}: {', '.join(newest)}")
    return 0


def use_compilation_cache() -> None:
    """Keeps compiled programs between runs, in the user's cache unless JAX was told another place."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "paramnoise" / "xla"))


def use_one_thread() -> None:
    """Gives XLA one thread on a CPU, unless PJRT_NPROC says otherwise; it is read when JAX first computes.

    More threads slow small networks down, and take the core on which the environments could step meanwhile.
    """
    os.environ.setdefault("PJRT_NPROC", "1")


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
    names = ("steps", "num_envs", "overlap", "eval_every", "eval_episodes")
    print("  run: " + ", ".join(f"{name} {values[name]}" for name in names))
    if known != Preset():
        preset_names = [
            *known.of(config.algorithm).with_exploration(config.exploration.kind),
            *known.of(config.algorithm).explorations.get(config.exploration.kind, {}),
            *known.run,
        ]
        print(f"  from the preset of {config.env}, unless set by you: {', '.join(preset_names)}")
    print(f"  directory: {path}", flush=True)
