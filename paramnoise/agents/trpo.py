"""TRPO (Schulman et al. 2015), whose batch may hold episodes with parameter noise (sec. 2.2, app. B).

The learner knows nothing of how noise came about: each segment of a batch brings an offset, its behaviour was the
policy at phi + offset, and gradients go to phi. Without noise the offsets are 0.
"""

import dataclasses
import functools
import math
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from paramnoise import schedules
from paramnoise.agents import baseline
from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.agents.on_policy import (
    Estimates,
    LearnedValues,
    estimate,
    fit,
    make_tanh_network,
    minibatches,
    stochastic_policy,
)
from paramnoise.agents.surrogate import Surrogate
from paramnoise.experience.rollout import Rollout
from paramnoise.experience.segments import Chunks, Layout, cut
from paramnoise.networks import MLP
from paramnoise.networks.own import NetworkSetting, find_network, make_network
from paramnoise.networks.policies import StochasticPolicy
from paramnoise.noise.natural import backtrack, boundary_scale, conjugate_gradient
from paramnoise.validation import lookup, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class TRPOConfig:
    """Settings of TRPO; the defaults are the paper's (app. A.2), and rllab's where it is silent."""

    added_later: ClassVar = ("baseline", "value_learning_rate", "value_minibatch_size", "value_epochs")

    network: NetworkSetting = None
    """A factory (observation_shape, outputs, key) -> module of the means or logits, or its registered name, in place of
    ours."""
    hidden_sizes: tuple[int, ...] = (32, 32)
    """Units of each hidden layer of the policy, with tanh."""
    layer_norm: bool = False
    """Layer norm before each nonlinearity."""
    initial_std: float = 1.0
    """The first standard deviation of a Gaussian policy, in units of half the action range."""
    gamma: float = 0.99
    """The discount factor."""
    gae_lambda: float = 1.0
    """The lambda of generalised advantage estimation; 1: returns less the baseline."""
    baseline: Literal["linear", "network"] = "linear"
    """What values are: the paper's linear baseline, fitted on the batch before, or a network of as many units as the
    policy's."""
    value_learning_rate: float | str = 1e-3
    """A network of values: Adam's step size; or a schedule over train steps, such as linear:1e-3:1e-5:10000."""
    value_minibatch_size: int = 128
    """A network of values: environment steps per train step."""
    value_epochs: int = 10
    """A network of values: how often an update goes through its batch."""
    batch_size: int = 5_000
    """Environment steps per update, over all environments."""
    delta_kl: float = 0.01
    """The trust region: the mean KL between old and new policy is at most this."""
    fisher_fraction: float = 0.1
    """The part of the batch that Fisher-vector products are computed on."""
    cg_steps: int = 10
    """Conjugate-gradient steps."""
    damping: float = 1e-5
    """Added to the diagonal of the Fisher matrix."""
    shrinkage: float = 0.8
    """The factor by which the line search shortens a step."""
    max_backtracks: int = 15
    """Lengths that the line search tries before the policy is left as it was."""

    def __post_init__(self) -> None:
        if self.network is not None:
            find_network(self.network)
        require(all(size >= 1 for size in self.hidden_sizes), "hidden_sizes", self.hidden_sizes, "all at least 1")
        for name in ("initial_std", "delta_kl"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in ("gamma", "gae_lambda"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        lookup("baseline", self.baseline, dict.fromkeys(("linear", "network")))
        schedules.check("value_learning_rate", self.value_learning_rate)
        for name in ("batch_size", "cg_steps", "max_backtracks", "value_minibatch_size", "value_epochs"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 < self.fisher_fraction <= 1, "fisher_fraction", self.fisher_fraction, "above 0 and at most 1")
        require(self.damping >= 0, "damping", self.damping, "at least 0")
        require(0 < self.shrinkage < 1, "shrinkage", self.shrinkage, "above 0 and below 1")

    def applying(self, spaces: Spaces) -> dict[str, Any]:
        """The settings that matter in such spaces."""
        absent = {"initial_std"} if spaces.is_discrete else set()
        if self.baseline == "linear":
            absent |= {"value_learning_rate", "value_minibatch_size", "value_epochs"}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in absent}

    @property
    def layout(self) -> Layout:
        """How sums over the whole batch are cut."""
        return Layout(stride=1, rows=32, block=16)

    @property
    def fisher_layout(self) -> Layout:
        """How Fisher-vector products are cut: they take every n-th row."""
        return Layout(stride=round(1 / self.fisher_fraction), rows=8, block=32)


class TRPOState(NamedTuple):
    """All that changes in TRPO."""

    policy: StochasticPolicy
    baseline: Array | LearnedValues
    """The weights of the linear baseline, fitted on the batch before; or a network of values."""
    updates: Array
    """Batches so far."""


class Batch(NamedTuple):
    """A rollout, and how its segments are cut for the sums over it."""

    rollout: Rollout
    chunks: Chunks
    """All rows, cut by `config.layout`."""
    fisher_chunks: Chunks
    """Those for Fisher-vector products, cut by `config.fisher_layout`."""


@register_agent(
    "trpo",
    title="TRPO",
    config=TRPOConfig,
    experience="rollout",
    policy=StochasticPolicy,
    actions=("discrete", "multi-discrete", "continuous"),
    default_exploration="parameter",
)
def make(config: TRPOConfig, spaces: Spaces) -> Learner:
    """Builds TRPO for vector observations and discrete actions of one or more parts, or continuous ones in [-1, 1]."""
    (observation_size,), action_size = spaces.observation, spaces.actions

    def init(key: Array) -> TRPOState:
        sizes = (observation_size, *config.hidden_sizes, action_size)
        network: Any = _xavier(MLP(sizes, key=key, layer_norm=config.layer_norm, activation=jnp.tanh), key)
        if config.network is not None:
            network = make_network(config.network, spaces.observation, action_size, key)
        return TRPOState(
            stochastic_policy(spaces, network, config.initial_std),
            jnp.zeros(baseline.num_features(observation_size)) if config.baseline == "linear" else values(key),
            jnp.int32(0),
        )

    def values(key: Array) -> LearnedValues:
        network_key, order_key = jax.random.split(jax.random.fold_in(key, 1))  # the policy's draws stay what they were
        network = make_tanh_network(config, spaces, 1, 1.0, network_key)
        return LearnedValues(network, _value_optimizer(config).init(network), order_key)

    step, cut_up = functools.partial(update, config), functools.partial(prepare, config)
    return Learner(config, spaces, init, step, lambda state: state.policy, prepare=cut_up)


def prepare(config: TRPOConfig, rollout: Rollout, number: int) -> Batch:
    """Cuts a rollout's segments, on the host; the Fisher matrix sees other rows in each batch."""
    segments, capacity = rollout.segment.reshape(-1), len(rollout.offsets)
    fisher_chunks = cut(segments, config.fisher_layout, capacity, phase=number)
    return Batch(rollout, cut(segments, config.layout, capacity), fisher_chunks)


def update(config: TRPOConfig, state: TRPOState, batch: Batch) -> tuple[TRPOState, dict[str, Array]]:
    """One step of the policy within the trust region, then the fit of the values.

    In a batch without any reward the advantages are 0 and the policy stays. All that values could say there is from
    earlier batches: standardised, their remains would move the policy as far as rewards do.

    Returns:
        The state, and to report: `kl`, the mean KL(old || new), each episode under its own noise; `improvement`, what
        the surrogate gained; `backtracks`, how often the line search shortened the step; `accepted`, 1 if the policy
        moved, 0 if the search failed and it stayed; `entropy`, of the behaviour; `explained_variance`, of the returns,
        by the values before the batch.
    """
    rollout = with_offsets(batch.rollout, state.policy)
    if isinstance(state.baseline, LearnedValues):
        estimates = estimate(state.baseline.network, rollout, config.gamma, config.gae_lambda)
    else:
        estimates = linear_estimate(state.baseline, rollout, config.gamma, config.gae_lambda)
    advantage = _rows(baseline.standardise(estimates.advantages))
    surrogate = make_surrogate(config, state.policy, batch._replace(rollout=rollout), advantage)
    policy, terms = improve(config, state.policy, surrogate)
    terms["explained_variance"] = baseline.explained_variance(estimates.values, estimates.returns)
    if isinstance(state.baseline, LearnedValues):
        key = jax.random.fold_in(state.baseline.key, state.updates)
        chosen = minibatches(key, len(advantage), config.value_minibatch_size, config.value_epochs)
        returns = _rows(estimates.returns)
        fitted: Any = fit(_value_optimizer(config), state.baseline, _rows(rollout.obs), returns, chosen)
    else:
        fitted = baseline.fit(rollout.obs, rollout.time, estimates.returns)
    return TRPOState(policy, fitted, state.updates + 1), terms


def with_offsets(rollout: Rollout, policy: StochasticPolicy) -> Rollout:
    """The batch with offsets of 0 where behaviour added none: a block of chunks is computed with its offsets."""
    capacity, width = rollout.offsets.shape
    return rollout if width else rollout._replace(offsets=jnp.zeros((capacity, ravel_pytree(policy)[0].size)))


def linear_estimate(weights: Array, rollout: Rollout, gamma: float, gae_lambda: float) -> Estimates:
    """What a linear baseline makes of a batch; its returns are the discounted sums of rewards.

    In a batch without any reward it counts for 0, so that a fit starts anew: one on its remains would feed on itself.
    """
    has_reward = jnp.any(rollout.reward != 0)
    weights = jnp.where(has_reward, weights, 0.0)
    values = baseline.predict(weights, rollout.obs, rollout.time)
    next_values = baseline.predict(weights, rollout.next_obs, rollout.time + 1)
    ends = (rollout.reward, rollout.terminated, rollout.truncated)
    advantages = baseline.advantages(*ends, values, next_values, gamma, gae_lambda)
    return Estimates(values, advantages, baseline.discounted_returns(*ends, next_values, gamma), has_reward)


def make_surrogate(config: TRPOConfig, policy: StochasticPolicy, batch: Batch, advantage: Array) -> Surrogate:
    """What an update improves, with the advantage of each row of its batch."""
    return Surrogate(
        policy,
        _rows(batch.rollout.obs),
        _rows(batch.rollout.action),
        advantage,
        batch.rollout.offsets,
        batch.chunks,
        config.layout,
        batch.fisher_chunks,
        config.fisher_layout,
    )


def improve(
    config: TRPOConfig, policy: StochasticPolicy, surrogate: Surrogate
) -> tuple[StochasticPolicy, dict[str, Array]]:
    """The policy after a natural gradient step that raises the surrogate within the trust region, if there is one."""
    flat, unflatten = ravel_pytree(policy)
    gradient, old, entropy = surrogate.linearise(flat)

    def product(vector: Array) -> Array:
        return surrogate.fisher_product(flat, vector) + config.damping * vector

    step = conjugate_gradient(product, gradient, config.cg_steps)
    step = step * boundary_scale(step @ product(step), config.delta_kl)

    def try_fraction(fraction: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        parameters = flat + fraction * step
        improvement, kl = surrogate.compare(parameters, old)
        return (kl <= config.delta_kl) & (improvement > 0), (parameters, improvement, kl)

    nothing = (flat, jnp.zeros_like(entropy), jnp.zeros_like(entropy))
    search = backtrack(try_fraction, nothing, config.shrinkage, config.max_backtracks)
    parameters, improvement, kl = search.measured
    terms = {
        "kl": kl,
        "improvement": improvement,
        "backtracks": search.backtracks.astype(kl.dtype),
        "accepted": search.found.astype(kl.dtype),
        "entropy": entropy,
    }
    return unflatten(parameters), terms


def _rows(x: Array) -> Array:
    """An array of a batch, [environments, steps, ...], as [rows, ...]."""
    return x.reshape(-1, *x.shape[2:])


def _value_optimizer(config: TRPOConfig) -> optax.GradientTransformation:
    return optax.adam(schedules.as_optax(config.value_learning_rate))


def _xavier(network: MLP, key: Array) -> MLP:
    """The network with weights uniform within +-sqrt(6 / (inputs + outputs)) and biases of 0, as rllab starts."""

    def draw(layer: eqx.nn.Linear, key: Array) -> eqx.nn.Linear:
        bound = math.sqrt(6 / sum(layer.weight.shape))
        weight = jax.random.uniform(key, layer.weight.shape, layer.weight.dtype, -bound, bound)
        return eqx.tree_at(lambda n: (n.weight, n.bias), layer, (weight, jnp.zeros(layer.out_features)))

    keys = jax.random.split(key, len(network.layers))
    layers = tuple(draw(layer, k) for layer, k in zip(network.layers, keys, strict=True))
    return eqx.tree_at(lambda n: n.layers, network, layers)
