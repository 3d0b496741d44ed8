"""Fully connected networks: layer norm before each nonlinearity, and every leaf an array."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class MLP(eqx.Module):
    """Fully connected layers, each hidden one followed by layer norm and a nonlinearity."""

    layers: tuple[eqx.nn.Linear, ...]
    norms: tuple[eqx.nn.LayerNorm | eqx.nn.Identity, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        key: Array,
        layer_norm: bool = True,
        activate_last: bool = False,
        activation: Callable[[Array], Array] = jax.nn.relu,
    ):
        """Builds layers between consecutive `sizes`; the last one is linear unless `activate_last`."""
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(eqx.nn.Linear(i, o, key=k) for i, o, k in zip(sizes[:-1], sizes[1:], keys, strict=True))
        hidden = sizes[1:] if activate_last else sizes[1:-1]
        self.norms = tuple(eqx.nn.LayerNorm(size) if layer_norm else eqx.nn.Identity() for size in hidden)
        self.activation = activation

    def __call__(self, x: Array) -> Array:
        x = self.features(x)
        return self.layers[-1](x) if len(self.layers) > len(self.norms) else x

    def features(self, x: Array) -> Array:
        """The outputs of the last hidden layer."""
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = self.activation(norm(layer(x)))
        return x


class DuelingMLP(eqx.Module):
    """Q(s, a) = V(s) + A(s, a) - mean of A over actions (Wang et al. 2016, eq. 9).

    The two streams have a last hidden layer each, of the same size; the hidden layers before it are shared.
    """

    torso: MLP
    value: MLP
    advantage: MLP

    def __init__(self, sizes: Sequence[int], *, key: Array, layer_norm: bool = True):
        """Builds the layers between consecutive `sizes`, which run from the input to the number of actions."""
        torso_key, value_key, advantage_key = jax.random.split(key, 3)
        shared, own = (sizes[:-2], sizes[-3:-1]) if len(sizes) > 2 else (sizes[:1], sizes[:1])
        self.torso = MLP(shared, key=torso_key, layer_norm=layer_norm, activate_last=True)
        self.value = MLP((*own, 1), key=value_key, layer_norm=layer_norm)
        self.advantage = MLP((*own, sizes[-1]), key=advantage_key, layer_norm=layer_norm)

    def __call__(self, x: Array) -> Array:  # [actions]
        features = self.torso(x)
        advantage = self.advantage(features)
        return self.value(features) + advantage - jnp.mean(advantage)
