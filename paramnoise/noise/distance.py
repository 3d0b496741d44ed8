"""Distances between a clean and a perturbed policy in action space, and the thresholds for them (app. C)."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


def kl_distance(logits: ArrayLike, perturbed_logits: ArrayLike) -> Array:
    """The mean of KL(softmax(logits) || softmax(perturbed_logits)) over all leading axes (app. C.1, eq. 9).

    Adding a constant to every action's value changes nothing, which is why Q values are compared through the softmax.

    Args:
        logits: the clean policy's Q values or logits, [..., actions].
        perturbed_logits: the perturbed policy's, the same shape.

    Returns:
        A scalar, at least 0.
    """
    log_p = jax.nn.log_softmax(jnp.asarray(logits))
    log_q = jax.nn.log_softmax(jnp.asarray(perturbed_logits))
    divergence = jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)
    return jnp.mean(jnp.maximum(divergence, 0.0))  # rounding may fall below 0


def rms_distance(actions: ArrayLike, perturbed_actions: ArrayLike) -> Array:
    """The root mean square difference of actions over states and action dimensions (app. C.2, eq. 10).

    Against actions with N(0, sigma^2) added it is sigma, so delta = sigma matches Gaussian action noise.

    Args:
        actions: the clean policy's actions, [..., dimensions].
        perturbed_actions: the perturbed policy's, the same shape.

    Returns:
        A scalar, at least 0.
    """
    return jnp.sqrt(jnp.mean(jnp.square(jnp.asarray(actions) - jnp.asarray(perturbed_actions))))


def delta_from_epsilon(epsilon: ArrayLike, num_actions: int) -> Array:
    """The KL between a greedy and an epsilon-greedy policy: -log(1 - epsilon + epsilon / n) (app. C.1).

    Args:
        epsilon: the probability of a random action, in [0, 1].
        num_actions: n, the number of actions.

    Returns:
        The threshold delta that makes parameter noise comparable to that epsilon.
    """
    epsilon = jnp.asarray(epsilon, jnp.float32)
    return -jnp.log1p(epsilon / num_actions - epsilon)


def epsilon_from_delta(delta: ArrayLike, num_actions: int) -> Array:
    """The opposite of `delta_from_epsilon`: epsilon = (1 - exp(-delta)) n / (n - 1).

    Args:
        delta: the threshold, at least 0.
        num_actions: n, the number of actions, at least 2.

    Returns:
        The epsilon that the threshold matches; above 1 if delta is above log(n), the largest that an epsilon has.
    """
    return -jnp.expm1(-jnp.asarray(delta, jnp.float32)) * num_actions / (num_actions - 1)
