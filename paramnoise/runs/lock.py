"""One writer per run directory: a lock that ends with its process, however it ends.

It is the operating system's (flock), so that nothing is left behind by a kill. It holds between processes of one
machine, and between machines where the file system passes it on: NFS since version 4 does, mounts with `nolock` do not.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from paramnoise.validation import UsageError

try:
    import fcntl
except ImportError:  # a system without it: nothing is locked
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
"""The file that is locked; it says who holds it."""


@contextlib.contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Holds the directory, which is made if it is missing, or raises UsageError with who holds it."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
                raise UsageError(f"{directory} is being written by {holder}: let it end, or stop it, first") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        os.close(descriptor)
