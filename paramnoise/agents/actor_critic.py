"""What DDPG, TD3 and SAC share: settings, optimizers, the statistics of observations, one step of an optimizer."""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise import schedules
from paramnoise.agents.base import Spaces
from paramnoise.experience.replay import Transition
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.heads import Critic
from paramnoise.networks.normaliser import Normaliser
from paramnoise.networks.own import (
    NetworkSetting,
    OptimizerSetting,
    OwnCritic,
    find_network,
    find_optimizer,
    make_critic,
)
from paramnoise.validation import require

State = TypeVar("State", bound=Any)
Network = TypeVar("Network")
Critics = tuple[Critic | OwnCritic, Critic | OwnCritic]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorCriticConfig:
    """Settings of an actor and its critics that learn from replay, with targets that follow slowly."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of each hidden layer of actor and critics."""
    layer_norm: bool = True
    """Layer norm before each nonlinearity; parameter noise needs it (sec. 3)."""
    network: NetworkSetting = None
    """A factory (observation_shape, outputs, key) -> module in place of our actor, or its registered name."""
    critic_network: NetworkSetting = None
    """A factory (observation_shape, action_size, key) -> module of (observation, action) in place of our critic."""
    actor_learning_rate: float | str = 1e-3
    """Adam's step size for the actor; or a schedule over its steps, such as linear:1e-3:1e-5:100000."""
    critic_learning_rate: float | str = 1e-3
    """Adam's step size for the critics, likewise."""
    optimizer: OptimizerSetting = None
    """A transformation of optax in place of Adam, for actor and critics, or its registered name; the learning rates
    then say nothing."""
    max_grad_norm: float | None = None
    """The norm to which the gradient of the actor, and that of the critics, is cut; None: as it is."""
    tau: float = 0.005
    """How far the target networks move toward the learned ones at a time."""
    gamma: float = 0.99
    """The discount factor."""
    batch_size: int = 128
    """Transitions per train step."""
    buffer_size: int = 100_000
    """Transitions that replay holds."""
    learning_starts: int = 1_000
    """Environment steps before the first cycle."""
    train_every: int = 1
    """Environment steps of a cycle."""
    train_steps: int = 1
    """Train steps after each cycle."""
    normalise_observations: bool = True
    """Normalise observations by their running mean and std."""

    def __post_init__(self) -> None:
        require(len(self.hidden_sizes) >= 1, "hidden_sizes", self.hidden_sizes, "at least one")
        require(all(size >= 1 for size in self.hidden_sizes), "hidden_sizes", self.hidden_sizes, "all at least 1")
        for name in ("actor_learning_rate", "critic_learning_rate"):
            schedules.check(name, getattr(self, name))
        for network in (self.network, self.critic_network):
            if network is not None:
                find_network(network)
        require(self.max_grad_norm is None or self.max_grad_norm > 0, "max_grad_norm", self.max_grad_norm, "above 0")
        optimizers(self)  # refuses what is none
        require(0 < self.tau <= 1, "tau", self.tau, "above 0 and at most 1")
        require(0 <= self.gamma <= 1, "gamma", self.gamma, "between 0 and 1")
        for name in ("batch_size", "train_every", "train_steps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.buffer_size >= self.batch_size, "buffer_size", self.buffer_size, "at least batch_size")
        require(self.learning_starts >= 0, "learning_starts", self.learning_starts, "at least 0")


def optimizers(config: ActorCriticConfig) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    """The actor's, then the critics'.

    Adam sees each array by itself. On all of them as one vector (`optax.flatten`) it takes no fewer microseconds, and
    XLA may fuse the sum over a batch, of an output bias, into the loop that joins the vector: twice the train step.
    """
    adams = [optax.adam(schedules.as_optax(rate)) for rate in (config.actor_learning_rate, config.critic_learning_rate)]
    actor, critic = (find_optimizer(config.optimizer, adam, config.max_grad_norm) for adam in adams)
    return actor, critic


def descend(
    optimizer: optax.GradientTransformation, network: Network, before: Any, gradient: Network
) -> tuple[Network, Any]:
    """The network and the optimizer's state after one step."""
    changes, after = optimizer.update(gradient, before, network)  # type: ignore[arg-type]
    return optax.apply_updates(network, changes), after  # type: ignore[return-value, arg-type]


def make_critics(config: ActorCriticConfig, spaces: Spaces, key: Array) -> Critics:
    """Two critics, alike but for their first parameters; the action enters ours with the observation."""

    def one(key: Array) -> Critic | OwnCritic:
        shape, actions = spaces.observation, spaces.actions
        if config.critic_network is not None:
            return make_critic(config.critic_network, shape, actions, key)
        return Critic(shape[0], config.hidden_sizes, actions, key=key, layer_norm=config.layer_norm, action_layer=0)

    first, second = jax.random.split(key)
    return one(first), one(second)


def values_of(critics: Critics, obs: Array, action: Array) -> Array:  # [2]
    """What each critic says of an action."""
    return jnp.stack([critic(obs, action) for critic in critics])


def observe(config: ActorCriticConfig, state: State, batch: Transition) -> State:
    """Takes note of the observations of one step, in a state that has `statistics`."""
    if not config.normalise_observations:
        return state
    return state._replace(statistics=normalisers.observe(state.statistics, batch.obs))


def normalised(config: ActorCriticConfig, normaliser: Normaliser, batch: Transition) -> Transition:
    """Transitions as networks see them."""
    if not config.normalise_observations:
        return batch
    return batch._replace(obs=normaliser(batch.obs), next_obs=normaliser(batch.next_obs))
