"""The linear baseline of on-policy learning, and the returns and advantages that it leads to.

All arrays of a batch are [environments, steps, ...]. An environment's row may hold several episodes, and it is cut at
the batch's end.
"""

import jax
import jax.numpy as jnp
from jax import Array

RIDGE = 1e-5
CLIP = 10.0
TIME_UNIT = 100.0
"""Observations are clipped and time is counted in these, so that squares and cubes stay moderate."""


def num_features(observation_size: int) -> int:
    """The length of the baseline's weight vector."""
    return 2 * observation_size + 4


def features(obs: Array, time: Array) -> Array:
    """[o, o^2, t/100, (t/100)^2, (t/100)^3, 1] for observations [..., size] at steps [...] of their episodes."""
    clipped = jnp.clip(obs, -CLIP, CLIP)
    t = time[..., None] / TIME_UNIT
    return jnp.concatenate([clipped, clipped**2, t, t**2, t**3, jnp.ones_like(t)], axis=-1)


def predict(weights: Array, obs: Array, time: Array) -> Array:
    """The baseline's values."""
    return features(obs, time) @ weights


def fit(obs: Array, time: Array, returns: Array) -> Array:
    """The weights of ridge regression on returns, by QR: forming the normal equations would cost float32 too much."""
    size = num_features(obs.shape[-1])
    design = features(obs, time).reshape(-1, size)
    rows = jnp.concatenate([design, returns.reshape(-1, 1)], axis=1)
    ridge = jnp.concatenate([RIDGE**0.5 * jnp.eye(size), jnp.zeros((size, 1))], axis=1)
    triangle = jnp.linalg.qr(jnp.concatenate([rows, ridge]), mode="r")  # its last column is Q' returns
    return jax.scipy.linalg.solve_triangular(triangle[:size, :size], triangle[:size, size])


def discounted_returns(reward: Array, terminated: Array, truncated: Array, next_values: Array, gamma: float) -> Array:
    """The sum of discounted rewards to the episode's end: `lambda_returns` with lambda 1."""
    return lambda_returns(reward, terminated, truncated, next_values, gamma, 1.0)


def lambda_returns(
    reward: Array, terminated: Array, truncated: Array, next_values: Array, gamma: float, trace: float
) -> Array:
    """R(t) = r(t) + gamma * ((1 - lambda) * V(s(t+1)) + lambda * R(t+1)), with lambda as `trace`.

    Where the episode goes on after what the batch shows of it, that is at a truncation and at the batch's end, the
    value of the next observation stands for the rest; after a termination there is no rest.
    """
    cut = jnp.asarray(truncated).at[:, -1].set(True)
    rest = jnp.where(terminated, 0.0, jnp.where(cut, next_values, (1.0 - trace) * next_values))
    goes_on = ~(terminated | cut)
    return _accumulate(reward + gamma * rest, gamma * trace * goes_on)


def advantages(
    reward: Array,
    terminated: Array,
    truncated: Array,
    values: Array,
    next_values: Array,
    gamma: float,
    gae_lambda: float,
) -> Array:
    """Generalised advantage estimates (Schulman et al. 2016); with lambda 1 the returns less the values (eq. 7)."""
    errors = reward + gamma * jnp.where(terminated, 0.0, next_values) - values
    return _accumulate(errors, gamma * gae_lambda * ~(terminated | truncated))


def standardise(values: Array) -> Array:
    """The values with mean 0 and standard deviation 1."""
    return (values - jnp.mean(values)) / (jnp.std(values) + 1e-8)


def explained_variance(predictions: Array, returns: Array) -> Array:
    """The part of the returns' variance that the predictions explain; at most 1; 0 if there is nothing to explain."""
    variance = jnp.var(returns)
    unexplained = jnp.var(returns - predictions) / jnp.where(variance == 0, 1.0, variance)
    return jnp.where(variance == 0, 0.0, 1.0 - unexplained)


def _accumulate(now: Array, factor: Array) -> Array:
    """y[t] = now[t] + factor[t] * y[t + 1] along the steps, with nothing after the last."""

    def join(later: tuple[Array, Array], earlier: tuple[Array, Array]) -> tuple[Array, Array]:
        return earlier[0] + earlier[1] * later[0], earlier[1] * later[1]

    # As a tree of sums: a loop over 5,000 steps takes as long as the policy's update.
    return jax.lax.associative_scan(join, (now, factor * jnp.ones_like(now)), reverse=True, axis=1)[0]
