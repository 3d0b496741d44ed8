"""Convolutions as matrix products, with patches cut by reshapes and shifts.

XLA's own convolutions are slow on a CPU, and a vector of different ones (`vmap`) is slow on a GPU; products are not.
"""

import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.validation import UsageError, require

Layer = tuple[int, int, int]
"""Filters, size of a filter, stride."""

NATURE: tuple[Layer, ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""The layers of Mnih et al. (2015)."""

Precision = Literal["auto", "float32", "bfloat16"]
Cut = Callable[[Array], Array]
"""What each filter sees of a stack or an image: [rows, columns, patch]."""


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


class Convolutions(eqx.Module):
    """Convolutions of a stack of frames, each followed by ReLU; takes uint8[frames, height, width]."""

    layers: tuple[Convolution, ...]
    dtype: Any = eqx.field(static=True)
    """What products multiply; they add in float32, and weights are kept in it."""

    def __init__(self, channels: int, layers: Sequence[Layer], *, key: Array, precision: Precision = "float32"):
        """Builds the layers for so many frames."""
        inputs = (channels, *(filters for filters, _, _ in layers))
        keys = jax.random.split(key, len(layers))
        self.layers = tuple(Convolution(i, layer, key=k) for i, layer, k in zip(inputs, layers, keys, strict=False))
        self.dtype = product_dtype(precision)

    def __call__(self, stack: Array) -> Array:
        """The features, a vector."""
        return self.of_batch(stack[None])[0]

    def of_batch(self, stacks: Array) -> Array:
        """The features of each stack; their gradient is a few large products, that of a `vmap` many small ones."""
        first, *others = self.layers
        cut = functools.partial(stack_patches, size=first.size, stride=first.stride)
        outputs = _filtered(stacks, first.weight, cut, self.dtype)
        x = jax.nn.relu(outputs / 255 + first.bias)  # whole numbers go in: bfloat16 holds bytes exactly
        for layer in others:
            cut = functools.partial(image_patches, size=layer.size, stride=layer.stride)
            x = jax.nn.relu(_filtered(x, layer.weight, cut, self.dtype) + layer.bias)
        return x.reshape(x.shape[0], -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _filtered(images: Array, weight: Array, cut: Cut, dtype: Any) -> Array:
    """The filters' outputs for a batch, [batch, rows, columns, filters]."""
    return _filter(images, weight, cut, dtype)[0]


def _filter(images: Array, weight: Array, cut: Cut, dtype: Any) -> tuple[Array, Any]:
    # Bytes are moved as bytes, and become numbers last.
    values = images if images.dtype == jnp.uint8 else images.astype(dtype)
    patches, weight = jax.vmap(cut)(values).astype(dtype), weight.astype(dtype)
    return jnp.einsum("bijk,nk->bijn", patches, weight, preferred_element_type=jnp.float32), (images, patches, weight)


def _filter_back(cut: Cut, dtype: Any, kept: Any, gradient: Array) -> tuple[Any, Array]:
    """Written out for bfloat16: both factors of each product have it, and overlapping patches add up in float32."""
    images, patches, weight = kept
    gradient = gradient.astype(dtype)
    to_weight = jnp.einsum("bijn,bijk->nk", gradient, patches, preferred_element_type=jnp.float32)
    if images.dtype == jnp.uint8:
        return None, to_weight
    to_patches = jnp.einsum("bijn,nk->bijk", gradient, weight, preferred_element_type=jnp.float32)
    (to_images,) = jax.linear_transpose(jax.vmap(cut), images)(to_patches)
    return to_images, to_weight


_filtered.defvjp(_filter, _filter_back)


def product_dtype(precision: Precision) -> Any:
    """What to multiply; `auto` is bfloat16 where a CPU has instructions for it, else float32."""
    if precision == "auto":
        precision = "bfloat16" if jax.default_backend() == "cpu" and _cpu_multiplies_bfloat16() else "float32"
    return jnp.dtype(precision)


@functools.cache
def _cpu_multiplies_bfloat16() -> bool:
    try:
        features = pathlib.Path("/proc/cpuinfo").read_text().split()
    except OSError:  # not Linux
        return False
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(features)


def stack_patches(stack: Array, size: int, stride: int) -> Array:
    """What each filter sees of uint8[frames, height, width]: uint8[rows, columns, patch].

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
    cells = cells.reshape(down, across, -1)
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


def check_layers(layers: Sequence[Layer]) -> None:
    """Raises UsageError if these cannot be the layers of a config."""
    for layer in layers:
        fits = len(layer) == 3 and min(layer) >= 1 and layer[1] % layer[2] == 0
        require(fits, "convolutions", layer, "filters, size and stride of a layer, the stride a divisor of the size")
    require(len(layers) >= 1, "convolutions", layers, "at least one layer")


def check_frames(frame_shape: Sequence[int], layers: Sequence[Layer]) -> None:
    """Raises UsageError if frames of that height and width are too small."""
    if not output_size(frame_shape, layers):
        raise UsageError(f"frames of {frame_shape} are too small for convolutions {tuple(layers)}")


def output_length(length: int, size: int, stride: int) -> int:
    """How often a filter fits."""
    return (length - size) // stride + 1


def output_size(frame_shape: Sequence[int], layers: Sequence[Layer]) -> int:
    """The number of features of a frame of that height and width; at most 0 if the layers do not fit into it."""
    height, width = frame_shape
    for _, size, stride in layers:
        height, width = output_length(height, size, stride), output_length(width, size, stride)
        if min(height, width) < 1:
            return 0
    return height * width * layers[-1][0]
