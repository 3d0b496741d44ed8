"""Where the pieces of a sweep run: processes of this machine, or a Ray cluster."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from paramnoise.parallel import sweep
from paramnoise.parallel.ray_cluster import check_installed, connect
from paramnoise.parallel.sweep import Event, cores
from paramnoise.validation import UsageError, require

RunAll = Callable[..., Iterator[Event]]
"""work, tasks, stop, log -> what happens to each task."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine:
    """How a sweep is run; it changes no result."""

    name: Literal["local", "ray"] = "local"
    """Worker processes here, or Ray tasks."""
    workers: int | None = None
    """Pieces at once; None: one per core here, or as many as the Ray cluster has CPUs."""
    ray_address: str | None = None
    """The address of a Ray cluster; None: one on this machine that ends with the sweep."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            require(self.workers >= 1, "workers", self.workers, "at least 1")
        if self.ray_address is not None and self.name != "ray":
            raise UsageError(f"--ray-address {self.ray_address} needs --engine ray")
        if self.name == "ray":
            check_installed()

    def __str__(self) -> str:
        if self.name == "local":
            return f"{self.workers or cores()} workers"
        limit = f", at most {self.workers} at once" if self.workers else ""
        return f"Ray {f'at {self.ray_address}' if self.ray_address else 'on this machine'}{limit}"

    def place(self, out: Path) -> Path:
        """The directory of a sweep as its workers see it: those of Ray need not have our working directory."""
        return out.absolute() if self.name == "ray" else out

    def connect(self) -> RunAll:
        """What runs a sweep."""
        if self.name == "local":
            return functools.partial(sweep.run_all, workers=self.workers or cores())
        connect(self.ray_address, self.workers or cores())
        from paramnoise.parallel import ray_sweep

        return functools.partial(ray_sweep.run_all, workers=self.workers)
