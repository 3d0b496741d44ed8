"""The fully connected network: layer norm before each nonlinearity, and every leaf an array."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
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
