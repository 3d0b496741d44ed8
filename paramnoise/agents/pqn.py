"""PQN (Gallici et al. 2024): Q-learning from parallel environments, without replay and without a target network.

Layer norm keeps it stable in the place of both. A batch is some steps of every environment; each of its steps has a
Q(lambda) return for a target, and an update goes over the batch a few times. Whatever explores, the learner needs no
word of it: Q-learning is off-policy.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise import schedules
from paramnoise.agents import baseline
from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.agents.on_policy import over_epochs
from paramnoise.experience.rollout import Rollout
from paramnoise.networks import MLP
from paramnoise.networks.own import NetworkSetting, OptimizerSetting, find_network, find_optimizer, make_network
from paramnoise.networks.policies import GreedyPolicy, value_of
from paramnoise.validation import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class PQNConfig:
    """Settings of PQN."""

    network: NetworkSetting = None
    """A factory (observation_shape, actions, key) -> module of Q values, or its registered name, in place of ours."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of each hidden layer."""
    layer_norm: bool = True
    """Layer norm before each nonlinearity: it stands for the target network, and parameter noise needs it (sec. 3)."""
    learning_rate: float | str = 2.5e-4
    """The step size of rectified Adam; or a schedule over train steps, such as linear:5e-4:1e-8:150000."""
    optimizer: OptimizerSetting = None
    """A transformation of optax in place of rectified Adam, or its registered name; `learning_rate` then says
    nothing."""
    max_grad_norm: float | None = 10.0
    """The norm to which a gradient is cut; None: as it is."""
    gamma: float = 0.99
    """The discount factor."""
    q_lambda: float = 0.65
    """The lambda of the returns that are targets; 0: one step, 1: as far as the batch goes."""
    rollout_steps: int = 32
    """Steps of each environment per update."""
    minibatches: int = 8
    """The parts of a batch, each of which is one train step of an epoch; where they do not divide it they are made
    smaller, and there are more of them."""
    epochs: int = 2
    """How often an update goes through its batch."""

    def __post_init__(self) -> None:
        if self.network is not None:
            find_network(self.network)
        require(all(size >= 1 for size in self.hidden_sizes), "hidden_sizes", self.hidden_sizes, "all at least 1")
        schedules.check("learning_rate", self.learning_rate)
        require(self.max_grad_norm is None or self.max_grad_norm > 0, "max_grad_norm", self.max_grad_norm, "above 0")
        _optimizer(self)  # refuses what is none
        for name in ("gamma", "q_lambda"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        for name in ("rollout_steps", "minibatches", "epochs"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")


class PQNState(NamedTuple):
    """All that changes in PQN."""

    network: Any
    """Of Q values; called on one observation."""
    optimizer: Any
    key: Array
    """Decides minibatches, together with the number of updates."""
    updates: Array
    """Batches so far."""


class Sample(NamedTuple):
    """One step of a batch as the loss sees it."""

    obs: Array
    action: Array
    target: Array
    """The Q(lambda) return."""


@register_agent(
    "pqn",
    title="PQN",
    config=PQNConfig,
    experience="rollout",
    policy=GreedyPolicy,
    actions=("discrete",),
    default_exploration="epsilon-greedy",
    exploration_settings={"parameter": {"adapt_every": 100}},
)
def make(config: PQNConfig, spaces: Spaces) -> Learner:
    """Builds PQN for vector observations and discrete actions."""

    def init(key: Array) -> PQNState:
        network_key, key = jax.random.split(key)
        network = _network(config, spaces, network_key)
        return PQNState(network, _optimizer(config).init(network), key, jnp.int32(0))

    policy = lambda state: GreedyPolicy(state.network)  # noqa: E731
    return Learner(config, spaces, init, functools.partial(update, config), policy, needs_offsets=False)


def update(config: PQNConfig, state: PQNState, rollout: Rollout) -> tuple[PQNState, dict[str, Array]]:
    """Several epochs of train steps on minibatches of a batch; the targets are those of the network before them.

    Returns:
        The state, and to report, in the mean over train steps: `q_loss`, half the squared error of the values;
        `q_mean`, the value of the actions that were executed.
    """
    rows = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
    samples = Sample(rows(rollout.obs), rows(rollout.action), rows(targets(config, state.network, rollout)))
    optimizer, count = _optimizer(config), samples.target.shape[0]

    def step(carry: tuple[Any, Any], minibatch: Sample) -> tuple[tuple[Any, Any], dict[str, Array]]:
        network, moments = carry
        gradient, terms = jax.grad(loss, has_aux=True)(network, minibatch)
        changes, moments = optimizer.update(gradient, moments, network)
        return (optax.apply_updates(network, changes), moments), terms

    key, size = jax.random.fold_in(state.key, state.updates), max(count // config.minibatches, 1)
    learned = state.network, state.optimizer
    (network, moments), terms = over_epochs(step, learned, samples, key, size, config.epochs)
    return PQNState(network, moments, state.key, state.updates + 1), jax.tree.map(jnp.mean, terms)


def targets(config: PQNConfig, network: Any, rollout: Rollout) -> Array:
    """The Q(lambda) return of every step of a batch, [environments, steps].

    The value of what follows is that of the best action there. It is a network's own, and the actions need not be its
    own: lambda weighs how far what was done is believed (Peng and Williams 1996).
    """
    following = rollout.next_obs.reshape(-1, *rollout.next_obs.shape[2:])
    best = jnp.max(jax.vmap(network)(following), axis=-1).reshape(rollout.reward.shape)
    ends = (rollout.reward, rollout.terminated, rollout.truncated)
    return baseline.lambda_returns(*ends, best, config.gamma, config.q_lambda)


def loss(network: Any, samples: Sample) -> tuple[Array, dict[str, Array]]:
    """Half the mean squared error of a minibatch, and what to report."""
    values = jax.vmap(network)(samples.obs)
    chosen = value_of(values, samples.action)
    error = 0.5 * jnp.mean(jnp.square(chosen - samples.target))
    return error, {"q_loss": error, "q_mean": jnp.mean(chosen)}


def _network(config: PQNConfig, spaces: Spaces, key: Array) -> Any:
    if config.network is not None:
        return make_network(config.network, spaces.observation, spaces.actions, key)
    return MLP((*spaces.observation, *config.hidden_sizes, spaces.actions), key=key, layer_norm=config.layer_norm)


def _optimizer(config: PQNConfig) -> optax.GradientTransformation:
    rectified = optax.radam(schedules.as_optax(config.learning_rate))
    return find_optimizer(config.optimizer, rectified, config.max_grad_norm)
