"""Returns: one number per perturbed policy, told apart by where its noise starts in a table that every process holds.

What has to be exchanged is the parameters once a generation, and a few numbers per episode.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from paramnoise.networks.normaliser import Normaliser

TABLE_SEED = 123
"""The noise table is the same in every run and process; a run's seed decides where in it a perturbation starts."""

PERTURB, RESET, ACT = range(3)
"""What a draw is for."""


class Broadcast(NamedTuple):
    """What every process must know of a generation."""

    generation: int
    parameters: np.ndarray
    """theta, flat."""
    statistics: Normaliser
    """What observations are normalised by."""


class Episode(NamedTuple):
    """What is known of an ended episode; nothing of it grows with the number of parameters."""

    number: int
    """Within the generation: episode k of member m is m * episodes_per_member + k."""
    total: float
    """The return."""
    length: int
    sums: np.ndarray
    """Of the states that were acted on, and next, of their squares; empty for pixels."""
    squares: np.ndarray


class Returns(NamedTuple):
    """What a generation comes to."""

    returns: np.ndarray
    """The mean return at +epsilon and at -epsilon, [pairs, 2]."""
    noise: np.ndarray
    """The epsilon of each pair, [pairs, parameters]."""
    observed: Normaliser
    """The statistics of all states of the generation."""


def num_parameters(init: Callable[[Array], Any]) -> int:
    """How many numbers are perturbed: those of the `network` in the state that a learner's `init` makes."""
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init, jax.random.PRNGKey(0)).network))


@functools.cache
def noise_table(size: int) -> np.ndarray:
    """Standard normal noise, the same wherever it is made; made once per process."""
    table = np.random.default_rng(TABLE_SEED).standard_normal(size, np.float32)
    table.flags.writeable = False
    return table


def draw_index(table_size: int, num_parameters: int, seed: int, generation: int, pair: int) -> int:
    """Where in the table a pair's epsilon starts: a function of its arguments alone, so that it need not be sent."""
    rng = np.random.default_rng((seed, PERTURB, generation, pair))
    return int(rng.integers(table_size - num_parameters, endpoint=True))


def gather(config: Any, num_parameters: int, seed: int, generation: int, episodes: Sequence[Episode]) -> Returns:
    """The returns of a generation, from all its episodes in the order of their numbers."""
    totals = np.array([episode.total for episode in episodes])
    table = noise_table(config.table_size)
    places = [draw_index(config.table_size, num_parameters, seed, generation, pair) for pair in range(config.pairs)]
    noise = np.stack([table[place : place + num_parameters] for place in places])
    return Returns(totals.reshape(config.pairs, 2, -1).mean(axis=-1), noise, observed(episodes))


def observed(episodes: Sequence[Episode]) -> Normaliser:
    """The statistics of all states of these episodes, summed up in double precision and in the order given."""
    seen = sum(episode.length for episode in episodes)
    sums = np.sum([episode.sums for episode in episodes], axis=0)
    squares = np.sum([episode.squares for episode in episodes], axis=0)
    spread = np.maximum(squares - sums * sums / seen, 0.0)  # rounding may fall below 0
    statistics: Any = (np.float32(seen), (sums / seen).astype(np.float32), spread.astype(np.float32))
    return Normaliser(*statistics)
