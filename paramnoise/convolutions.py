"""Convolutions as matrix products, with patches cut by reshapes and shifts.

XLA's own convolutions are slow on a CPU, and a vector of different ones (`vmap`) is slow on a GPU; products are not.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

Layer = tuple[int, int, int]
"""Filters, size of a filter, stride."""

NATURE: tuple[Layer, ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""The layers of Mnih et al. (2015)."""


class Convolution(eqx.Module):
    """A valid convolution; its stride divides the size of its filters."""

    weight: Array
    """[filters, size * size * channels], in the order of the patches; this way round its gradient is fast too."""
    bias: Array
    size: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __init__(self, channels: int, layer: Layer, *, key: Array):
        """Draws weights and biases uniformly within 1 / sqrt(inputs of a filter)."""
        filters, self.size, self.stride = layer
        weight_key, bias_key = jax.random.split(key)
        inputs = self.size * self.size * channels
        bound = 1 / math.sqrt(inputs)
        self.weight = jax.random.uniform(weight_key, (filters, inputs), minval=-bound, maxval=bound)
        self.bias = jax.random.uniform(bias_key, (filters,), minval=-bound, maxval=bound)

    def __call__(self, patches: Array) -> Array:
        """The filters' outputs, [rows, columns, filters], for what each filter sees."""
        return patches @ self.weight.T + self.bias


class Convolutions(eqx.Module):
    """Convolutions of a stack of frames, each followed by ReLU; takes uint8[frames, height, width]."""

    layers: tuple[Convolution, ...]

    def __init__(self, channels: int, layers: Sequence[Layer], *, key: Array):
        """Builds the layers for so many frames."""
        inputs = (channels, *(filters for filters, _, _ in layers))
        keys = jax.random.split(key, len(layers))
        self.layers = tuple(Convolution(i, layer, key=k) for i, layer, k in zip(inputs, layers, keys, strict=False))

    def __call__(self, stack: Array) -> Array:
        """The features, a vector."""
        first, *others = self.layers
        x = jax.nn.relu(first(stack_patches(stack, first.size, first.stride)))
        for layer in others:
            x = jax.nn.relu(layer(image_patches(x, layer.size, layer.stride)))
        return x.reshape(-1)


def stack_patches(stack: Array, size: int, stride: int) -> Array:
    """What each filter sees of uint8[frames, height, width], in [0, 1]: [rows, columns, patch].

    A patch is ordered by cell (a square of stride by stride pixels; row, column), frame, and pixel (row, column).
    """
    frames, height, width = stack.shape
    rows, columns = output_length(height, size, stride), output_length(width, size, stride)
    reach = size // stride
    down, across = rows + reach - 1, columns + reach - 1
    cells = stack[:, : down * stride, : across * stride].reshape(frames, down, stride, across, stride)
    if stride == 4:  # four bytes at a time: a CPU moves them one by one otherwise
        cells = jax.lax.bitcast_convert_type(cells, jnp.uint32).transpose(1, 3, 0, 2)
        cells = jax.lax.bitcast_convert_type(cells, jnp.uint8)
    else:
        cells = cells.transpose(1, 3, 0, 2, 4)
    cells = cells.reshape(down, across, -1).astype(jnp.float32) / 255.0
    shifts = [cells[i : i + rows, j : j + columns] for i in range(reach) for j in range(reach)]
    return jnp.concatenate(shifts, axis=-1)


def image_patches(image: Array, size: int, stride: int) -> Array:
    """What each filter sees of an image, [height, width, channels]: [rows, columns, patch].

    A patch is ordered by cell (row, column) and pixel (row, column, channel).
    """
    height, width, channels = image.shape
    rows, columns = output_length(height, size, stride), output_length(width, size, stride)
    reach = size // stride
    down, across = rows + reach - 1, columns + reach - 1
    # Pixels of one row of a cell stay neighbours in memory, so that nothing is moved but in long runs.
    strips = image[: down * stride, : across * stride].reshape(down, stride, across, stride * channels)
    shifts = [
        strips[i : i + rows, row, j : j + columns] for i in range(reach) for j in range(reach) for row in range(stride)
    ]
    return jnp.concatenate(shifts, axis=-1)


def output_length(length: int, size: int, stride: int) -> int:
    """How often a filter fits."""
    return (length - size) // stride + 1


def output_size(frame_shape: tuple[int, int], layers: Sequence[Layer]) -> int:
    """The number of features of a frame of that height and width; at most 0 if the layers do not fit into it."""
    height, width = frame_shape
    for _, size, stride in layers:
        height, width = output_length(height, size, stride), output_length(width, size, stride)
        if min(height, width) < 1:
            return 0
    return height * width * layers[-1][0]
