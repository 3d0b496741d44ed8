"""Networks whose first weights are drawn as Flax draws them, for the comparison with SBX: ours are drawn otherwise.

Weights are normal with a standard deviation of 1 / sqrt(inputs), cut at two of them, and biases are 0, in output layers
too.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.networks.mlp import MLP
from paramnoise.networks.own import register_network

HIDDEN_SIZES = (64, 64)


class Critic(eqx.Module):
    """Q(s, a) by an MLP of both."""

    mlp: MLP

    def __call__(self, obs: Array, action: Array) -> Array:
        """The value, [1]."""
        return self.mlp(jnp.concatenate([obs, action]))


@register_network("flax-64-64")
def flax_network(observation_shape: tuple[int, ...], outputs: int, key: Array) -> MLP:
    """An actor before tanh, or the means and log standard deviations of SAC's."""
    return _drawn((observation_shape[0], *HIDDEN_SIZES, outputs), key)


@register_network("flax-64-64-critic")
def flax_critic(observation_shape: tuple[int, ...], actions: int, key: Array) -> Critic:
    """A critic."""
    return Critic(_drawn((observation_shape[0] + actions, *HIDDEN_SIZES, 1), key))


def _drawn(sizes: Sequence[int], key: Array) -> MLP:
    mlp = MLP(sizes, key=key, layer_norm=False)
    draw = jax.nn.initializers.lecun_normal(in_axis=-1, out_axis=-2)
    keys = jax.random.split(key, len(mlp.layers))
    weights = [draw(one, layer.weight.shape) for one, layer in zip(keys, mlp.layers, strict=True)]
    biases = [jnp.zeros(layer.weight.shape[0]) for layer in mlp.layers]
    parts = lambda m: [n.weight for n in m.layers] + [n.bias for n in m.layers]  # noqa: E731
    return eqx.tree_at(parts, mlp, weights + biases)
