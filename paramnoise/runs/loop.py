"""The loop of a run: made from its config, saved as a checkpoint, and brought back to one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paramnoise.envs import EnvLike, env_source
from paramnoise.loops.host import HostLoop
from paramnoise.runs import checkpoint
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.validation import RunError, UsageError, one_line


def make_loop(configs: Sequence[RunConfig], env: EnvLike) -> HostLoop:
    """The loop of configs that differ in their seeds alone, for an environment, before its first step."""
    config = configs[0]
    source = env_source(env, config.env_kwargs if isinstance(env, str) else None)
    num_envs = source.num_envs or config.num_envs
    if config.num_envs not in (1, num_envs):
        raise UsageError(f"num_envs is {config.num_envs}, but the vector environment {config.env} has {num_envs}")
    learner = config.made_by.build(config.agent, config.env, source.observation_space, source.action_space)
    return HostLoop(
        learner,
        config.exploration,
        source,
        seeds=[each.seed for each in configs],
        num_envs=num_envs,
        eval_max_steps=config.eval_max_steps,
        log_every=config.log_every,
        overlap=config.overlap,
        terminal_time_limits=config.terminal_time_limits,
        replay_on=config.replay_on,
        save_replay=config.save_replay,
        devices=config.devices,
    )


def save_loop(loop: HostLoop, directory: Path, facts: dict[str, Any]) -> None:
    """Writes a checkpoint of a loop of one seed, unless its parameters are not finite: then the one before is kept."""
    stage_loop(loop, 0, directory, facts)()


def stage_loop(loop: HostLoop, member: int, directory: Path, facts: dict[str, Any]) -> Callable[[], None]:
    """Writes a checkpoint of one of the seeds beside the one before; the function returned puts it in its place."""
    check_finite(loop, member)
    state, own = loop.snapshot(member)
    return checkpoint.stage(directory, state, own, {"step": loop.step, **facts})


def load_loop(loop: HostLoop, directory: Path, member: int = 0) -> dict[str, Any]:
    """Brings one of the seeds of a fresh loop of the same config to its checkpoint; returns the checkpoint's facts.

    Of a checkpoint without experience (`holds_experience` is false) the loop knows what was learned, and cannot go on.
    """
    template = loop.state(member)
    if not checkpoint.facts(directory).get("holds_experience", True):
        state, _, facts = checkpoint.load(directory, template._replace(experience=()))
        loop.restore_learned(state, member)
        return facts
    state, own, facts = checkpoint.load(directory, template)
    try:
        loop.restore(state, own, member)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, UsageError):
            raise
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UsageError(f"checkpoint {directory} does not fit its config: {reason}") from error
    return facts


def load_checked(loop: HostLoop, config: RunConfig, directory: RunDirectory) -> dict[str, Any]:
    """As `load_loop`, for a run directory whose other files must be those that its checkpoint was written with."""
    facts = load_loop(loop, directory.checkpoint)
    directory.check_digests(facts.get("digests", {}), config, facts["step"])
    return facts


def check_finite(loop: HostLoop, member: int) -> None:
    """Raises RunError if an array of the learner, such as a weight, holds NaN or infinity."""
    for name, leaf in checkpoint.named_leaves(loop.state(member, experience=False).learner).items():
        if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all():
            which = f" of seed {loop.seeds[member]}" * (len(loop.seeds) > 1)
            what = f"{name}{which} is not finite by step {loop.step}"
            raise RunError(f"{what}: learning has diverged (a lower rate may help)")
