"""A saved agent: a directory with its config and a checkpoint, as a run has them; and what a pickle takes of it."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv

from paramnoise.envs import EnvLike
from paramnoise.loops.host import HostLoop
from paramnoise.networks.own import OWN_PARTS
from paramnoise.runs import lock
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.loop import load_checked, save_loop
from paramnoise.runs.machine import fitting_here
from paramnoise.validation import UsageError, require_extra


def save(loop: HostLoop, config: RunConfig, path: Path) -> None:
    """Writes the config and the whole loop, replay included; what is no agent that was saved is not written over."""
    if path.exists() and not (path / "config.json").exists() and (path.is_file() or any(path.iterdir())):
        raise UsageError(f"{path} exists and is not a saved agent: choose another path")
    directory = RunDirectory(path)
    directory.check_links()
    if any((path / name).exists() for name in ("progress.csv", "summary.json", lock.NAME)):
        raise UsageError(f"{path} holds a run, whose files belong together: choose another path")
    config.to_json()  # refuses what could not be loaded, before anything is written
    save_loop(loop, path / "checkpoint", {"wall_time": 0.0, "digests": {"config": config.digest()}})
    directory.write_config(config)


def read_config(directory: RunDirectory, env: EnvLike | None, parts: Mapping[str, Any]) -> RunConfig:
    """The config as this machine can go on with it, if its environment is given or may be made by its id."""
    config = fitting_here(directory.config(parts))
    if env is None and not config.env_is_id:
        raise UsageError(f"{directory.path} was made with an environment object ({config.env}): pass env= to load it")
    if env is None:
        directory.check_env(config)
    return config


def restore(loop: HostLoop, config: RunConfig, directory: RunDirectory) -> bool:
    """Brings a fresh loop to the directory's checkpoint; returns whether that holds the experience to learn on."""
    return load_checked(loop, config, directory).get("holds_experience", True)


def read_history(directory: RunDirectory) -> list[dict[str, float]]:
    """The rows of progress of a run, as numbers; those of an agent that was saved alone are none."""
    return [{name: _number(text) for name, text in row.items()} for row in directory.rows()]


def _number(text: str) -> float:
    """A value of progress.csv."""
    return int(text) if text.isdigit() else float(text or "nan")


def export(parameters: Mapping[str, np.ndarray], facts: dict[str, str], path: Path) -> None:
    """Writes arrays by name, and facts of theirs, as a safetensors file."""
    require_extra("safetensors", "safetensors", "export")
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in parameters.items()}, path, facts)


def unnamed_parts(config: RunConfig) -> dict[str, Any]:
    """The networks and the optimizer that were given as objects, by their fields: files hold names alone."""
    given = {name: getattr(config.agent, name, None) for name in OWN_PARTS}
    return {name: part for name, part in given.items() if part is not None and not isinstance(part, str)}


def copyable(env: EnvLike) -> EnvLike:
    """An environment that was given as an object, to be copied with its agent; trying to copy some would break them."""
    if isinstance(getattr(env, "unwrapped", env), AsyncVectorEnv):
        raise UsageError("an AsyncVectorEnv's processes cannot be copied: save the agent, and load it with another")
    return env


def files_of(write: Callable[[Path], None]) -> dict[str, bytes]:
    """The files that a function writes into a directory, by their paths in it."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return {str(file.relative_to(folder)): file.read_bytes() for file in Path(folder).rglob("*.*")}


@contextlib.contextmanager
def folder_of(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A directory that holds files given by their paths in it, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        yield Path(folder)
