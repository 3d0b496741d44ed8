"""Reads the files of a run directory, which may come from a stranger: what they declare is checked first.

A pipe or a device in place of a file is refused, since reading it might never end; JSON has a greatest size and depth;
an array is read only if its archive is as long as the array's header says.
"""

import contextlib
import json
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from paramnoise.validation import UsageError

MOST_JSON = 16 * 2**20
"""Bytes of the largest JSON file that is read; ours have thousands."""
DEEPEST_JSON = 50
"""Levels of the deepest JSON value that is read; ours have five."""


class Header(NamedTuple):
    """What an archive says of one of its arrays."""

    shape: tuple[int, ...]
    dtype: np.dtype


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a file to read it; raises UsageError if it is none, such as a pipe, which could keep a reader for ever."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"{path} is damaged: it is not a plain file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_text(path: Path) -> str:
    """A file's text; bytes that are none are shown as such."""
    with opened(path) as file:
        return file.read().decode(errors="replace")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds; raises UsageError if it holds none, or one that no run has."""
    with opened(path) as file:
        content = file.read(MOST_JSON + 1)
    if len(content) > MOST_JSON:
        raise UsageError(f"{path} is damaged: it is larger than {MOST_JSON // 2**20} MiB")
    try:
        value = json.loads(content)
    except RecursionError:
        raise UsageError(f"{path} is damaged: its JSON is nested too deeply") from None
    except ValueError:
        raise UsageError(f"{path} is damaged: it is not JSON") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path} is damaged: it is not a JSON object")
    if _is_deeper(value, DEEPEST_JSON):
        raise UsageError(f"{path} is damaged: its JSON is nested too deeply")
    return value


def read_arrays(file: BinaryIO, check: Callable[[dict[str, Header]], None]) -> dict[str, np.ndarray]:
    """The arrays of an archive of `numpy.savez`, once `check` has seen what their headers say.

    Memory is taken for no more than the archive's own size.

    Raises:
        ValueError: if an array is compressed, is pickled, or is not as long as its header says.
        zipfile.BadZipFile: if it is no archive, or damaged.
    """
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > os.fstat(file.fileno()).st_size:
            raise ValueError("the archive declares more than it holds")
        names = {entry.filename.removesuffix(".npy"): entry for entry in entries}
        check({name: _header(archive, entry) for name, entry in names.items()})
        arrays = {}
        for name, entry in names.items():
            with archive.open(entry) as part:
                arrays[name] = np.lib.format.read_array(part, allow_pickle=False)
        return arrays


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Header:
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{entry.filename} is compressed")
    with archive.open(entry) as part:
        version = np.lib.format.read_magic(part)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"{entry.filename} has a header of version {version}")
        shape, _, dtype = readers[version](part)
        declared = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0 or declared != entry.file_size - part.tell():
            raise ValueError(f"{entry.filename} is not as long as its header says")
    return Header(shape, dtype)


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether a JSON value has more levels than these."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(inner) and (levels == 0 or any(_is_deeper(each, levels - 1) for each in inner))
