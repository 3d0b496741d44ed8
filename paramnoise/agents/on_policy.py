"""What on-policy learners share: the policy that suits the actions, a network of values, and minibatches of a batch."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise.agents import baseline
from paramnoise.agents.base import Spaces
from paramnoise.experience.rollout import Rollout
from paramnoise.networks import MLP
from paramnoise.networks.gsde import StateGaussianPolicy, first_log_std
from paramnoise.networks.own import make_network
from paramnoise.networks.policies import CategoricalPolicy, GaussianPolicy, MultiCategoricalPolicy, StochasticPolicy
from paramnoise.validation import UsageError


def stochastic_policy(
    spaces: Spaces, network: Any, initial_std: float, std_from_features: bool = False
) -> StochasticPolicy:
    """The distribution that suits the actions, with its parameters from a network.

    Args:
        spaces: of the environment.
        network: of means or logits.
        initial_std: of Gaussians, at first.
        std_from_features: whether that of Gaussians comes from the network's features; it is then an MLP.
    """
    if std_from_features and spaces.is_discrete:
        raise UsageError("std_from_features, which gsde needs, is for continuous actions")
    if std_from_features:
        dimensions, features = network.layers[-1].weight.shape
        first = math.log(initial_std) + first_log_std(features)
        return StateGaussianPolicy(network, jnp.full((features, dimensions), first))
    if spaces.parts:
        return MultiCategoricalPolicy(network, spaces.parts)
    if spaces.is_discrete:
        return CategoricalPolicy(network)
    return GaussianPolicy(network, jnp.full(spaces.actions, math.log(initial_std)))


def make_tanh_network(config: Any, spaces: Spaces, outputs: int, gain: float, key: Array) -> Any:
    """A network of observations by a learner's settings.

    Args:
        config: has `network`, a factory of the user's or None, and else `hidden_sizes` and `layer_norm`.
        spaces: of the environment.
        outputs: how many.
        gain: of the last layer's weights; a factory's are as it makes them.
        key: a random key.
    """
    if config.network is not None:
        return make_network(config.network, spaces.observation, outputs, key)
    sizes = (*spaces.observation, *config.hidden_sizes, outputs)
    return orthogonal(MLP(sizes, key=key, layer_norm=config.layer_norm, activation=jnp.tanh), key, gain)


def orthogonal(network: MLP, key: Array, gain: float) -> MLP:
    """The network with orthogonal weights, of gain sqrt(2) but for the last layer's, and biases of 0."""

    def draw(layer: eqx.nn.Linear, key: Array, gain: float) -> eqx.nn.Linear:
        weight = jax.nn.initializers.orthogonal(gain)(key, layer.weight.shape, layer.weight.dtype)
        return eqx.tree_at(lambda n: (n.weight, n.bias), layer, (weight, jnp.zeros(layer.out_features)))

    gains = [math.sqrt(2)] * (len(network.layers) - 1) + [gain]
    keys = jax.random.split(key, len(network.layers))
    return eqx.tree_at(lambda n: n.layers, network, tuple(map(draw, network.layers, keys, gains)))


class Estimates(NamedTuple):
    """What a network of values makes of a batch, [environments, steps]."""

    values: Array
    """Of each observation, before the batch."""
    advantages: Array
    """Generalised advantage estimates; 0 in a batch without any reward, where they are remains of earlier batches."""
    returns: Array
    """What the values should have been: the values and the advantage estimates (TD(lambda))."""
    has_reward: Array
    """Whether there was any reward."""


def predict(network: Any, obs: Array) -> Array:
    """The values of observations with any leading axes, by a network with one output."""
    flat = jax.vmap(network)(obs.reshape(-1, obs.shape[-1]))
    return flat.reshape(obs.shape[:-1])


def estimate(network: Any, rollout: Rollout, gamma: float, gae_lambda: float) -> Estimates:
    """The advantages and returns of a batch.

    A time limit and the batch's end are bootstrapped, a termination is not.
    """
    values, next_values = predict(network, rollout.obs), predict(network, rollout.next_obs)
    ends = (rollout.reward, rollout.terminated, rollout.truncated)
    advantages = baseline.advantages(*ends, values, next_values, gamma, gae_lambda)
    has_reward = jnp.any(rollout.reward != 0)
    return Estimates(values, jnp.where(has_reward, advantages, 0.0), values + advantages, has_reward)


class LearnedValues(NamedTuple):
    """A network of values with an optimizer of its own, for a learner whose policy does not move by gradient steps."""

    network: Any
    optimizer: Any
    key: Array
    """Decides minibatches, together with the number of updates."""


def fit(
    optimizer: optax.GradientTransformation, learned: LearnedValues, obs: Array, returns: Array, chosen: Array
) -> LearnedValues:
    """The values after train steps on the squared error.

    Args:
        optimizer: makes the steps.
        learned: the values before.
        obs: the observations of a batch, [rows, ...].
        returns: what their values should have been, [rows].
        chosen: the row numbers of every minibatch, [minibatches, size].
    """

    def step(carry: tuple[Any, Any], rows: Array) -> tuple[tuple[Any, Any], None]:
        network, moments = carry
        gradient = jax.grad(lambda n: jnp.mean(jnp.square(predict(n, obs[rows]) - returns[rows])))(network)
        changes, moments = optimizer.update(gradient, moments, network)
        return (optax.apply_updates(network, changes), moments), None

    (network, moments), _ = jax.lax.scan(step, (learned.network, learned.optimizer), chosen)
    return learned._replace(network=network, optimizer=moments)


def minibatches(key: Array, rows: int, size: int, epochs: int) -> Array:
    """The row numbers of every minibatch, [minibatches, size]; each epoch has an order of its own."""
    chosen = jax.vmap(lambda own: in_order(own, rows, size))(jax.random.split(key, epochs))
    return chosen.reshape(-1, chosen.shape[-1])


def in_order(key: Array, rows: int, size: int) -> Array:
    """The row numbers of an epoch's minibatches, [minibatches, size].

    It has all rows in an order of its own; those that fill no minibatch at its end are left out of it.
    """
    size = min(size, rows)
    return permutation(key, rows)[: rows // size * size].reshape(-1, size)


def over_epochs(
    step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, samples: Any, key: Array, size: int, epochs: int
) -> tuple[Any, Any]:
    """Carries a value over the minibatches of several epochs: `step(carry, minibatch)` returns the next and a report.

    An epoch puts all samples in order at once: small gathers within every train step cost a GPU more.

    Args:
        step: called for each minibatch.
        carry: the first.
        samples: arrays with a leading axis of rows.
        key: a random key; the orders are those of `minibatches`.
        size: rows of a minibatch.
        epochs: how many.

    Returns:
        The last carry, and the reports, [epochs, minibatches, ...].
    """
    rows = jax.tree.leaves(samples)[0].shape[0]

    def epoch(carry: Any, key: Array) -> tuple[Any, Any]:
        chosen = in_order(key, rows, size)
        return jax.lax.scan(step, carry, jax.tree.map(lambda field: field[chosen], samples))

    return jax.lax.scan(epoch, carry, jax.random.split(key, epochs))


def permutation(key: Array, rows: int) -> Array:
    """The numbers of so many rows in random order: rows sorted by a random number of 32 bits each.

    Where two of these are equal, of 131,072 rows about two pairs, the rows stay in turn: `jax.random.permutation` sorts
    more than once to rule that out, which takes twice the time.
    """
    numbers = jax.random.bits(key, (rows,))
    is_cpu = jax.default_backend() == "cpu"
    return stable_order(numbers) if rows <= 2**16 and is_cpu else jnp.argsort(numbers)


def stable_order(numbers: Array) -> Array:
    """The places of uint32 numbers, 65,536 of them at most, from the least to the greatest; of equal ones in turn.

    XLA sorts numbers on a CPU seven times as fast as pairs of a number and its place. So each sort here is of numbers
    whose lower half says where they are: by the lower halves of what was given first, then by the higher halves.
    """
    places = jnp.arange(len(numbers), dtype=jnp.uint32)
    order_by = lambda halves: jax.lax.sort(halves << 16 | places) & 0xFFFF  # noqa: E731
    order = order_by(numbers & 0xFFFF)
    return order[order_by(numbers[order] >> 16)]
