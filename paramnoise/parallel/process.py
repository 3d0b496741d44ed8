"""What a process sets up for itself: where it computes, with how many threads, where compiled programs are kept."""

import os
import traceback
from pathlib import Path
from typing import Literal, get_args

import jax

from paramnoise.validation import RunError, UsageError, lookup

Device = Literal["cpu", "gpu"]

INTERRUPTED = 128
"""Added to a signal's number, it is the exit status of a command that the signal stopped."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_device(device: Device) -> None:
    """Lets this process compute on a CPU or on a GPU, whatever JAX_PLATFORMS says; call it before anything is computed.

    Raises:
        UsageError: if there is no such device, or JAX has started on another one.
    """
    lookup("device", device, dict.fromkeys(get_args(Device)))
    before = jax.config.values["jax_platforms"]
    # JAX takes a GPU by itself; told "gpu", it wants those of every maker. And replay on the host needs the CPU too.
    jax.config.update("jax_platforms", "cpu" if device == "cpu" else "")
    found = jax.default_backend()  # starts JAX, unless it has started before
    if found == device:
        return
    jax.config.update("jax_platforms", before)
    remedy = "choose a device before anything is computed"
    if device == "gpu":
        remedy = f"a GPU needs an NVIDIA driver and pip install 'paramnoise[cuda]'; {remedy}"
    raise UsageError(f"JAX computes on the {found}, not on a {device}: {remedy}")


def compute_on_cpu() -> None:
    """Leaves an accelerator alone, unless JAX_PLATFORMS says otherwise: many small processes do not share one well."""
    if not os.environ.get("JAX_PLATFORMS"):
        jax.config.update("jax_platforms", "cpu")


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


def told(error: Exception) -> tuple[str, str]:
    """An error of a worker as `RunError` takes it in another process: its line, and its details or traceback."""
    if isinstance(error, RunError | UsageError):
        return one_line(error), getattr(error, "details", "")
    return one_line(error), "".join(traceback.format_exception(error))


def one_line(error: Exception) -> str:
    """An error as one line for people; its type is named unless the error is written for users."""
    text = " ".join(str(error).split())
    return text if isinstance(error, RunError | UsageError) else f"{type(error).__name__}: {text}"
