"""The networks that agents learn: Q values, policies, actors and critics.

Every leaf is an array, so that jit, vmap and scan need no filters. A network that acts takes one observation, and
batches go through `jax.vmap`; `heads` and `values` take batches.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.networks.convolutions import Convolutions, Layer, Precision, output_size
from paramnoise.networks.mlp import MLP, DuelingMLP
from paramnoise.networks.normaliser import Normaliser


class QNetwork(eqx.Module):
    """Q values, and optionally a separate policy head that learns their greedy action (sec. 4.1)."""

    q: MLP | DuelingMLP
    policy: MLP | None

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        key: Array,
        policy_head: bool = False,
        layer_norm: bool = True,
        dueling: bool = False,
    ):
        """Builds the heads; `sizes` runs from the observation to the number of actions.

        The heads share the convolutions of a pixel network; on vectors there are none, so they share nothing.
        """
        q_key, policy_key = jax.random.split(key)
        self.q = (DuelingMLP if dueling else MLP)(sizes, key=q_key, layer_norm=layer_norm)
        self.policy = MLP(sizes, key=policy_key, layer_norm=layer_norm) if policy_head else None

    def values(self, obs: Array) -> Array:
        """The Q values of a batch."""
        return jax.vmap(self.q)(obs)

    def heads(self, obs: Array) -> tuple[Array, Array | None]:
        """The Q values of a batch, and the logits of the policy head if there is one."""
        return self.values(obs), None if self.policy is None else jax.vmap(self.policy)(obs)

    @property
    def behaviour(self) -> MLP | DuelingMLP:
        """The head whose greedy action is the policy, and which parameter noise perturbs."""
        return self.q if self.policy is None else self.policy


class PixelPolicyNetwork(eqx.Module):
    """Convolutions and one head on top; only the head is made of the linear layers that parameter noise perturbs."""

    convolutions: Convolutions
    head: MLP | DuelingMLP

    def __call__(self, stack: Array) -> Array:
        return self.head(self.convolutions(stack))


class PixelQNetwork(eqx.Module):
    """Q values of a stack of frames, and optionally a policy head on the same convolutions (app. A.1).

    The policy head's gradient does not reach the convolutions: they are the Q values' alone.
    """

    convolutions: Convolutions
    q: MLP | DuelingMLP
    policy: MLP | None

    def __init__(
        self,
        stack_shape: Sequence[int],
        layers: Sequence[Layer],
        hidden_sizes: Sequence[int],
        num_actions: int,
        *,
        key: Array,
        policy_head: bool = False,
        layer_norm: bool = True,
        dueling: bool = False,
        precision: Precision = "float32",
    ):
        """Builds the network for uint8[frames, height, width]; `precision` is that of the convolutions."""
        convolution_key, q_key, policy_key = jax.random.split(key, 3)
        frames, *frame_shape = stack_shape
        sizes = (output_size((frame_shape[0], frame_shape[1]), layers), *hidden_sizes, num_actions)
        self.convolutions = Convolutions(frames, layers, key=convolution_key, precision=precision)
        self.q = (DuelingMLP if dueling else MLP)(sizes, key=q_key, layer_norm=layer_norm)
        self.policy = MLP(sizes, key=policy_key, layer_norm=layer_norm) if policy_head else None

    def values(self, obs: Array) -> Array:
        """The Q values of a batch."""
        return jax.vmap(self.q)(self.convolutions.of_batch(obs))

    def heads(self, obs: Array) -> tuple[Array, Array | None]:
        """The Q values of a batch, and the logits of the policy head if there is one."""
        features = self.convolutions.of_batch(obs)
        logits = None if self.policy is None else jax.vmap(self.policy)(jax.lax.stop_gradient(features))
        return jax.vmap(self.q)(features), logits

    @property
    def behaviour(self) -> PixelPolicyNetwork:
        """The network whose greedy action is the policy, and whose head parameter noise perturbs."""
        return PixelPolicyNetwork(self.convolutions, self.q if self.policy is None else self.policy)


class BootstrappedQNetwork(eqx.Module):
    """Several linear Q heads on a shared torso (Osband et al. 2016)."""

    torso: MLP
    heads: eqx.nn.Linear

    def __init__(self, sizes: Sequence[int], *, num_heads: int, key: Array, layer_norm: bool = True):
        """Builds the torso of all hidden layers and `num_heads` independent output layers."""
        torso_key, *head_keys = jax.random.split(key, num_heads + 1)
        self.torso = MLP(sizes[:-1], key=torso_key, layer_norm=layer_norm, activate_last=True)
        self.heads = jax.vmap(lambda k: eqx.nn.Linear(sizes[-2], sizes[-1], key=k))(jnp.stack(head_keys))

    def __call__(self, x: Array) -> Array:  # [num_heads, actions]
        features = self.torso(x)
        return jax.vmap(lambda head: head(features))(self.heads)


OUTPUT_INIT = 3e-3
"""The output layers of actors and critics start uniform within this, so that first actions and values are near 0."""


def quiet_mlp(sizes: Sequence[int], *, key: Array, layer_norm: bool) -> MLP:
    """An MLP whose first outputs are near 0."""
    mlp_key, output_key = jax.random.split(key)
    mlp = MLP(sizes, key=mlp_key, layer_norm=layer_norm)
    return eqx.tree_at(lambda m: m.layers[-1], mlp, _small(mlp.layers[-1], output_key))


class Actor(eqx.Module):
    """A deterministic policy: an MLP with tanh at its output."""

    mlp: MLP

    def __init__(
        self,
        observation_size: int,
        hidden_sizes: Sequence[int],
        action_size: int,
        *,
        key: Array,
        layer_norm: bool = True,
    ):
        """Builds the layers from the observation to the action."""
        self.mlp = quiet_mlp((observation_size, *hidden_sizes, action_size), key=key, layer_norm=layer_norm)

    def __call__(self, x: Array) -> Array:  # [action_size], in [-1, 1]
        return jnp.tanh(self.mlp(x))

    def features(self, x: Array) -> Array:
        """The outputs of the last hidden layer."""
        return self.mlp.features(x)


class NormalisedActor(eqx.Module):
    """An actor, or what SAC has in its place, together with the statistics that its observations are normalised by."""

    normaliser: Normaliser
    actor: Callable[[Array], Array]

    def __call__(self, obs: Array) -> Array:  # the actor's output, for an observation as the environment shows it
        return self.actor(self.normaliser(obs))

    def features(self, obs: Array) -> Array:
        """What the actor says of its last hidden layer, if it does."""
        return self.actor.features(self.normaliser(obs))  # type: ignore[attr-defined]


class Critic(eqx.Module):
    """Q(s, a), with the action entering at the second hidden layer (app. A.2), or at another."""

    layers: tuple[eqx.nn.Linear, ...]
    norms: tuple[eqx.nn.LayerNorm | eqx.nn.Identity, ...]
    action_layer: int = eqx.field(static=True)

    def __init__(
        self,
        observation_size: int,
        hidden_sizes: Sequence[int],
        action_size: int,
        *,
        key: Array,
        layer_norm: bool = True,
        action_layer: int = 1,
    ):
        """Builds the layers from the observation to the value; the action enters at `action_layer`, counted from 0."""
        output_key, *keys = jax.random.split(key, len(hidden_sizes) + 2)
        inputs = [observation_size, *hidden_sizes]
        inputs[action_layer] += action_size
        layers = [eqx.nn.Linear(i, o, key=k) for i, o, k in zip(inputs, (*hidden_sizes, 1), keys, strict=True)]
        self.layers = (*layers[:-1], _small(layers[-1], output_key))
        self.norms = tuple(eqx.nn.LayerNorm(size) if layer_norm else eqx.nn.Identity() for size in hidden_sizes)
        self.action_layer = action_layer

    def __call__(self, obs: Array, action: Array) -> Array:  # scalar
        x = obs
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=False)):
            x = jnp.concatenate([x, action]) if i == self.action_layer else x
            x = jax.nn.relu(norm(layer(x)))
        return self.layers[-1](x)[0]


def _small(layer: eqx.nn.Linear, key: Array) -> eqx.nn.Linear:
    """The layer with weights and biases drawn anew, uniform within +-OUTPUT_INIT."""
    weight_key, bias_key = jax.random.split(key)
    draw = lambda k, old: jax.random.uniform(k, old.shape, old.dtype, -OUTPUT_INIT, OUTPUT_INIT)  # noqa: E731
    return eqx.tree_at(
        lambda n: (n.weight, n.bias), layer, (draw(weight_key, layer.weight), draw(bias_key, layer.bias))
    )
