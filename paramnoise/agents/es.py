"""Evolution strategies (Salimans et al. 2017): a search among parameters by antithetic pairs of perturbed policies.

A generation perturbs the parameters theta by +sigma * epsilon and -sigma * epsilon for several epsilon, each a slice of
a table of noise that every process holds. A member of the population is told apart by its index in that table alone.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from paramnoise import normalisation
from paramnoise.networks import MLP
from paramnoise.normalisation import Normaliser
from paramnoise.policies import DeterministicPolicy, GreedyPolicy
from paramnoise.validation import UsageError, require

TABLE_SEED = 123
"""The noise table is the same in every run and process; a run's seed decides where in it a perturbation starts."""

PERTURB, RESET, ACT = range(3)
"""What a draw is for."""

OUTPUT_SCALE = 0.01
"""The norm of the first weights of each output: the first actions are near 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ESConfig:
    """Settings of evolution strategies; the defaults are Salimans et al.'s, population and table apart."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of each hidden layer of the policy, with tanh."""
    layer_norm: bool = False
    """Layer norm before each nonlinearity; its parameters are perturbed as all others are."""
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
    """Normalise observations by the mean and std of all states seen before the generation."""
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
        for name in ("pairs", "episodes_per_member", "table_size", "workers"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("sigma", "learning_rate"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in ("l2", "action_noise"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        require(self.engine in ("local", "ray"), "engine", repr(self.engine), "'local' or 'ray'")
        if self.ray_address is not None and self.engine != "ray":
            raise UsageError(f"ray_address {self.ray_address!r} needs the engine 'ray', not {self.engine!r}")

    @property
    def members(self) -> int:
        """The size of the population; member 2 i is +epsilon_i, member 2 i + 1 is -epsilon_i."""
        return 2 * self.pairs


class ESState(NamedTuple):
    """All that changes in evolution strategies."""

    network: MLP
    """theta."""
    optimizer: Any
    statistics: Normaliser
    """Of the states of all generations so far."""
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


class Report(NamedTuple):
    """What an update reports."""

    gradient_norm: Array
    """Of the estimate, before weight decay."""
    parameter_norm: Array
    """Of theta after the update."""


class ESLearner(NamedTuple):
    """Evolution strategies without the evaluation of members."""

    config: ESConfig
    is_discrete: bool
    num_parameters: int
    init: Callable[[Array], ESState]
    """key -> state."""
    update: Callable[[ESState, Any, Any, Normaliser], tuple[ESState, Report]]
    """state, noise and weight of each pair, statistics of the states seen -> state, what to report."""
    policy: Callable[[ESState], DeterministicPolicy | GreedyPolicy]
    """state -> the unperturbed policy."""


def make(config: ESConfig, observation_size: int, action_size: int, *, is_discrete: bool) -> ESLearner:
    """Builds ES for vector observations and discrete actions, or continuous ones in [-1, 1].

    The learner is made of functions that can be sent to other processes.
    """
    first = functools.partial(init, config, observation_size, action_size)
    shapes = jax.tree.leaves(jax.eval_shape(first, jax.random.PRNGKey(0)).network)
    parameters = sum(math.prod(leaf.shape) for leaf in shapes)
    constraint = f"at least the {parameters} parameters of the policy"
    require(config.table_size >= parameters, "table_size", config.table_size, constraint)
    update_network = functools.partial(update, config)
    return ESLearner(config, is_discrete, parameters, first, update_network, functools.partial(policy, is_discrete))


def init(config: ESConfig, observation_size: int, action_size: int, key: Array) -> ESState:
    """The state before the first generation."""
    sizes = (observation_size, *config.hidden_sizes, action_size)
    mlp = MLP(sizes, key=key, layer_norm=config.layer_norm, activation=jnp.tanh)
    scales = [1.0] * len(config.hidden_sizes) + [OUTPUT_SCALE]
    keys = jax.random.split(key, len(scales))
    layers = tuple(_of_norm(*each) for each in zip(mlp.layers, scales, keys, strict=True))
    network = eqx.tree_at(lambda n: n.layers, mlp, layers)
    return ESState(network, _optimizer(config).init(network), normalisation.init(observation_size), jnp.int32(0))


def policy(is_discrete: bool, state: ESState) -> DeterministicPolicy | GreedyPolicy:
    """The unperturbed policy: the highest score's action, or the output itself."""
    network = NormalisedNetwork(state.statistics, state.network, not is_discrete)
    return GreedyPolicy(network) if is_discrete else DeterministicPolicy(network)


@functools.cache
def noise_table(size: int) -> np.ndarray:
    """Standard normal noise, the same wherever it is made; made once per process."""
    table = np.random.default_rng(TABLE_SEED).standard_normal(size, np.float32)
    table.flags.writeable = False
    return table


def draw_index(config: ESConfig, num_parameters: int, seed: int, generation: int, pair: int) -> int:
    """Where in the table a pair's epsilon starts: a function of its arguments alone, so that it need not be sent."""
    rng = np.random.default_rng((seed, PERTURB, generation, pair))
    return int(rng.integers(config.table_size - num_parameters, endpoint=True))


def epsilons(table: np.ndarray, indices: Sequence[int], num_parameters: int) -> np.ndarray:
    """The noise of each pair, [pairs, parameters]."""
    return np.stack([table[index : index + num_parameters] for index in indices])


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


def update(
    config: ESConfig, state: ESState, noise: Array, weights: Array, observed: Normaliser
) -> tuple[ESState, Report]:
    """One step of Adam along the estimate, less weight decay; statistics take in the generation's states.

    Where no pair differs there is nothing to learn, and theta stays: Adam would turn weight decay alone, however small,
    into whole steps toward 0.
    """
    unflatten = ravel_pytree(state.network)[1]
    gradient = gradient_estimate(noise, weights)
    steps, optimizer = _optimizer(config).update(unflatten(-gradient), state.optimizer, state.network)
    moved = optax.apply_updates(state.network, steps), optimizer
    teaches = jnp.any(weights != 0)
    network, optimizer = jax.tree.map(
        lambda new, old: jnp.where(teaches, new, old), moved, (state.network, state.optimizer)
    )
    statistics = state.statistics
    if config.normalise_observations:
        statistics = normalisation.merge(statistics, observed)
    report = Report(jnp.linalg.norm(gradient), jnp.linalg.norm(ravel_pytree(network)[0]))
    return ESState(network, optimizer, statistics, state.generation + 1), report


def _optimizer(config: ESConfig) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(config.l2), optax.adam(config.learning_rate))


def _of_norm(layer: eqx.nn.Linear, scale: float, key: Array) -> eqx.nn.Linear:
    """The layer with random weights of that norm for each unit, and biases of 0, as the authors' code starts."""
    weight = jax.random.normal(key, layer.weight.shape, layer.weight.dtype)
    weight = scale * weight / jnp.linalg.norm(weight, axis=1, keepdims=True)
    return eqx.tree_at(lambda n: (n.weight, n.bias), layer, (weight, jnp.zeros(layer.out_features)))
