"""The way to a Ray cluster: one that exists, or one on this machine that ends with this process."""

import contextlib
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from paramnoise.validation import UsageError, require_extra

POLL_SECONDS = 0.5
KNOCK_SECONDS = 10.0


def check_installed() -> None:
    """Raises UsageError with the command that installs Ray, if it is missing."""
    require_extra("ray", "ray", "runs on Ray")


def connect(address: str | None, cpus: int) -> None:
    """Joins the cluster at an address, or starts one here with so many CPUs; who has joined one stays in it."""
    check_installed()
    import ray

    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        with warnings.catch_warnings(), _own_sigterm():
            # Ray forks to start other programs, which do not touch JAX's threads.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            _init(ray, address, cpus)
    except (OSError, ValueError, RuntimeError) as error:
        if address is None:
            raise
        raise UsageError(
            f"no Ray cluster answers at {address!r} ({type(error).__name__}): start one with `ray start --head`, or "
            "leave --ray-address out for one on this machine"
        ) from None


def _init(ray: Any, address: str | None, cpus: int) -> None:
    common: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        ray.init("local", num_cpus=cpus, include_dashboard=False, **common)
    else:
        _knock(address)
        ray.init(address, **common)


def _knock(address: str) -> None:
    """Raises an error if nobody listens at HOST:PORT: Ray itself would go on trying for minutes."""
    host, colon, port = address.rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), KNOCK_SECONDS).close()


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keeps what SIGTERM does here, which Ray would take over."""
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    yield
    if is_main and handler is not None:
        signal.signal(signal.SIGTERM, handler)
