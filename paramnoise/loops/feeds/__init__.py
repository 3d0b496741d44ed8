"""How what happens in the environments reaches the learner: a feed for each kind of experience.

A feed takes in steps on the host, says when learning is due, and has the pure function that then learns from them.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

import numpy as np
from jax import Array

from paramnoise.loops.environments import EnvStep
from paramnoise.loops.state import TrainState


class Taken(NamedTuple):
    """What a feed hands over to be learned from, in one compiled call."""

    variant: Hashable
    """Decides the program: what `learn` must know before it is traced."""
    args: tuple[Any, ...]
    """The rest of what `learn` takes after the state."""
    step: int
    """The environment steps, over all environments of a seed, before what is handed over."""
    trains: bool
    """Whether train steps are due with it."""


def below(prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


class Feed(Protocol):
    """The host's side of one kind of experience."""

    experience: Any
    """What is stored on the device, between two calls of `learn`."""
    is_beside: bool
    """Whether a step is learned from while the environments do the next one; acting is then one step behind."""
    axes: tuple[int | None, ...]
    """The axis of seeds of each of `Taken.args`, where seeds train side by side."""
    waits: bool
    """Whether acting needs what was learned at once, and what was handed over must not change until then."""
    remedy: str
    """What may help where learning has diverged."""
    block: int | None
    """Vector steps whose noise on actions is drawn together; None: any number."""

    init: Callable[[Array, Array], TrainState]
    """key, what the environments show -> the state of one seed before the first step; a pure function."""
    learn: Callable[..., TrainState]
    """A variant, the state, what was taken -> the state after learning from it; a pure function."""
    settings: Hashable
    """What decides these two functions, besides the learner and the exploration."""

    holds: bool
    """Whether steps wait until an episode begins, which then needs what is learned from all of them."""

    def hold(self, *, for_episodes: bool) -> None:
        """Lets steps wait longer than until learning is due, where the feed can: as long as acting does not need it.

        That is until the policy changes or, `for_episodes`, until an episode begins, whose behaviour is then fixed.
        """

    def acts_at_random(self, step: int) -> bool:
        """Whether actions at a step are random, to fill replay first."""

    @property
    def begins(self) -> bool:
        """Whether something begins with the next step though no episode starts."""

    def begin(self, starts: np.ndarray, offsets: np.ndarray | None) -> None:
        """Hears where episodes start, before the step; `offsets` is what behaviour adds to the parameters."""

    def add(self, obs: Any, resets: np.ndarray, actions: np.ndarray, after: EnvStep) -> None:
        """Takes in a step: what was shown, where nothing before it counts, what was done, and what it led to."""

    def is_due(self, before: int, after: int) -> bool:
        """Whether what was taken in should be learned from, after the step between these counts."""

    def take(self, step: int, *, all_of_it: bool = False) -> Taken | None:
        """Hands over what was taken in by a step, if there is anything; `all_of_it`: even a part of a batch."""

    def finish(self) -> None:
        """Does what follows a call of `learn`."""

    def snapshot(self, member: int) -> dict[str, np.ndarray]:
        """What the feed holds of one seed, beyond the state of training."""

    def restore(self, member: int, parts: dict[str, np.ndarray], step: int) -> None:
        """Goes back to a snapshot."""
