"""The surrogate objective of a trust-region step, where every episode of a batch has parameters of its own (app. B)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from paramnoise.experience.segments import Block, Chunks, Layout, accumulate, beside
from paramnoise.networks.policies import StochasticPolicy
from paramnoise.noise.natural import fisher_product


class Surrogate(NamedTuple):
    """The objective of one update: the mean of pi(a | s; phi + offset) / pi_old(a | s; phi_old + offset) * advantage.

    An episode's offset enters both probabilities, since with it the episode was sampled; the derivative is taken in phi
    (eq. 2; derived in app. B, eq. 3 to 6).
    """

    policy: StochasticPolicy
    """Says how to read parameters; its own are not used."""
    obs: Array
    """[rows, ...], as are the next two."""
    action: Array
    advantage: Array
    offsets: Array
    """Of each segment, [segments, parameters]."""
    chunks: Chunks
    """All rows, cut by `layout`."""
    layout: Layout
    fisher_chunks: Chunks
    """Those for Fisher-vector products, cut by `fisher_layout`."""
    fisher_layout: Layout

    def outputs(self, parameters: Array, block: Block) -> Array:
        """The distribution of each row of a block, under its own episode's noise, [block, rows, ...]."""
        unflatten = ravel_pytree(self.policy)[1]
        clean = unflatten(parameters)
        chunk = lambda offset, obs: jax.vmap(beside(clean, unflatten(offset)))(obs)  # noqa: E731
        return jax.vmap(chunk)(block.offset, self.obs[block.row])

    def linearise(self, parameters: Array) -> tuple[Array, Array, Array]:
        """The surrogate's gradient where old and new policy are the same, and the old distributions and entropy."""
        capacity = self.chunks.first.shape[0]
        shape = jax.eval_shape(self.policy, self.obs[0])
        old = jnp.zeros((capacity, self.layout.rows, *shape.shape), shape.dtype)

        def add(block: Block, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            total, old, entropy = carry

            def weighted(parameters: Array) -> tuple[Array, Array]:
                values = self.outputs(parameters, block)
                log_probability = self.policy.log_probability(values, self.action[block.row])
                return jnp.sum(block.weight * self.advantage[block.row] * log_probability), values

            gradient, values = jax.grad(weighted, has_aux=True)(parameters)
            old = jax.lax.dynamic_update_slice_in_dim(old, values, block.place, axis=0)
            return total + gradient, old, entropy + jnp.sum(block.weight * self.policy.entropy(values))

        start = (jnp.zeros_like(parameters), old, jnp.zeros((), parameters.dtype))
        total, old, entropy = self._sum(add, start)
        return total / len(self.obs), old, entropy / len(self.obs)

    def compare(self, parameters: Array, old: Array) -> tuple[Array, Array]:
        """What the surrogate gains at new parameters, and the mean KL(old || new)."""

        def add(block: Block, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            values = self.outputs(parameters, block)
            before = jax.lax.dynamic_slice_in_dim(old, block.place, self.layout.block)
            action = self.action[block.row]
            log_ratio = self.policy.log_probability(values, action) - self.policy.log_probability(before, action)
            gain = jnp.sum(block.weight * self.advantage[block.row] * jnp.expm1(log_ratio))
            return carry[0] + gain, carry[1] + jnp.sum(block.weight * self.policy.divergence(before, values))

        nothing = jnp.zeros((), parameters.dtype)
        gain, kl = self._sum(add, (nothing, nothing))
        return gain / len(self.obs), kl / len(self.obs)

    def fisher_product(self, parameters: Array, vector: Array) -> Array:
        """The Fisher matrix times a vector, each row's at its own episode's parameters."""

        def add(block: Block, total: Array) -> Array:
            def weighted(values: Array, others: Array) -> Array:
                return jnp.sum(block.weight * self.policy.divergence(values, others))

            return total + fisher_product(lambda flat: self.outputs(flat, block), weighted, parameters, vector)

        start = jnp.zeros_like(parameters)
        total = accumulate(add, self.fisher_chunks, self.offsets, self.fisher_layout, len(self.obs), start)
        return total / jnp.sum(self.fisher_chunks.length)

    def _sum(self, function: Callable[[Block, Any], Any], start: Any) -> Any:
        return accumulate(function, self.chunks, self.offsets, self.layout, len(self.obs), start)
