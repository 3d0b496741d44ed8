"""What exploration may ask of a policy: its output, its noise-free action, a random action, a distance.

The stochastic policies of on-policy learning are distributions: they can be sampled, and know their probabilities.

A policy is a pytree; a perturbed policy is a policy of the same type. To explore with a network of your own, wrap it.
"""

import abc
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.noise import kl_distance, rms_distance


class GreedyPolicy(eqx.Module):
    """The discrete policy implied by a network of action values (or logits): argmax."""

    network: Callable[[Array], Array]

    def __call__(self, obs: Array) -> Array:  # [actions]
        return self.network(obs)

    def greedy(self, values: Array) -> Array:
        """The noise-free action for the values of one observation."""
        return jnp.argmax(values, axis=-1)

    def random(self, key: Array, values: Array) -> Array:
        """A uniformly random action for each row of `values`, [batch, ..., actions]."""
        return jax.random.randint(key, values.shape[:1], 0, values.shape[-1])

    def distance(self, values: Array, perturbed_values: Array) -> Array:
        """The KL between the softmax policies (app. C.1)."""
        return kl_distance(values, perturbed_values)


class VotingPolicy(eqx.Module):
    """The discrete policy of an ensemble of Q heads: each head votes for its greedy action (app. A.3)."""

    network: Any

    def __call__(self, obs: Array) -> Array:  # [heads, actions]
        return self.network(obs)

    @property
    def num_heads(self) -> int:
        """The size of the ensemble."""
        return self.network.heads.weight.shape[0]

    def greedy(self, values: Array) -> Array:
        """The action with most votes; among equals, the one with the highest mean value."""
        votes = jnp.sum(jax.nn.one_hot(jnp.argmax(values, axis=-1), values.shape[-1]), axis=0)
        return jnp.argmax(jnp.where(votes == jnp.max(votes), jnp.mean(values, axis=0), -jnp.inf))

    def random(self, key: Array, values: Array) -> Array:
        """A uniformly random action for each row of `values`, [batch, heads, actions]."""
        return jax.random.randint(key, values.shape[:1], 0, values.shape[-1])

    def distance(self, values: Array, perturbed_values: Array) -> Array:
        """The KL between the softmax policies, in the mean over heads."""
        return kl_distance(values, perturbed_values)


class DeterministicPolicy(eqx.Module):
    """A continuous policy: the network's output, in [-1, 1], is the action in units of half the action range."""

    network: Callable[[Array], Array]

    def __call__(self, obs: Array) -> Array:  # [dimensions]
        return self.network(obs)

    def greedy(self, values: Array) -> Array:
        """The noise-free action: the output itself."""
        return values

    def random(self, key: Array, values: Array) -> Array:
        """A uniformly random action for each row of `values`, [batch, dimensions]."""
        return jax.random.uniform(key, values.shape, values.dtype, -1.0, 1.0)

    def distance(self, values: Array, perturbed_values: Array) -> Array:
        """The root mean square difference of the actions (app. C.2)."""
        return rms_distance(values, perturbed_values)


LOG_STD_BOUNDS = (-20.0, 2.0)
"""Log standard deviations before tanh are clipped to these: wider ones put all actions at the bounds."""


class SquashedGaussianPolicy(eqx.Module):
    """Independent Gaussians whose draws go through tanh, so that actions are within bounds (Haarnoja et al. 2018).

    A network gives the means before tanh, and after them the log standard deviations. What is asked of a draw is asked
    by its standard normal noise: near a bound an action does not tell what it was before tanh.
    """

    network: Callable[[Array], Array]

    def __call__(self, obs: Array) -> Array:  # [2, dimensions]: mean and log std before tanh
        mean, log_std = jnp.split(self.network(obs), 2)
        return jnp.stack([mean, jnp.clip(log_std, *LOG_STD_BOUNDS)])

    def greedy(self, values: Array) -> Array:
        """The noise-free action: tanh of the mean."""
        return jnp.tanh(values[..., 0, :])

    def random(self, key: Array, values: Array) -> Array:
        """An action drawn from the distribution of each row of `values`, [batch, 2, dimensions]."""
        return self.squash(values, jax.random.normal(key, values[..., 0, :].shape, values.dtype))

    def squash(self, values: Array, noise: Array) -> Array:
        """The action that standard normal noise, [..., dimensions], leads to."""
        return jnp.tanh(values[..., 0, :] + jnp.exp(values[..., 1, :]) * noise)

    def log_density(self, values: Array, noise: Array) -> Array:
        """The log of the density of that action: the Gaussian's, less the log of what tanh stretches by."""
        mean, log_std = values[..., 0, :], values[..., 1, :]
        before = mean + jnp.exp(log_std) * noise
        gaussian = -0.5 * jnp.square(noise) - log_std - 0.5 * math.log(2 * math.pi)
        stretch = 2.0 * (math.log(2.0) - before - jax.nn.softplus(-2.0 * before))  # log(1 - tanh^2), without rounding
        return jnp.sum(gaussian - stretch, axis=-1)

    def distance(self, values: Array, perturbed_values: Array) -> Array:
        """The root mean square difference of the noise-free actions, as of a deterministic policy (app. C.2)."""
        return rms_distance(self.greedy(values), self.greedy(perturbed_values))


class StochasticPolicy(eqx.Module):
    """A distribution over actions; `values`, its output for an observation, are the distribution's parameters.

    All functions of `values` take any leading axes.
    """

    @abc.abstractmethod
    def __call__(self, obs: Array) -> Array:
        """The parameters of the distribution for one observation."""

    @abc.abstractmethod
    def greedy(self, values: Array) -> Array:
        """The noise-free action: the one that is most likely, within bounds."""

    @abc.abstractmethod
    def random(self, key: Array, values: Array) -> Array:
        """An action drawn from the distribution."""

    @abc.abstractmethod
    def log_probability(self, values: Array, action: Array) -> Array:
        """The log of the probability, or of its density, of an action."""

    @abc.abstractmethod
    def divergence(self, values: Array, others: Array) -> Array:
        """KL(values || others) of each row."""

    @abc.abstractmethod
    def entropy(self, values: Array) -> Array:
        """The entropy of each row."""

    def distance(self, values: Array, perturbed_values: Array) -> Array:
        """The mean KL(perturbed || clean), in that order (app. C.3)."""
        return jnp.mean(jnp.maximum(self.divergence(perturbed_values, values), 0.0))  # rounding may fall below 0


class GaussianPolicy(StochasticPolicy):
    """Independent Gaussians: a network gives their means, and their log standard deviations are the same everywhere.

    Actions are in units of half the action range; they are clipped to [-1, 1] only when they are executed.
    """

    network: Callable[[Array], Array]
    log_std: Array

    def __call__(self, obs: Array) -> Array:  # [2, dimensions]: mean and log std
        return jnp.stack([self.network(obs), self.log_std])

    def greedy(self, values: Array) -> Array:
        return jnp.clip(values[..., 0, :], -1.0, 1.0)

    def random(self, key: Array, values: Array) -> Array:
        mean, log_std = values[..., 0, :], values[..., 1, :]
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)

    def log_probability(self, values: Array, action: Array) -> Array:
        mean, log_std = values[..., 0, :], values[..., 1, :]
        each = -0.5 * jnp.square((action - mean) * jnp.exp(-log_std)) - log_std - 0.5 * math.log(2 * math.pi)
        return jnp.sum(each, axis=-1)

    def divergence(self, values: Array, others: Array) -> Array:
        mean, log_std = values[..., 0, :], values[..., 1, :]
        shift, log_ratio = mean - others[..., 0, :], others[..., 1, :] - log_std
        squares = jnp.exp(-2 * log_ratio) + jnp.square(shift * jnp.exp(-others[..., 1, :]))
        return jnp.sum(log_ratio + 0.5 * (squares - 1.0), axis=-1)

    def entropy(self, values: Array) -> Array:
        return jnp.sum(values[..., 1, :] + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


def value_of(values: Array, action: Array) -> Array:
    """The value of one action in each row of [..., actions]; by a mask, as the gradient of indexing is a scatter."""
    is_chosen = action[..., None] == jnp.arange(values.shape[-1])
    return jnp.sum(jnp.where(is_chosen, values, 0.0), axis=-1)


class CategoricalPolicy(StochasticPolicy):
    """A softmax over discrete actions: a network gives the logits."""

    network: Callable[[Array], Array]

    def __call__(self, obs: Array) -> Array:  # [actions]
        return self.network(obs)

    def greedy(self, values: Array) -> Array:
        return jnp.argmax(values, axis=-1)

    def random(self, key: Array, values: Array) -> Array:
        return jax.random.categorical(key, values)

    def log_probability(self, values: Array, action: Array) -> Array:
        return value_of(jax.nn.log_softmax(values), action)

    def divergence(self, values: Array, others: Array) -> Array:
        log_p, log_q = jax.nn.log_softmax(values), jax.nn.log_softmax(others)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)

    def entropy(self, values: Array) -> Array:
        log_p = jax.nn.log_softmax(values)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


NO_CHOICE = np.float32(-1e9)
"""The logit of a choice that does not exist: its probability is 0, and unlike minus infinity it makes no NaN."""


@functools.cache
def choice_table(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Where the logit of each choice of each part is among all logits, and which choices exist, [parts, most]."""
    first, choice = np.cumsum((0, *sizes[:-1]))[:, None], np.arange(max(sizes))
    exists = choice < np.array(sizes)[:, None]
    return np.where(exists, first + choice, 0), exists


class MultiCategoricalPolicy(CategoricalPolicy):
    """Independent softmaxes, one for each part of an action: a network gives the logits of all, one after the other.

    Its values are a table of logits, [parts, most choices], in which a part with fewer choices is padded with logits
    whose probability is 0. So each part is a categorical, and what is asked of the action is the sum over its parts.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    """The choices of each part."""

    def __call__(self, obs: Array) -> Array:  # [parts, most choices]
        place, exists = choice_table(self.sizes)
        return jnp.where(exists, self.network(obs)[place], NO_CHOICE)

    def log_probability(self, values: Array, action: Array) -> Array:
        return jnp.sum(super().log_probability(values, action), axis=-1)

    def divergence(self, values: Array, others: Array) -> Array:
        return jnp.sum(super().divergence(values, others), axis=-1)

    def entropy(self, values: Array) -> Array:
        return jnp.sum(super().entropy(values), axis=-1)


Policy = GreedyPolicy | VotingPolicy | DeterministicPolicy | SquashedGaussianPolicy | StochasticPolicy
DRAWN = (SquashedGaussianPolicy, StochasticPolicy)
"""The types whose behaviour is a draw from the policy."""
CONTINUOUS = (DeterministicPolicy, SquashedGaussianPolicy)
"""The types whose distance is that of continuous actions."""


@jax.jit
def noise_free_actions(policy: Policy, obs: Array) -> Array:
    """The noise-free action of each observation, [batch, ...]: what evaluation and `predict` use."""
    return jax.vmap(lambda o: policy.greedy(policy(o)))(obs)
