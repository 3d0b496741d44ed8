"""Evolution strategies (Salimans et al. 2017): a search among parameters by antithetic pairs of perturbed policies.

A generation perturbs the parameters theta by +sigma * epsilon and -sigma * epsilon for several epsilon, each a slice of
a table of noise that every process holds. A member of the population is told apart by its index in that table alone.
"""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.experience.returns import Returns, num_parameters
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.convolutions import (
    NATURE,
    Convolution,
    Convolutions,
    Layer,
    check_frames,
    check_layers,
    output_size,
)
from paramnoise.networks.heads import PixelPolicyNetwork
from paramnoise.networks.mlp import MLP
from paramnoise.networks.normaliser import Normaliser
from paramnoise.networks.policies import DeterministicPolicy, GreedyPolicy
from paramnoise.validation import UsageError, require

OUTPUT_SCALE = 0.01
"""The norm of the first weights of each output: the first actions are near 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ESConfig:
    """Settings of evolution strategies; the defaults are Salimans et al.'s, population and table apart."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of each hidden layer of the policy, with tanh; for pixels with ReLU, as those of DQN."""
    convolutions: tuple[Layer, ...] = NATURE
    """For pixels: filters, size and stride of each layer; `hidden_sizes` then follow."""
    layer_norm: bool = False
    """Layer norm before each nonlinearity of the hidden layers; its parameters are perturbed as all others are."""
    pairs: int = 20
    """Antithetic pairs of a generation; its population is twice as large."""
    episodes_per_member: int = 1
    """Episodes whose mean return is a member's."""
    sigma: float = 0.02
    """The standard deviation of the perturbations."""
    learning_rate: float = 0.01
    """Adam's step size."""
    l2: float = 0.005
    """Weight decay: this times the parameters is taken from the gradient."""
    action_noise: float = 0.01
    """The standard deviation of the noise on continuous actions of members, in units of half the action range."""
    normalise_observations: bool = True
    """Normalise vectors by the mean and std of all states seen before the generation; frames are scaled to [0, 1]."""
    table_size: int = 2**22
    """Numbers in the table of noise, 4 bytes each, in every process."""
    workers: int = 1
    """Processes that evaluate members, num_envs at a time each; 1: no process but this. It changes no result."""
    engine: Literal["local", "ray"] = "local"
    """Where the workers are: processes of this machine, or actors of a Ray cluster. It changes no result."""
    ray_address: str | None = None
    """The address of the Ray cluster, such as auto or HOST:PORT; None: one on this machine, which ends with the run."""

    def __post_init__(self) -> None:
        require(all(size >= 1 for size in self.hidden_sizes), "hidden_sizes", self.hidden_sizes, "all at least 1")
        check_layers(self.convolutions)
        for name in ("pairs", "episodes_per_member", "table_size", "workers"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("sigma", "learning_rate"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in ("l2", "action_noise"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        require(self.engine in ("local", "ray"), "engine", repr(self.engine), "'local' or 'ray'")
        if self.ray_address is not None and self.engine != "ray":
            raise UsageError(f"ray_address {self.ray_address!r} needs the engine 'ray', not {self.engine!r}")

    def applying(self, spaces: Spaces) -> dict[str, Any]:
        """The settings that matter in such spaces."""
        absent = {"normalise_observations"} if spaces.shows_frames else {"convolutions"}
        absent |= {"action_noise"} if spaces.is_discrete else set()
        absent |= {"ray_address"} if self.engine == "local" else set()
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in absent}

    @property
    def members(self) -> int:
        """The size of the population; member 2 i is +epsilon_i, member 2 i + 1 is -epsilon_i."""
        return 2 * self.pairs


Network = MLP | PixelPolicyNetwork
Weighted = eqx.nn.Linear | Convolution


class ESState(NamedTuple):
    """All that changes in evolution strategies."""

    network: Network
    """theta."""
    optimizer: Any
    statistics: Normaliser
    """Of the states of all generations so far; for pixels of no dimension."""
    generation: Array
    """Generations so far."""


class NormalisedNetwork(eqx.Module):
    """A network together with the statistics that its observations are normalised by."""

    normaliser: Normaliser
    mlp: MLP
    is_bounded: bool = eqx.field(static=True)

    def __call__(self, obs: Array) -> Array:
        """An action in [-1, 1], or a score for each discrete one, for an observation as the environment shows it."""
        outputs = self.mlp(self.normaliser(obs))
        return jnp.tanh(outputs) if self.is_bounded else outputs


class Batch(NamedTuple):
    """What an update learns from."""

    weights: Any
    """What each pair's epsilon counts for, [pairs]."""
    noise: Any
    """Each pair's epsilon, [pairs, parameters]."""
    observed: Normaliser
    """The statistics of the generation's states."""


@register_agent(
    "es",
    title="evolution strategies",
    config=ESConfig,
    experience="returns",
    policy=DeterministicPolicy,
    actions=("discrete", "continuous"),
    observations=("vectors", "frames"),
    explores=False,
    default_exploration="none",
)
def make(config: ESConfig, spaces: Spaces) -> Learner:
    """Builds ES for vectors or uint8 stacks of frames, and discrete actions, or continuous ones in [-1, 1] on vectors.

    The learner is made of functions that can be sent to other processes.
    """
    if spaces.shows_frames:
        check_frames(spaces.observation[1:], config.convolutions)
        if not spaces.is_discrete:
            raise UsageError("es needs discrete actions on pixels, not continuous ones: wrap the environment")
    first = functools.partial(init, config, spaces)
    parameters = num_parameters(first)
    constraint = f"at least the {parameters} parameters of the policy"
    require(config.table_size >= parameters, "table_size", config.table_size, constraint)
    step, act = functools.partial(update, config), functools.partial(policy, spaces.is_discrete)
    return Learner(config, spaces, first, step, act, prepare=prepare)


def prepare(gathered: Returns, number: int) -> Batch:
    """Ranks the returns, on the host."""
    return Batch(pair_weights(gathered.returns), gathered.noise, gathered.observed)


def init(config: ESConfig, spaces: Spaces, key: Array) -> ESState:
    """The state before the first generation."""
    network = _network(config, spaces, key)
    layers = _layers(network)
    scales = [1.0] * (len(layers) - 1) + [OUTPUT_SCALE]
    keys = jax.random.split(key, len(scales))
    first = tuple(_of_norm(*each) for each in zip(layers, scales, keys, strict=True))
    network = eqx.tree_at(_layers, network, first)
    statistics = normalisers.init(0 if spaces.shows_frames else spaces.observation[0])
    return ESState(network, _optimizer(config).init(network), statistics, jnp.int32(0))


def policy(is_discrete: bool, state: ESState) -> DeterministicPolicy | GreedyPolicy:
    """The unperturbed policy: the highest score's action, or the output itself."""
    if isinstance(state.network, PixelPolicyNetwork):
        return GreedyPolicy(state.network)
    network = NormalisedNetwork(state.statistics, state.network, not is_discrete)
    return GreedyPolicy(network) if is_discrete else DeterministicPolicy(network)


def centred_ranks(returns: np.ndarray) -> np.ndarray:
    """The rank of each return among all, from -0.5 (the lowest) to 0.5 (the highest); equal returns share a rank."""
    flat = np.ravel(returns)
    ordered = np.sort(flat)
    ranks = (np.searchsorted(ordered, flat, "left") + np.searchsorted(ordered, flat, "right") - 1) / 2
    return (ranks / (flat.size - 1) - 0.5).reshape(np.shape(returns))


def pair_weights(returns: np.ndarray) -> np.ndarray:
    """What each pair's epsilon counts for, given the returns at +epsilon and -epsilon, [pairs, 2]."""
    ranks = centred_ranks(returns)
    return (ranks[:, 0] - ranks[:, 1]).astype(np.float32)


def gradient_estimate(noise: Array, weights: Array) -> Array:
    """The direction in which returns rise: sum of (rank+ - rank-) * epsilon over the population's size (algorithm 2).

    As in the authors' code the factor 1 / sigma is left out: Adam does not see it, and `l2` is meant for this scale.
    """
    return jnp.dot(weights, noise, precision=jax.lax.Precision.HIGHEST) / (2 * len(weights))


def update(config: ESConfig, state: ESState, batch: Batch) -> tuple[ESState, dict[str, Array]]:
    """One step of Adam along the estimate, less weight decay; statistics take in the generation's states.

    It reports the norm of the estimate before weight decay, and that of theta after the update. Where no pair differs
    there is nothing to learn, and theta stays: Adam would turn weight decay alone, however small, into whole steps
    toward 0.
    """
    unflatten = ravel_pytree(state.network)[1]
    gradient = gradient_estimate(batch.noise, batch.weights)
    steps, optimizer = _optimizer(config).update(unflatten(-gradient), state.optimizer, state.network)
    moved = optax.apply_updates(state.network, steps), optimizer
    teaches = jnp.any(batch.weights != 0)
    network, optimizer = jax.tree.map(
        lambda new, old: jnp.where(teaches, new, old), moved, (state.network, state.optimizer)
    )
    statistics = state.statistics
    if config.normalise_observations:
        statistics = normalisers.merge(statistics, batch.observed)
    norms = {
        "gradient_norm": jnp.linalg.norm(gradient),
        "parameter_norm": jnp.linalg.norm(ravel_pytree(network)[0]),
    }
    return ESState(network, optimizer, statistics, state.generation + 1), norms


def _optimizer(config: ESConfig) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(config.l2), optax.adam(config.learning_rate))


def _network(config: ESConfig, spaces: Spaces, key: Array) -> Network:
    """A network of the right shape; its weights are not yet those that ES starts with."""
    outputs = (*config.hidden_sizes, spaces.actions)
    if not spaces.shows_frames:
        return MLP((*spaces.observation, *outputs), key=key, layer_norm=config.layer_norm, activation=jnp.tanh)
    frames, *frame_shape = spaces.observation
    features = output_size((frame_shape[0], frame_shape[1]), config.convolutions)
    convolutions = Convolutions(frames, config.convolutions, key=key)
    return PixelPolicyNetwork(convolutions, MLP((features, *outputs), key=key, layer_norm=config.layer_norm))


def _layers(network: Network) -> tuple[Weighted, ...]:
    """The layers that have weights, from the first to the output."""
    if isinstance(network, MLP):
        return network.layers
    assert isinstance(network.head, MLP)
    return (*network.convolutions.layers, *network.head.layers)


def _of_norm(layer: Weighted, scale: float, key: Array) -> Weighted:
    """The layer with random weights of that norm for each unit, and biases of 0, as the authors' code starts."""
    weight = jax.random.normal(key, layer.weight.shape, layer.weight.dtype)
    weight = scale * weight / jnp.linalg.norm(weight, axis=1, keepdims=True)
    return eqx.tree_at(lambda n: (n.weight, n.bias), layer, (weight, jnp.zeros(len(weight))))
