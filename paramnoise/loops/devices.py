"""How programs are compiled for devices; and over several, which arrays of a loop are cut, and along which axis.

JAX itself divides the program by where its arrays are. What is computed stays the same, random draws to the bit; sums
over environments are added in another order.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from paramnoise.validation import UsageError, require

DEVICES = "devices"
GRAPH = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"
"""What may be part of a CUDA graph: what XLA takes anyway, loops and branches."""


def compiler_options(devices: int = 1) -> dict[str, str | int] | None:
    """How programs of many small parts are compiled for so many devices.

    On a GPU parts that do not depend on each other run at once. On one GPU a whole program is one CUDA graph, however
    small a part of it is, so that loops and branches do not ask the host how to go on.
    """
    if jax.default_backend() != "gpu":
        return None
    at_once: dict[str, str | int] = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
    if devices > 1:  # collectives, which a graph cannot hold, would keep whole loops out of it
        return at_once
    return {**at_once, "xla_gpu_enable_command_buffer": GRAPH, "xla_gpu_graph_min_graph_size": 1}


def require_devices(devices: int) -> None:
    """Raises UsageError unless there are so many devices here."""
    here = len(jax.local_devices())
    require(devices <= here, "devices", devices, f"at most {here}, as many as JAX finds here")


def shardings(
    init: Callable[[int], Callable[[Array], Any]], axes: Callable[[Any], Any], seeds: int, num_envs: int, devices: int
) -> Any:
    """Where each array of a loop's state is: cut along its axis of seeds, else of environments, or whole everywhere.

    Seeds have nothing to tell each other, so they are what is divided if they can be. Networks, moments and replay of a
    seed are whole on every device.

    Args:
        init: from a number of environments to the function of the seeds' keys that makes the state.
        axes: from a state to the axis of seeds of each of its arrays, 0 or None.
        seeds: how many train side by side.
        num_envs: environments of each.
        devices: over how many devices.

    Raises:
        UsageError: if there are fewer devices, or neither seeds nor environments can be divided evenly among them.
    """
    require_devices(devices)
    mesh = Mesh(np.array(jax.local_devices()[:devices]), (DEVICES,))
    keys = jax.ShapeDtypeStruct((seeds, 2), jnp.uint32)
    state = jax.eval_shape(init(num_envs), keys)
    if seeds % devices == 0:
        cut = jax.tree.map(lambda axis, _: axis, axes(state), state, is_leaf=lambda axis: axis is None)
    elif num_envs % devices == 0:
        another = _with_other_environments(init, keys, num_envs)
        cut = jax.tree.map(lambda one, other: _differing_axis(one.shape, other.shape), state, another)
    else:
        raise UsageError(f"devices is {devices}, which divides neither num_envs ({num_envs}) nor seeds ({seeds})")
    place = lambda axis: NamedSharding(mesh, PartitionSpec(*[None] * axis, DEVICES))  # noqa: E731
    whole = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda axis: whole if axis is None else place(axis), cut, is_leaf=lambda axis: axis is None)


def _with_other_environments(init: Callable[[int], Callable[[Array], Any]], keys: Any, num_envs: int) -> Any:
    """The shapes of a state with another number of environments, one that the settings go with.

    A pool of policies goes with multiples, a batch of a fixed size with less.
    """
    try:
        return jax.eval_shape(init(2 * num_envs), keys)
    except UsageError:
        return jax.eval_shape(init(num_envs - 1), keys)


def _differing_axis(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    """The first axis in which two shapes differ, that of environments."""
    return next((axis for axis, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)
