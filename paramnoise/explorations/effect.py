"""What parameter noise of a given sigma does to a policy: the numbers by which a delta is chosen."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.networks.policies import Policy
from paramnoise.noise import perturb


class Effect(NamedTuple):
    """What perturbations do to a policy in some states; arrays with a leading axis of perturbations."""

    distance: Array
    """The policy's own distance between the clean and the perturbed policy, over all states."""
    changed: Array
    """The part of the states in which the noise-free action is another one."""


def effect(keys: Array, policy: Policy, obs: Array, sigma: Array | float) -> Effect:
    """Measures perturbations of one sigma, as adaptive noise scaling does (`ParameterNoise.adapt`).

    Adaptive scaling moves sigma up after a distance within delta and down after one above it, by the same factor. It
    settles where both happen equally often: at the sigma whose *median* distance is delta.

    Args:
        keys: a random key for each perturbation.
        policy: the clean policy.
        obs: states, [states, ...].
        sigma: the standard deviation of the noise.

    Returns:
        The effect of each perturbation.
    """
    clean = jax.vmap(policy)(obs)
    actions = jax.vmap(policy.greedy)(clean)

    def measure(key: Array) -> Effect:
        perturbed = jax.vmap(perturb(key, policy, sigma))(obs)
        differs = jax.vmap(policy.greedy)(perturbed) != actions
        return Effect(policy.distance(clean, perturbed), jnp.mean(differs.reshape(len(differs), -1).any(axis=1)))

    return jax.lax.map(measure, keys)
