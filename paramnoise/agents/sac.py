"""SAC (Haarnoja et al. 2018): a policy that is paid for its entropy, two critics, a temperature that is learned."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise import schedules
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
from paramnoise.networks.gsde import StateNoiseActor
from paramnoise.networks.heads import NormalisedActor, quiet_mlp
from paramnoise.networks.mlp import MLP
from paramnoise.networks.normaliser import Normaliser
from paramnoise.networks.own import OwnNetwork, make_network
from paramnoise.networks.policies import SquashedGaussianPolicy
from paramnoise.validation import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACConfig(ActorCriticConfig):
    """Settings of SAC; an actor of the user's gives means and then log standard deviations, before tanh."""

    actor_learning_rate: float | str = 3e-4
    """Adam's step size for the actor; or a schedule over train steps, such as linear:1e-3:1e-5:100000."""
    critic_learning_rate: float | str = 3e-4
    """Adam's step size for the critics, likewise."""
    temperature: float | None = None
    """The weight of the entropy, if it is fixed; None: it is learned."""
    first_temperature: float = 1.0
    """The weight before the first train step, if it is learned."""
    temperature_learning_rate: float | str = 3e-4
    """Adam's step size for the log of the temperature, likewise."""
    target_entropy: float | None = None
    """The entropy that the temperature is learned for; None: minus the dimensions of an action."""
    std_from_features: bool = False
    """Let the standard deviations come from the features of the last hidden layer, by learned weights, and not from
    outputs of their own: what the exploration gsde needs."""
    random_steps: int = 1_000
    """Environment steps at the beginning whose actions are uniformly random, whatever explores."""

    def __post_init__(self) -> None:
        schedules.check("temperature_learning_rate", self.temperature_learning_rate)
        fixed = self.temperature
        require(fixed is None or fixed >= 0, "temperature", fixed, "at least 0")
        require(self.first_temperature > 0, "first_temperature", self.first_temperature, "above 0")
        mixed = self.std_from_features and self.network is not None
        require(not mixed, "std_from_features", self.std_from_features, "False with a network of your own")
        require(self.random_steps >= 0, "random_steps", self.random_steps, "at least 0")
        super().__post_init__()

    def aimed_entropy(self, action_size: int) -> float:
        """The entropy that the temperature is learned for."""
        return -float(action_size) if self.target_entropy is None else self.target_entropy

    def applying(self, spaces: Spaces) -> dict[str, Any]:
        """The settings that matter, by name, with the values that they come to; for people."""
        values = dataclasses.asdict(self)
        if self.temperature is None:
            return {**values, "temperature": "learned", "target_entropy": self.aimed_entropy(spaces.actions)}
        unused = ("first_temperature", "temperature_learning_rate", "target_entropy")
        return {name: value for name, value in values.items() if name not in unused}


GaussianActor = MLP | StateNoiseActor | OwnNetwork
"""What gives means and log standard deviations before tanh, one after the other."""


class Networks(NamedTuple):
    """What is learned."""

    actor: GaussianActor
    critics: Critics
    log_temperature: Array


class SACState(NamedTuple):
    """All that changes in SAC."""

    networks: Networks
    targets: Critics
    optimizers: tuple[Any, Any, Any]
    """The actor's, the critics', the temperature's."""
    statistics: Normaliser
    """Of all observations so far."""
    normaliser: Normaliser
    """The statistics as of the last train step: what training and the policy use, so that a policy changes only when
    it is trained."""
    key: Array
    """Decides, with the count of updates, the actions that are drawn in training."""
    updates: Array
    """Train steps so far."""


@register_agent(
    "sac",
    title="SAC",
    config=SACConfig,
    experience="replay",
    policy=SquashedGaussianPolicy,
    actions=("continuous",),
    default_exploration="none",
)
def make(config: SACConfig, spaces: Spaces) -> Learner:
    """Builds SAC for vector observations and continuous actions in [-1, 1]."""
    (observation_size,), action_size = spaces.observation, spaces.actions

    def make_actor(key: Array) -> GaussianActor:
        if config.network is not None:
            return make_network(config.network, spaces.observation, 2 * action_size, key)
        outputs = action_size if config.std_from_features else 2 * action_size
        mlp = quiet_mlp((observation_size, *config.hidden_sizes, outputs), key=key, layer_norm=config.layer_norm)
        return StateNoiseActor(mlp) if config.std_from_features else mlp

    def init(key: Array) -> SACState:
        actor_key, critics_key, noise_key = jax.random.split(key, 3)
        critics = make_critics(config, spaces, critics_key)
        networks = Networks(make_actor(actor_key), critics, jnp.float32(math.log(config.first_temperature)))
        steps = zip((*optimizers(config), _cooler(config)), networks, strict=True)
        before: Any = tuple(optimizer.init(part) for optimizer, part in steps)
        nothing = normalisers.init(observation_size)
        return SACState(networks, critics, before, nothing, nothing, noise_key, jnp.int32(0))

    def policy(state: SACState) -> SquashedGaussianPolicy:
        return SquashedGaussianPolicy(NormalisedActor(state.normaliser, state.networks.actor))

    step, note = functools.partial(update, config), functools.partial(observe, config)
    return Learner(config, spaces, init, step, policy, observe=note, random_steps=config.random_steps)


def update(config: SACConfig, state: SACState, batch: Transition) -> tuple[SACState, dict[str, Array]]:
    """One train step of the critics, then of actor and temperature, then of the targets."""
    batch, updates = normalised(config, state.statistics, batch), state.updates + 1
    next_noise, noise = jax.random.normal(jax.random.fold_in(state.key, updates), (2, *batch.action.shape))
    actor, critics, log_temperature = state.networks
    temperature = jnp.exp(log_temperature) if config.temperature is None else jnp.float32(config.temperature)
    of_actor, of_critics = optimizers(config)
    actor_before, critics_before, temperature_before = state.optimizers

    def critic_loss(critics: Critics) -> Array:
        compare = functools.partial(td_errors, config, critics, state.targets, actor, temperature)
        return jnp.mean(jnp.square(jax.vmap(compare)(batch, next_noise)))

    loss, gradient = jax.value_and_grad(critic_loss)(critics)
    critics, critics_after = descend(of_critics, critics, critics_before, gradient)

    def actor_loss(actor: GaussianActor) -> tuple[Array, Array]:
        judge = functools.partial(regret, actor, critics, temperature)
        regrets, log_densities = jax.vmap(judge)(batch.obs, noise)
        return jnp.mean(regrets), -jnp.mean(log_densities)

    (value, entropy), gradient = jax.value_and_grad(actor_loss, has_aux=True)(actor)
    actor, actor_after = descend(of_actor, actor, actor_before, gradient)
    aim = config.aimed_entropy(batch.action.shape[-1])
    log_temperature, temperature_after = temper(config, log_temperature, temperature_before, entropy - aim)
    after = SACState(
        networks=Networks(actor, critics, log_temperature),
        targets=optax.incremental_update(critics, state.targets, config.tau),
        optimizers=(actor_after, critics_after, temperature_after),
        statistics=state.statistics,
        normaliser=state.statistics,
        key=state.key,
        updates=updates,
    )
    return after, {"critic_loss": loss, "actor_loss": value, "temperature": temperature, "entropy": entropy}


def td_errors(
    config: SACConfig,
    critics: Critics,
    targets: Critics,
    actor: GaussianActor,
    temperature: Array,
    transition: Transition,
    noise: Array,
) -> Array:
    """Q_i(s, a) less the target of both critics, r + gamma * (min_j Q'_j(s', a') - temperature * log pi(a' | s')).

    `noise` draws a' from the policy as it is now. Of one transition, whose observations are normalised.
    """
    policy = SquashedGaussianPolicy(actor)
    values = policy(transition.next_obs)
    action, log_density = policy.squash(values, noise), policy.log_density(values, noise)
    next_value = jnp.min(values_of(targets, transition.next_obs, action)) - temperature * log_density
    target = td_target(transition.reward, transition.terminated, next_value, config.gamma)
    return values_of(critics, transition.obs, transition.action) - jax.lax.stop_gradient(target)


def regret(actor: GaussianActor, critics: Critics, temperature: Array, obs: Array, noise: Array) -> tuple[Array, Array]:
    """What the actor minimises at one normalised observation: temperature * log pi(a | s) - min_i Q_i(s, a).

    Returns:
        That, and log pi(a | s) itself.
    """
    policy = SquashedGaussianPolicy(actor)
    values = policy(obs)
    log_density = policy.log_density(values, noise)
    return temperature * log_density - jnp.min(values_of(critics, obs, policy.squash(values, noise))), log_density


def temper(config: SACConfig, log_temperature: Array, before: Any, excess: Array) -> tuple[Array, Any]:
    """Lowers a learned temperature while the entropy exceeds its aim, and raises it while the entropy falls short."""
    if config.temperature is not None:
        return log_temperature, before
    return descend(_cooler(config), log_temperature, before, excess)


def _cooler(config: SACConfig) -> optax.GradientTransformation:
    """The temperature's optimizer."""
    return optax.adam(schedules.as_optax(config.temperature_learning_rate))
