"""The networks of members: parameters of its own in each environment, evaluated together."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.agents.base import Learner
from paramnoise.experience.returns import num_parameters
from paramnoise.loops.fast.numpy_networks import HostMLP, HostNormaliser
from paramnoise.networks.normaliser import Normaliser


class MemberNetworks(Protocol):
    """The networks of several environments, each with parameters of its own."""

    def begin(self, statistics: Normaliser) -> None:
        """Takes what observations are normalised by in a generation."""

    def load(self, place: int, parameters: np.ndarray) -> None:
        """Takes the flat parameters of one environment's network."""

    def outputs(self, obs: np.ndarray) -> np.ndarray:
        """The outputs for the observation of each environment, [num_envs, ...]."""


def make_networks(learner: Learner, num_envs: int) -> MemberNetworks:
    """The networks for the kind of observations that a learner takes."""
    return (PixelNetworks if learner.spaces.shows_frames else VectorNetworks)(learner, num_envs)


class VectorNetworks:
    """Networks of vectors in NumPy; an output is the same, bit for bit, whichever others are evaluated beside it."""

    def __init__(self, learner: Learner, num_envs: int):
        """Makes the networks, to which `load` gives parameters."""
        self._parameters = np.zeros((num_envs, num_parameters(learner.init)), np.float32)
        leaves, structure = _template(learner)
        parts = np.split(self._parameters, _cuts(leaves), axis=1)
        views = [part.reshape(-1, *leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        assert all(np.shares_memory(view, self._parameters) for view in views)
        self._mlp = HostMLP(jax.tree.unflatten(structure, views))

    def begin(self, statistics: Normaliser) -> None:
        """Takes what observations are normalised by in a generation."""
        self._normaliser = HostNormaliser(statistics)

    def load(self, place: int, parameters: np.ndarray) -> None:
        """Takes the flat parameters of one environment's network."""
        self._parameters[place] = parameters

    def outputs(self, obs: np.ndarray) -> np.ndarray:
        """The outputs for the observation of each environment, [num_envs, ...]."""
        return self._mlp(self._normaliser(obs))


class PixelNetworks:
    """Networks of stacks of frames, in one compiled call with an axis of environments on every parameter.

    An output does not depend on the place among the environments, but its rounding may on their number.
    """

    def __init__(self, learner: Learner, num_envs: int):
        """Makes the networks, to which `load` gives parameters."""
        leaves, structure = _template(learner)
        cuts = _cuts(leaves)

        def replaced(networks: list[Array], place: Array, flat: Array) -> list[Array]:
            parts = zip(networks, jnp.split(flat, cuts), strict=True)
            return [leaf.at[place].set(part.reshape(leaf.shape[1:])) for leaf, part in parts]

        self._networks = [jnp.zeros((num_envs, *leaf.shape), leaf.dtype) for leaf in leaves]
        self._replaced = jax.jit(replaced, donate_argnums=0)
        self._outputs = jax.jit(jax.vmap(lambda own, stack: jax.tree.unflatten(structure, own)(stack)))

    def begin(self, statistics: Normaliser) -> None:
        """Nothing: the network itself scales frames to [0, 1]."""

    def load(self, place: int, parameters: np.ndarray) -> None:
        """Takes the flat parameters of one environment's network."""
        self._networks = self._replaced(self._networks, place, parameters)

    def outputs(self, obs: np.ndarray) -> np.ndarray:
        """The outputs for the stack of each environment, [num_envs, actions]."""
        return np.asarray(self._outputs(self._networks, obs))


def _template(learner: Learner) -> tuple[list[Any], Any]:
    """The leaves of a network as shapes, and its structure."""
    return jax.tree.flatten(jax.eval_shape(learner.init, jax.random.PRNGKey(0)).network)


def _cuts(leaves: list[Any]) -> np.ndarray:
    """Where flat parameters are cut into leaves."""
    return np.cumsum([leaf.size for leaf in leaves])[:-1]
