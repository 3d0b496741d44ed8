"""DDPG (Lillicrap et al. 2016) as in the paper's app. A.2: a deterministic actor, a critic, soft targets."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise.agents.actor_critic import ActorCriticConfig, descend, normalised, observe, optimizers
from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.agents.q_learning import td_target
from paramnoise.experience.replay import Transition
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.heads import Actor, Critic, NormalisedActor
from paramnoise.networks.normaliser import Normaliser
from paramnoise.networks.own import OwnActor, OwnCritic, make_critic, make_network
from paramnoise.networks.policies import DeterministicPolicy
from paramnoise.validation import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class DDPGConfig(ActorCriticConfig):
    """Settings of DDPG; the second hidden layer of its critic sees the action."""

    actor_learning_rate: float | str = 1e-4
    """Adam's step size for the actor; or a schedule over train steps, such as linear:1e-3:1e-5:100000."""
    critic_l2: float = 1e-2
    """The weight of half the squared norm of the critic's kernels, its output layer's apart; a critic of the user's has
    no such term."""
    tau: float = 0.001
    """How far the target networks move toward the learned ones at each train step."""
    learning_starts: int = 0
    """Environment steps before the first cycle."""
    train_every: int = 100
    """Environment steps of a cycle."""
    train_steps: int = 50
    """Train steps after each cycle."""

    def __post_init__(self) -> None:
        require(len(self.hidden_sizes) >= 2, "hidden_sizes", self.hidden_sizes, "at least two, for the action's layer")
        require(self.critic_l2 >= 0, "critic_l2", self.critic_l2, "at least 0")
        super().__post_init__()


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
        before = tuple(each.init(net) for each, net in zip(optimizers(config), networks, strict=True))
        nothing = normalisers.init(observation_size)
        return DDPGState(networks, networks, before, nothing, nothing, jnp.int32(0))

    def policy(state: DDPGState) -> DeterministicPolicy:
        return DeterministicPolicy(NormalisedActor(state.normaliser, state.networks.actor))

    step, note = functools.partial(update, config), functools.partial(observe, config)
    return Learner(config, spaces, init, step, policy, observe=note)


def update(config: DDPGConfig, state: DDPGState, batch: Transition) -> tuple[DDPGState, dict[str, Array]]:
    """One train step of critic and actor, both from the networks as they were, then of the targets."""
    normaliser = state.statistics
    batch = normalised(config, normaliser, batch)
    actor, critic = state.networks

    def critic_loss(critic: Critic | OwnCritic) -> tuple[Array, Array]:
        errors = jax.vmap(functools.partial(td_error, config, critic, state.targets))(batch)
        fit = jnp.mean(jnp.square(errors))
        return fit + config.critic_l2 * critic_penalty(critic), fit

    def actor_loss(actor: Actor | OwnActor) -> Array:
        return -jnp.mean(jax.vmap(lambda obs: critic(obs, actor(obs)))(batch.obs))

    critic_gradient, fit = jax.grad(critic_loss, has_aux=True)(critic)
    value, actor_gradient = jax.value_and_grad(actor_loss)(actor)
    gradients = (actor_gradient, critic_gradient)
    steps = map(descend, optimizers(config), state.networks, state.optimizers, gradients)
    networks, after = zip(*steps, strict=True)
    learned = Networks(*networks)
    targets = optax.incremental_update(learned, state.targets, config.tau)
    terms = {"critic_loss": fit, "actor_loss": value}
    return DDPGState(learned, targets, after, normaliser, normaliser, state.updates + 1), terms


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
