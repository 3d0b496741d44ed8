"""One run: a config and a directory in, progress and a checkpoint out, resumable at any time."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym

from paramnoise.envs import env_factory
from paramnoise.training import checkpoint
from paramnoise.training.config import RunConfig
from paramnoise.training.display import bar, describe, stop_on_signals
from paramnoise.training.host import HostLoop
from paramnoise.training.run_directory import RunDirectory

BAR_EVERY = 100
"""Steps between moves of the progress bar."""


def build_loop(config: RunConfig, make_env: Callable[[], gym.Env]) -> HostLoop:
    """The host loop of a config, before its first step."""
    probe = make_env()
    learner = config.made_by.build(config.agent, config.env, probe.observation_space, probe.action_space)
    probe.close()
    return HostLoop(
        learner,
        config.exploration,
        make_env,
        seed=config.seed,
        num_envs=config.num_envs,
        eval_max_steps=config.eval_max_steps,
    )


def save_loop(loop: HostLoop, directory: Path, wall_time: float) -> None:
    """Writes a checkpoint of a loop."""
    state, own = loop.snapshot()
    checkpoint.save(directory, state, own, {"step": loop.step, "wall_time": wall_time})


def load_loop(loop: HostLoop, directory: Path) -> dict[str, Any]:
    """Brings a fresh loop of the same config to its checkpoint; returns the checkpoint's facts."""
    state, own, facts = checkpoint.load(directory, loop.state)
    loop.restore(state, own)
    return facts


def run(
    config: RunConfig, path: Path, *, resume: bool = False, on_start: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Trains to the end, or until Ctrl-C or SIGTERM, and returns the summary.

    A checkpoint follows every evaluation and every stop; a resumed run goes on exactly where its checkpoint was.
    `on_start` is called once the environment and the directory have proved usable.
    """
    loop = build_loop(config, env_factory(config.env, config.env_kwargs))
    directory = RunDirectory(path)
    directory.claim(config, resume)
    on_start()
    wall_before = 0.0
    if resume and (directory.checkpoint / checkpoint.INDEX).exists():
        wall_before = load_loop(loop, directory.checkpoint)["wall_time"]
    directory.forget_rows_after(loop.step)
    started, first_step = time.perf_counter(), loop.step

    def wall_time() -> float:
        return wall_before + time.perf_counter() - started

    with bar(config.steps, f"{config.algorithm} {config.env}", "steps") as shown, stop_on_signals() as stop:

        def on_step(step: int) -> None:
            if step // BAR_EVERY > (step - config.num_envs) // BAR_EVERY:
                shown.advance_to(step)

        rows = loop.run(
            config.steps,
            eval_every=config.eval_every,
            eval_episodes=config.eval_episodes,
            on_step=on_step,
            should_stop=lambda: bool(stop),
        )
        for row in rows:
            seconds = time.perf_counter() - started
            row |= {"steps_per_second": (loop.step - first_step) / seconds, "wall_time": wall_time()}
            directory.append(row)
            save_loop(loop, directory.checkpoint, wall_time())
            shown.line(describe(row))
    unfinished = loop.step < config.steps
    summary = _summary(directory, loop.step, "interrupted" if unfinished else "finished", wall_time())
    if unfinished:
        save_loop(loop, directory.checkpoint, wall_time())
        summary["signal"] = stop.signal
    directory.write_summary(summary)
    loop.close()
    return summary


def _summary(directory: RunDirectory, step: int, status: str, wall_time: float) -> dict[str, Any]:
    returns = [float(row["eval_return_mean"]) for row in directory.rows()]
    return {
        "status": status,
        "steps": step,
        "final_eval_return_mean": returns[-1] if returns else None,
        "best_eval_return_mean": max(returns) if returns else None,
        "wall_time": wall_time,
    }
