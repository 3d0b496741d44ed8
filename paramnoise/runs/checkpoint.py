"""Checkpoints: JSON and raw arrays, no pickle; written whole or not at all, and checked when read.

checkpoint/arrays-DIGEST.npz    every array
checkpoint/checkpoint.json      which file, its SHA-256, and small facts; replaced last, so it names whole arrays
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from paramnoise.runs.reading import Header, opened, read_arrays, read_json
from paramnoise.validation import UsageError
from paramnoise.version import __version__

State = TypeVar("State")
INDEX = "checkpoint.json"
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Opens a file and never what a link points to: a run directory may come from elsewhere."""
FORMAT = 2
"""Changes when checkpoints of before can no longer be read; paramnoise 0.1 wrote 1."""


def save(directory: Path, state: Any, own: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Writes a checkpoint over the one before.

    Args:
        directory: the checkpoint's folder, made if it is missing.
        state: a pytree of arrays.
        own: further arrays by name, whose shapes may change from one checkpoint to the next.
        facts: small JSON values.
    """
    stage(directory, state, own, facts)()


def stage(directory: Path, state: Any, own: dict[str, np.ndarray], facts: dict[str, Any]) -> Callable[[], None]:
    """Writes a checkpoint's arrays beside the one before; the function that it returns puts it in that one's place.

    Checkpoints that belong together are all staged before the first takes its place.
    """
    directory.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {f"state/{name}": leaf for name, leaf in named_leaves(state).items()}
    arrays |= {f"own/{name}": array for name, array in own.items()}
    content = io.BytesIO()
    np.savez(content, **arrays)
    digest = hashlib.sha256(content.getbuffer()).hexdigest()
    # Named by its content: a new file never takes the place of the one that the index still names.
    data = directory / f"arrays-{digest[:16]}.npz"
    write_atomically(data, lambda file: file.write(content.getbuffer()))
    index = {"format": FORMAT, "made_by": __version__, "file": data.name, "sha256": digest, "facts": facts}

    def commit() -> None:
        write_atomically(directory / INDEX, lambda file: file.write(json.dumps(index, indent=2).encode()))
        for old in (*directory.glob("arrays-*.npz"), *directory.glob(".*.tmp")):
            if old != data:
                old.unlink()

    return commit


def load(directory: Path, template: State) -> tuple[State, dict[str, np.ndarray], dict[str, Any]]:
    """Reads a checkpoint: the state, in the structure of `template`, the further arrays, and the facts.

    Raises:
        UsageError: if the checkpoint is missing, damaged, of another structure, or of another version's format.
    """
    index = _read_index(directory)
    data = directory / index["file"]
    if not data.exists():
        raise UsageError(f"checkpoint {directory} is damaged: {data.name} is missing")
    wanted = {f"state/{name}": leaf for name, leaf in named_leaves(template).items()}

    def check(headers: dict[str, Header]) -> None:
        for name, leaf in wanted.items():
            if name not in headers:
                raise UsageError(f"checkpoint {directory} does not fit its config: {name} is missing")
            shape, dtype = headers[name]
            if (shape, dtype) != (leaf.shape, leaf.dtype):
                reason = f"{name} is {dtype}{list(shape)}, here it would be {leaf.dtype}{list(leaf.shape)}"
                raise UsageError(f"checkpoint {directory} does not fit its config or environment: {reason}")

    with opened(data) as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != index["sha256"]:  # type: ignore[arg-type]
            raise UsageError(f"checkpoint {directory} is damaged: {data.name} does not match its checksum")
        try:
            arrays = read_arrays(file, check)
        except UsageError:
            raise
        except (ValueError, EOFError, NotImplementedError, zipfile.BadZipFile):
            raise UsageError(f"checkpoint {directory} is damaged: {data.name} cannot be read") from None
    own = {name.removeprefix("own/"): array for name, array in arrays.items() if name.startswith("own/")}
    # Copies that XLA owns: the loops donate them, and a borrowed NumPy buffer must not be written to.
    leaves = [jax.numpy.array(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(template), leaves), own, index["facts"]


def is_in(directory: Path) -> bool:
    """Whether a directory holds a checkpoint, whole or damaged."""
    return (directory / INDEX).exists()


def saved_step(directory: Path) -> int:
    """The step of a directory's checkpoint; 0 if there is none, or none that can be read: who loads it says why."""
    try:
        return int(facts(directory)["step"]) if is_in(directory) else 0
    except (UsageError, KeyError, TypeError, ValueError):
        return 0


def facts(directory: Path) -> dict[str, Any]:
    """The small facts of a checkpoint, whose arrays are not read; raises UsageError as `load` does."""
    return _read_index(directory)["facts"]


def write_atomically(path: Path, write: Callable[[Any], Any]) -> None:
    """Writes a file so that a reader, or a crash, sees the old content or the new, never a part."""
    temporary = temporary_of(path)
    with naming(path):
        _check_replaceable(path)
        temporary.unlink(missing_ok=True)  # of a run that was killed; a link is removed, not followed
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):  # a part of a file on a full disk only keeps it full
                temporary.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)


def _check_replaceable(path: Path) -> None:
    """Raises OSError if what has a file's name is none, such as a device, which a rename would destroy."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise FileExistsError(errno.EEXIST, "it is not a plain file, and is not replaced", str(path))


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds a file's name to an error of the operating system that does not tell one, as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def temporary_of(path: Path) -> Path:
    """The name under which a file is written before it takes its place."""
    return path.with_name(f".{path.name}.tmp")


def named_leaves(state: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree by their path in it, such as `learner/networks/actor/layers/0/weight`."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    return dict(zip(names, jax.device_get([leaf for _, leaf in leaves]), strict=True))


def _sync_directory(directory: Path) -> None:
    """Makes renames in a directory last: without it a power cut may keep a later deletion and lose the rename."""
    if os.name != "posix":  # elsewhere a directory cannot be opened
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_index(directory: Path) -> dict[str, Any]:
    path = directory / INDEX
    if not path.exists():
        raise UsageError(f"no checkpoint in {directory}")
    try:
        index = read_json(path)
        index = {name: index[name] for name in ("format", "file", "sha256", "facts")} | {
            "made_by": index.get("made_by", "0.1")
        }
    except KeyError:
        raise UsageError(f"{path} is damaged: it is not a checkpoint's index") from None
    if index["format"] != FORMAT:
        raise UsageError(
            f"checkpoint {directory} was made by paramnoise {index['made_by']} (format {index['format']}), and this "
            f"version reads format {FORMAT} alone: use that version for it, or train anew"
        )
    if not _is_sound(index):
        raise UsageError(f"{path} is damaged: it is not a checkpoint's index")
    return index


def _is_sound(index: dict[str, Any]) -> bool:
    """Whether what an index says is of the types that it should be, and names a file beside it."""
    name, facts = index["file"], index["facts"]
    if not (isinstance(name, str) and isinstance(index["sha256"], str) and isinstance(facts, dict)):
        return False
    kinds: dict[str, Any] = {"step": int, "wall_time": int | float, "holds_experience": bool, "digests": dict}
    is_beside = name not in ("", "..") and Path(name).name == name
    return is_beside and all(isinstance(facts[fact], kind) for fact, kind in kinds.items() if fact in facts)
