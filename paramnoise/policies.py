"""What exploration may ask of a policy: its output, its noise-free action, a random action, a distance.

A policy is a pytree; a perturbed policy is a policy of the same type. To explore with a network of your own, wrap it.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
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


Policy = GreedyPolicy | VotingPolicy | DeterministicPolicy


@jax.jit
def noise_free_actions(policy: Policy, obs: Array) -> Array:
    """The noise-free action of each observation, [batch, ...]: what evaluation and `predict` use."""
    return jax.vmap(lambda o: policy.greedy(policy(o)))(obs)
