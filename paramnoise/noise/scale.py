"""The adaptive scale of parameter noise (sec. 3, app. C)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

BOUNDS = (1e-8, 1e4)
"""Sigma stays within these, so that a delta which no sigma reaches cannot make it overflow."""


class Scale(NamedTuple):
    """The standard deviation of the noise, matched to a distance in action space."""

    sigma: Array
    """The standard deviation now."""
    adaptations: Array
    """How often it was adapted."""


def initial_scale(sigma: float = 0.01) -> Scale:
    """The scale before the first adaptation."""
    return Scale(jnp.float32(sigma), jnp.int32(0))


def adapt(scale: Scale, distance: ArrayLike, delta: ArrayLike, alpha: float = 1.01) -> Scale:
    """Grows sigma while the perturbed policy acts within delta of the clean one, shrinks it otherwise (eq. 1 and 8).

    Args:
        scale: the scale of now.
        distance: the measured distance between clean and perturbed policy.
        delta: the threshold; a distance equal to it grows sigma.
        alpha: the factor of one adaptation, 1 or above; with 1 sigma stays as it is.

    Returns:
        The next scale.
    """
    factor = jnp.where(jnp.asarray(distance) <= delta, alpha, 1 / alpha)
    sigma = jnp.clip(scale.sigma * factor.astype(scale.sigma.dtype), *BOUNDS)
    return Scale(sigma, scale.adaptations + 1)
