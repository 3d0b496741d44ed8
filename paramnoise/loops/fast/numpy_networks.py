"""Small networks in NumPy: at every step a compiled call costs several times what they compute.

Learning and evaluation use the networks themselves; a test holds the two to the same outputs.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from paramnoise.networks.mlp import MLP
from paramnoise.networks.normaliser import CLIP, STD_FLOOR, Normaliser


class HostNormaliser:
    """A normaliser in NumPy: one for all environments or, with a leading axis on its statistics, one for each."""

    def __init__(self, normaliser: Normaliser):
        """Works out what observations are shifted, scaled and clipped by."""
        self._has_seen = bool(np.count_nonzero(normaliser.seen))
        if not self._has_seen:
            return
        seen = np.asarray(normaliser.seen)[..., None]
        std = np.maximum(np.sqrt(normaliser.squares / np.maximum(seen, 1.0)), STD_FLOOR)
        self._shift = np.where(seen > 0, normaliser.mean, 0.0)
        self._scale = np.where(seen > 0, 1.0 / std, 1.0)
        self._limit = np.where(seen > 0, np.float32(CLIP), np.float32(np.inf))

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The normalised observation of each environment, [num_envs, ...]; the observation if nothing was seen."""
        if not self._has_seen:
            return obs
        scaled = (obs - self._shift) * self._scale
        return np.minimum(np.maximum(scaled, -self._limit), self._limit)


class HostMLP:
    """An MLP with parameters in NumPy: the same ones for all environments or, with a leading axis, one set for each."""

    def __init__(self, mlp: MLP):
        """Takes the parameters as they are; nothing is copied."""
        self._layers: list[tuple[Any, Any]] = [(layer.weight, layer.bias) for layer in mlp.layers]
        # Taken from the modules once: Equinox looks an attribute up in more time than NumPy needs to multiply by it.
        self._norms: list[tuple[Any, Any, float] | None] = [
            (norm.weight, norm.bias, norm.eps) if isinstance(norm, eqx.nn.LayerNorm) else None for norm in mlp.norms
        ]
        self._activation = ACTIVATIONS[mlp.activation]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The outputs for the input of each environment, [num_envs, ...]."""
        return self.last(self.features(x))

    def features(self, x: np.ndarray) -> np.ndarray:
        """The outputs of the last hidden layer."""
        for (weight, bias), norm in zip(self._layers[:-1], self._norms, strict=True):
            x = _linear(weight, bias, x)
            x = self._activation(x if norm is None else _normalised(*norm, x))
        return x

    def last(self, features: np.ndarray) -> np.ndarray:
        """What the last layer makes of the features."""
        return _linear(*self._layers[-1], features)


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0, out=x)


ACTIVATIONS: dict[Callable, Callable[[np.ndarray], np.ndarray]] = {jnp.tanh: np.tanh, jax.nn.relu: _relu}


def _linear(weight: np.ndarray, bias: np.ndarray, x: np.ndarray) -> np.ndarray:
    # Of two matrices `dot` gives what `@` does, in two thirds of its time where they are small.
    outputs = np.dot(x, weight.T) if weight.ndim == 2 else np.matmul(weight, x[..., None])[..., 0]
    outputs += bias
    return outputs


def _normalised(weight: np.ndarray, bias: np.ndarray, eps: float, x: np.ndarray) -> np.ndarray:
    units = x.shape[-1]
    centred = x - np.add.reduce(x, axis=-1, keepdims=True) / units
    variance = np.add.reduce(centred * centred, axis=-1, keepdims=True) / units
    return centred * (weight / np.sqrt(variance + eps)) + bias
