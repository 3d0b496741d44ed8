"""TD3 (Fujimoto et al. 2018): DDPG with two critics, smoothed targets, and an actor that learns less often."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise.agents.actor_critic import (
    ActorCriticConfig,
    Critics,
    descend,
    make_critics,
    normalised,
    observe,
    optimizers,
    values_of,
)
from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.agents.q_learning import td_target
from paramnoise.experience.replay import Transition
from paramnoise.networks import normaliser as normalisers
from paramnoise.networks.heads import Actor, NormalisedActor
from paramnoise.networks.normaliser import Normaliser
from paramnoise.networks.own import OwnActor, make_network
from paramnoise.networks.policies import DeterministicPolicy
from paramnoise.noise.many import loops_are_cheap
from paramnoise.validation import lookup, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class TD3Config(ActorCriticConfig):
    """Settings of TD3."""

    added_later: ClassVar = ("actor_climbs",)

    policy_delay: int = 2
    """Train steps of the critics per step of the actor and of all targets."""
    target_noise: float = 0.2
    """The standard deviation of the noise on the target's actions, in units of half the action range."""
    target_noise_clip: float = 0.5
    """What that noise is clipped to."""
    actor_climbs: Literal["first", "least"] = "first"
    """What the actor climbs: the first critic, as in the paper, or the lesser of both, as SBX's does and SAC."""
    random_steps: int = 1_000
    """Environment steps at the beginning whose actions are uniformly random, whatever explores."""

    def __post_init__(self) -> None:
        require(self.policy_delay >= 1, "policy_delay", self.policy_delay, "at least 1")
        lookup("actor_climbs", self.actor_climbs, CLIMBED)
        for name in ("target_noise", "target_noise_clip", "random_steps"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        super().__post_init__()


CLIMBED: dict[str, Callable[[Critics, Array, Array], Array]] = {
    "first": lambda critics, obs, action: critics[0](obs, action),
    "least": lambda critics, obs, action: jnp.min(values_of(critics, obs, action)),
}
"""The value of an action that the actor climbs, by `actor_climbs`."""


class Networks(NamedTuple):
    """The actor and the two critics, learned or target."""

    actor: Actor | OwnActor
    critics: Critics


class TD3State(NamedTuple):
    """All that changes in TD3."""

    networks: Networks
    targets: Networks
    optimizers: tuple[Any, Any]
    """The actor's, then the critics'."""
    statistics: Normaliser
    """Of all observations so far."""
    normaliser: Normaliser
    """The statistics as of the last train step: what training and the policy use, so that a policy changes only when
    it is trained."""
    key: Array
    """Decides, with the count of updates, the noise on the target's actions."""
    actor_loss: Array
    """Of the actor's last step, which is what a train step without one reports."""
    updates: Array
    """Train steps so far."""


@register_agent(
    "td3",
    title="TD3",
    config=TD3Config,
    experience="replay",
    policy=DeterministicPolicy,
    actions=("continuous",),
    default_exploration="parameter",
)
def make(config: TD3Config, spaces: Spaces) -> Learner:
    """Builds TD3 for vector observations and continuous actions in [-1, 1]."""
    (observation_size,), action_size = spaces.observation, spaces.actions

    def make_actor(key: Array) -> Actor | OwnActor:
        if config.network is not None:
            return OwnActor(make_network(config.network, spaces.observation, action_size, key))
        return Actor(observation_size, config.hidden_sizes, action_size, key=key, layer_norm=config.layer_norm)

    def init(key: Array) -> TD3State:
        actor_key, critics_key, noise_key = jax.random.split(key, 3)
        networks = Networks(make_actor(actor_key), make_critics(config, spaces, critics_key))
        of_actor, of_critics = optimizers(config)
        before = of_actor.init(networks.actor), of_critics.init(networks.critics)  # type: ignore[arg-type]
        nothing = normalisers.init(observation_size)
        return TD3State(networks, networks, before, nothing, nothing, noise_key, jnp.float32(0), jnp.int32(0))

    def policy(state: TD3State) -> DeterministicPolicy:
        return DeterministicPolicy(NormalisedActor(state.normaliser, state.networks.actor))

    step, note = functools.partial(update, config), functools.partial(observe, config)
    # The statistics that a policy normalises by change at every train step.
    every = 1 if config.normalise_observations else config.policy_delay
    return Learner(
        config, spaces, init, step, policy, observe=note, policy_every=every, random_steps=config.random_steps
    )


def update(config: TD3Config, state: TD3State, batch: Transition) -> tuple[TD3State, dict[str, Array]]:
    """One train step of the critics; at every `policy_delay`-th of them also one of the actor, then of the targets."""
    batch, updates = normalised(config, state.statistics, batch), state.updates + 1
    noise = target_noise(config, jax.random.fold_in(state.key, updates), batch.action.shape)

    def critic_loss(critics: Critics) -> Array:
        errors = jax.vmap(functools.partial(td_errors, config, critics, state.targets))(batch, noise)
        return jnp.mean(jnp.square(errors))

    (of_actor, of_critics), (actor_before, critics_before) = optimizers(config), state.optimizers
    loss, gradient = jax.value_and_grad(critic_loss)(state.networks.critics)
    critics, critics_after = descend(of_critics, state.networks.critics, critics_before, gradient)

    def improve() -> tuple[Array, Actor | OwnActor, Any, Networks]:
        loss = functools.partial(actor_loss, config)
        value, gradient = jax.value_and_grad(loss)(state.networks.actor, critics, batch.obs)
        actor, after = descend(of_actor, state.networks.actor, actor_before, gradient)
        return value, actor, after, optax.incremental_update(Networks(actor, critics), state.targets, config.tau)

    def wait() -> tuple[Array, Actor | OwnActor, Any, Networks]:
        return state.actor_loss, state.networks.actor, actor_before, state.targets

    is_due = updates % config.policy_delay == 0
    if loops_are_cheap():
        value, actor, actor_after, targets = jax.lax.cond(is_due, improve, wait)
    else:  # a branch, for which an accelerator asks the host, costs more than what it saves
        chosen = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), improve(), wait())
        value, actor, actor_after, targets = chosen
    after = TD3State(
        networks=Networks(actor, critics),
        targets=targets,
        optimizers=(actor_after, critics_after),
        statistics=state.statistics,
        normaliser=state.statistics,
        key=state.key,
        actor_loss=value,
        updates=updates,
    )
    return after, {"critic_loss": loss, "actor_loss": value}


def target_noise(config: TD3Config, key: Array, shape: tuple[int, ...]) -> Array:
    """The noise that smooths the target over actions, clipped so that they stay near the target actor's."""
    noise = config.target_noise * jax.random.normal(key, shape)
    return jnp.clip(noise, -config.target_noise_clip, config.target_noise_clip)


def td_errors(config: TD3Config, critics: Critics, targets: Networks, transition: Transition, noise: Array) -> Array:
    """Q_i(s, a) less the target of both critics, r + gamma * min_j Q'_j(s', pi'(s') + noise).

    Of one transition, whose observations are normalised.
    """
    action = jnp.clip(targets.actor(transition.next_obs) + noise, -1.0, 1.0)
    next_value = jnp.min(values_of(targets.critics, transition.next_obs, action))
    target = td_target(transition.reward, transition.terminated, next_value, config.gamma)
    return values_of(critics, transition.obs, transition.action) - jax.lax.stop_gradient(target)


def actor_loss(config: TD3Config, actor: Actor | OwnActor, critics: Critics, obs: Array) -> Array:
    """Minus what the critic that it climbs says of the actor's actions, in the mean over normalised observations."""
    climbed = CLIMBED[config.actor_climbs]
    return -jnp.mean(jax.vmap(lambda o: climbed(critics, o, actor(o)))(obs))
