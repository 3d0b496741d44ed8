"""What a training loop sees of an agent: its config and pure functions over its state."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from paramnoise.policies import Policy


class Transition(NamedTuple):
    """One step, or a batch of them, as replay keeps it.

    A time limit is no part of it: the value at a truncated end is bootstrapped like any other.
    """

    obs: Array
    action: Array
    """The executed action, exploration included."""
    reward: Array
    next_obs: Array
    """What the environment showed after the action; at an episode's end the final observation, not the next reset's."""
    terminated: Array
    """Whether the task itself ended there, so that nothing follows."""
    mask: Array | None = None
    """Bootstrapped DQN: which heads learn from the transition, [heads]."""


class Learner(NamedTuple):
    """An agent without its exploration."""

    config: Any
    init: Callable[[Array], Any]
    """key -> state."""
    update: Callable[[Any, Transition], tuple[Any, dict[str, Array]]]
    """state, batch -> state, loss terms."""
    policy: Callable[[Any], Policy]
    """state -> the clean policy."""
    annotate: Callable[[Array, int], Array | None] = lambda key, num_envs: None
    """key, num_envs -> the `mask` to store with the transitions of one step."""
    observe: Callable[[Any, Transition], Any] = lambda state, batch: state
    """state, the transitions of one step -> state: what is learned from each once, before it goes into replay."""
