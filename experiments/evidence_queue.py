"""What the queue of the evidence holds: figures in their order, and how each is asked for."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paramnoise.figures import FIGURES
from paramnoise.figures.base import Figure
from paramnoise.validation import lookup


class Item(NamedTuple):
    """A figure of the queue."""

    figure: str
    options: Mapping[str, tuple[str, ...]] = {}
    """Of `paramnoise reproduce`, where not all of the scale is asked for."""


QUEUE = (
    Item("trpo-sparse"),
    Item("ddpg-dense"),
    Item("time-limits"),
    Item("ablations"),
    Item("ablations-chain"),
    Item("chain"),
    Item("ddpg-sparse"),
    Item("ddpg-sparse-l2"),
    Item("trpo-dense"),
    Item("es", {"envs": ("Hopper", "InvertedPendulum")}),  # what its other tasks need is known; see results/es
    Item("rivals-chain"),
    Item("rivals-dqn"),
    Item("rivals-ppo"),
    Item("rivals-trpo"),
    Item("rivals-td3"),
    Item("rivals-sac"),
    Item("rivals-ddpg"),
)
"""In the order in which they are run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asked for."""

    out: Path
    scale: str
    workers: int
    items: Sequence[Item]

    def arguments(self, item: Item) -> Any:
        """What a figure is asked for, as an object of its class of arguments."""
        options: dict[str, Any] = {"scale": self.scale, "out": self.out, "workers": self.workers, **item.options}
        return find(item).arguments(**options)

    def command(self, item: Item) -> list[str]:
        """The same as a command."""
        options = {"scale": (self.scale,), "out": (str(self.out),), "workers": (str(self.workers),), **item.options}
        words = [word for name, values in options.items() for word in (f"--{name}", *values)]
        return [sys.executable, "-m", "paramnoise", "reproduce", item.figure, *words]


def find(item: Item) -> Figure[Any]:
    """The figure of an item."""
    return lookup("figure", item.figure, FIGURES)
