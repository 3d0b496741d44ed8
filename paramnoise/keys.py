"""Where randomness comes from: a seed's key, what a draw is for, and the environment step at which it is made.

So a step's randomness does not depend on what happened before it, and nothing of it has to be saved.
"""

import jax
from jax import Array

INIT, BEGIN, ACT, ANNOTATE, TRAIN, ADAPT, ENVIRONMENT, EVALUATE, RANDOM = range(9)
"""What a key is drawn for."""


def key_at(key: Array, purpose: int, step: Array) -> Array:
    """The key of a step for one purpose."""
    return jax.random.fold_in(jax.random.fold_in(key, purpose), step)
