"""A Ray cluster, one that exists or one on this machine that ends with this process: joining it, asking it for room."""

import contextlib
import logging
import math
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
RETRIES = 3
"""How often a piece of work is tried again whose process or node has died."""


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


def remote(what: Any, **options: Any) -> Any:
    """A function or class that runs on the cluster, with Ray's options."""
    import ray

    return ray.remote(**options)(what)


def machine_share(workers: int | None) -> dict[str, float]:
    """What Ray is asked for by each of so many pieces of work that would fill a machine.

    Where the cluster has GPUs, that is a GPU, or a part of one if there are fewer GPUs than pieces at once. Otherwise
    it is the CPUs of its largest node, or a part of them if there are fewer nodes than pieces at once.

    Args:
        workers: pieces at once; None: as many as there are GPUs, or nodes.
    """
    import ray

    gpus = ray.cluster_resources().get("GPU", 0)
    if gpus:
        return {"num_cpus": 1, "num_gpus": 1 / math.ceil((workers or gpus) / gpus)}
    nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    nodes = [cpus for cpus in nodes if cpus] or [1]
    cpus = max(nodes) / math.ceil((workers or len(nodes)) / len(nodes))
    return {"num_cpus": math.floor(cpus) if cpus > 1 else cpus}


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
