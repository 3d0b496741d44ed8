"""The online estimate of mean and variance that observations are normalised by (app. A.2)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

STD_FLOOR = 0.1
CLIP = 5.0


class Normaliser(NamedTuple):
    """Statistics of all observations seen so far; part of the learner's state, and of a policy."""

    seen: Array
    """How many there were."""
    mean: Array
    squares: Array
    """The sum of squared differences from the mean."""

    def __call__(self, obs: Array) -> Array:
        """Normalises an observation: differences from the mean in units of the floored std, clipped."""
        std = jnp.maximum(jnp.sqrt(self.squares / jnp.maximum(self.seen, 1.0)), STD_FLOOR)
        scaled = jnp.clip((obs - self.mean) / std, -CLIP, CLIP)
        return jnp.where(self.seen > 0, scaled, obs)


def init(size: int) -> Normaliser:
    """Statistics of nothing; they leave an observation as it is."""
    return Normaliser(jnp.float32(0), jnp.zeros(size), jnp.zeros(size))


def observe(normaliser: Normaliser, obs: Array) -> Normaliser:
    """Adds a batch of observations, [batch, size]."""
    mean = jnp.mean(obs, axis=0)
    return merge(normaliser, Normaliser(jnp.float32(obs.shape[0]), mean, jnp.sum(jnp.square(obs - mean), axis=0)))


def merge(normaliser: Normaliser, added: Normaliser) -> Normaliser:
    """The statistics of two sets of observations together (Chan et al. 1979)."""
    seen = normaliser.seen + added.seen
    shift = added.mean - normaliser.mean
    return Normaliser(
        seen,
        normaliser.mean + shift * added.seen / seen,
        normaliser.squares + added.squares + jnp.square(shift) * normaliser.seen * added.seen / seen,
    )
