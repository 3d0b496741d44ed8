"""DDPG (Lillicrap et al. 2016) as in the paper's app. A.2: a deterministic actor, a critic, soft targets."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise import schedules
from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.agents.q_learning import td_target
from paramnoise.experience.replay import Transition
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.heads import Actor, Critic, NormalisedActor
from paramnoise.networks.normaliser import Normaliser
from paramnoise.networks.own import (
    NetworkSetting,
    OptimizerSetting,
    OwnActor,
    OwnCritic,
    find_network,
    find_optimizer,
    make_critic,
    make_network,
)
from paramnoise.networks.policies import DeterministicPolicy
from paramnoise.validation import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class DDPGConfig:
    """Settings of DDPG."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of each hidden layer of actor and critic; the critic's second one sees the action."""
    layer_norm: bool = True
    """Layer norm before each nonlinearity; parameter noise needs it (sec. 3)."""
    network: NetworkSetting = None
    """A factory (observation_shape, action_size, key) -> module in place of our actor, or its registered name; tanh
    follows its output."""
    critic_network: NetworkSetting = None
    """A factory of the same arguments -> module of (observation, action) in place of our critic; it has no L2 term."""
    actor_learning_rate: float | str = 1e-4
    """Adam's step size for the actor; or a schedule over train steps, such as linear:1e-3:1e-5:100000."""
    critic_learning_rate: float | str = 1e-3
    """Adam's step size for the critic, likewise."""
    optimizer: OptimizerSetting = None
    """A transformation of optax in place of Adam, for both networks, or its registered name; the learning rates then
    say nothing."""
    max_grad_norm: float | None = None
    """The norm to which the gradient of a network is cut; None: as it is."""
    critic_l2: float = 1e-2
    """The weight of half the squared norm of the critic's kernels, its output layer's apart."""
    tau: float = 0.001
    """How far the target networks move toward the learned ones at each train step."""
    gamma: float = 0.99
    """The discount factor."""
    batch_size: int = 128
    """Transitions per train step."""
    buffer_size: int = 100_000
    """Transitions that replay holds."""
    learning_starts: int = 0
    """Environment steps before the first cycle."""
    train_every: int = 100
    """Environment steps of a cycle."""
    train_steps: int = 50
    """Train steps after each cycle."""
    normalise_observations: bool = True
    """Normalise observations by their running mean and std."""

    def __post_init__(self) -> None:
        require(len(self.hidden_sizes) >= 2, "hidden_sizes", self.hidden_sizes, "at least two, for the action's layer")
        require(all(size >= 1 for size in self.hidden_sizes), "hidden_sizes", self.hidden_sizes, "all at least 1")
        for name in ("actor_learning_rate", "critic_learning_rate"):
            schedules.check(name, getattr(self, name))
        for network in (self.network, self.critic_network):
            if network is not None:
                find_network(network)
        require(self.max_grad_norm is None or self.max_grad_norm > 0, "max_grad_norm", self.max_grad_norm, "above 0")
        _optimizers(self)  # refuses what is none
        require(self.critic_l2 >= 0, "critic_l2", self.critic_l2, "at least 0")
        require(0 < self.tau <= 1, "tau", self.tau, "above 0 and at most 1")
        require(0 <= self.gamma <= 1, "gamma", self.gamma, "between 0 and 1")
        for name in ("batch_size", "train_every", "train_steps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.buffer_size >= self.batch_size, "buffer_size", self.buffer_size, "at least batch_size")
        require(self.learning_starts >= 0, "learning_starts", self.learning_starts, "at least 0")


class Networks(NamedTuple):
    """The two networks, learned or target."""

    actor: Actor | OwnActor
    critic: Critic | OwnCritic


class DDPGState(NamedTuple):
    """All that changes in DDPG."""

    networks: Networks
    targets: Networks
    optimizers: Any
    statistics: Normaliser
    """Of all observations so far."""
    normaliser: Normaliser
    """The statistics as of the last train step: what training and the policy use, so that a policy changes only when
    it is trained."""
    updates: Array
    """Train steps so far."""


@register_agent(
    "ddpg",
    title="DDPG",
    config=DDPGConfig,
    experience="replay",
    policy=DeterministicPolicy,
    actions=("continuous",),
    default_exploration="parameter",
)
def make(config: DDPGConfig, spaces: Spaces) -> Learner:
    """Builds DDPG for vector observations and continuous actions in [-1, 1]."""
    shape, action_size = spaces.observation, spaces.actions
    (observation_size,) = shape

    def init(key: Array) -> DDPGState:
        actor_key, critic_key = jax.random.split(key)
        sizes = config.hidden_sizes
        actor = Actor(observation_size, sizes, action_size, key=actor_key, layer_norm=config.layer_norm)
        critic = Critic(observation_size, sizes, action_size, key=critic_key, layer_norm=config.layer_norm)
        networks = Networks(
            actor if config.network is None else OwnActor(make_network(config.network, shape, action_size, actor_key)),
            critic
            if config.critic_network is None
            else make_critic(config.critic_network, shape, action_size, critic_key),
        )
        optimizers = tuple(each.init(net) for each, net in zip(_optimizers(config), networks, strict=True))
        nothing = normalisers.init(observation_size)
        return DDPGState(networks, networks, optimizers, nothing, nothing, jnp.int32(0))

    def policy(state: DDPGState) -> DeterministicPolicy:
        return DeterministicPolicy(NormalisedActor(state.normaliser, state.networks.actor))

    step, note = functools.partial(update, config), functools.partial(observe, config)
    return Learner(config, spaces, init, step, policy, observe=note)


def observe(config: DDPGConfig, state: DDPGState, batch: Transition) -> DDPGState:
    """Takes note of the observations of one step."""
    if not config.normalise_observations:
        return state
    return state._replace(statistics=normalisers.observe(state.statistics, batch.obs))


def update(config: DDPGConfig, state: DDPGState, batch: Transition) -> tuple[DDPGState, dict[str, Array]]:
    """One train step of critic and actor, both from the networks as they were, then of the targets."""
    normaliser = state.statistics
    batch = batch._replace(obs=normaliser(batch.obs), next_obs=normaliser(batch.next_obs))
    actor, critic = state.networks

    def critic_loss(critic: Critic | OwnCritic) -> tuple[Array, Array]:
        errors = jax.vmap(functools.partial(td_error, config, critic, state.targets))(batch)
        fit = jnp.mean(jnp.square(errors))
        return fit + config.critic_l2 * critic_penalty(critic), fit

    def actor_loss(actor: Actor | OwnActor) -> Array:
        return -jnp.mean(jax.vmap(lambda obs: critic(obs, actor(obs)))(batch.obs))

    critic_gradient, fit = jax.grad(critic_loss, has_aux=True)(critic)
    value, actor_gradient = jax.value_and_grad(actor_loss)(actor)
    networks, optimizers = [], []
    steps = zip(_optimizers(config), state.networks, state.optimizers, (actor_gradient, critic_gradient), strict=True)
    for optimizer, network, before, gradient in steps:
        changes, after = optimizer.update(gradient, before, network)
        networks.append(optax.apply_updates(network, changes))
        optimizers.append(after)
    learned = Networks(*networks)
    targets = optax.incremental_update(learned, state.targets, config.tau)
    terms = {"critic_loss": fit, "actor_loss": value}
    return DDPGState(learned, targets, tuple(optimizers), normaliser, normaliser, state.updates + 1), terms


def td_error(config: DDPGConfig, critic: Critic | OwnCritic, targets: Networks, transition: Transition) -> Array:
    """Q(s, a) less its target r + gamma * Q'(s', pi'(s')), for one transition whose observations are normalised."""
    next_value = targets.critic(transition.next_obs, targets.actor(transition.next_obs))
    target = td_target(transition.reward, transition.terminated, next_value, config.gamma)
    return critic(transition.obs, transition.action) - jax.lax.stop_gradient(target)


def critic_penalty(critic: Critic | OwnCritic) -> Array:
    """Half the squared norm of the kernels of all layers but the output; of a user's critic nothing."""
    if isinstance(critic, OwnCritic):
        return jnp.zeros(())
    return 0.5 * optax.tree.norm([layer.weight for layer in critic.layers[:-1]], squared=True)


def _optimizers(config: DDPGConfig) -> list[optax.GradientTransformation]:
    """The actor's, then the critic's."""
    adams = [optax.adam(schedules.as_optax(rate)) for rate in (config.actor_learning_rate, config.critic_learning_rate)]
    return [find_optimizer(config.optimizer, adam, config.max_grad_norm) for adam in adams]
