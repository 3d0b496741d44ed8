"""Where the pieces of a sweep run: processes of this machine, or a Ray cluster."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from paramnoise.parallel import sweep
from paramnoise.parallel.process import cores
from paramnoise.parallel.ray_cluster import check_installed, connect
from paramnoise.parallel.sweep import Event
from paramnoise.validation import UsageError, require

RunAll = Callable[..., Iterator[Event]]
"""work, tasks, should_stop, log -> what happens to each task."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine:
    """How a sweep is run; it changes no result."""

    name: Literal["local", "ray"] = "local"
    """Worker processes here, or Ray tasks."""
    workers: int | None = None
    """Pieces at once; None: as many as this machine, or the Ray cluster, has room for."""
    ray_address: str | None = None
    """The address of a Ray cluster; None: one on this machine that ends with the sweep."""
    whole_machine: bool = False
    """Whether a piece fills a machine, with its accelerator, rather than one core."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            require(self.workers >= 1, "workers", self.workers, "at least 1")
        if self.ray_address is not None and self.name != "ray":
            raise UsageError(f"--ray-address {self.ray_address} needs --engine ray")
        if self.name == "ray":
            check_installed()

    @property
    def local_workers(self) -> int:
        """Worker processes on this machine."""
        return self.workers or (1 if self.whole_machine else cores())

    def __str__(self) -> str:
        if self.name == "local":
            return f"{self.local_workers} worker{'s' * (self.local_workers != 1)}"
        limit = f", at most {self.workers} at once" if self.workers else ""
        return f"Ray {f'at {self.ray_address}' if self.ray_address else 'on this machine'}{limit}"

    def place(self, out: Path) -> Path:
        """The directory of a sweep as its workers see it: those of Ray need not have our working directory."""
        return out.absolute() if self.name == "ray" else out

    def connect(self) -> RunAll:
        """What runs a sweep."""
        if self.name == "local":
            return functools.partial(sweep.run_all, workers=self.local_workers, whole_machine=self.whole_machine)
        connect(self.ray_address, cores() if self.whole_machine else self.workers or cores())
        from paramnoise.parallel import ray_sweep

        return functools.partial(ray_sweep.run_all, workers=self.workers, whole_machine=self.whole_machine)
