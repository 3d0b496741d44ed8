"""Bootstrapped DQN (Osband et al. 2016): Q heads that each learn from their own half of the data (app. A.3)."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.agents.q_learning import QLearningConfig, QLearningState, apply_gradient, init_state, td_target
from paramnoise.experience.replay import Transition
from paramnoise.networks import BootstrappedQNetwork
from paramnoise.networks.policies import VotingPolicy
from paramnoise.validation import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class BootstrappedDQNConfig(QLearningConfig):
    """Settings of bootstrapped DQN."""

    num_heads: int = 20
    """Q heads on the shared torso."""
    mask_probability: float = 0.5
    """The probability that a head learns from a transition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.num_heads >= 1, "num_heads", self.num_heads, "at least 1")
        require(0 < self.mask_probability <= 1, "mask_probability", self.mask_probability, "above 0 and at most 1")


@register_agent(
    "bootstrapped-dqn",
    title="bootstrapped DQN",
    config=BootstrappedDQNConfig,
    experience="replay",
    policy=VotingPolicy,
    actions=("discrete",),
    default_exploration="bootstrap",
)
def make(config: BootstrappedDQNConfig, spaces: Spaces) -> Learner:
    """Builds bootstrapped DQN for vector observations and discrete actions."""
    sizes = (*spaces.observation, *config.hidden_sizes, spaces.actions)

    def init(key: Array) -> QLearningState:
        network = BootstrappedQNetwork(sizes, num_heads=config.num_heads, key=key, layer_norm=config.layer_norm)
        return init_state(config, network)

    def annotate(key: Array, num_envs: int) -> Array:
        return jax.random.bernoulli(key, config.mask_probability, (num_envs, config.num_heads))

    policy = lambda state: VotingPolicy(state.network)  # noqa: E731
    return Learner(config, spaces, init, functools.partial(update, config), policy, annotate)


def update(
    config: BootstrappedDQNConfig, state: QLearningState, batch: Transition
) -> tuple[QLearningState, dict[str, Array]]:
    """One train step of every head on a batch of transitions."""

    def loss(network: BootstrappedQNetwork) -> Array:
        return jnp.mean(jax.vmap(functools.partial(masked_loss, config, network, state.target))(batch))

    value, gradient = jax.value_and_grad(loss)(state.network)
    return apply_gradient(config, state, gradient), {"q_loss": value}


def masked_loss(
    config: BootstrappedDQNConfig,
    network: BootstrappedQNetwork,
    target: BootstrappedQNetwork,
    transition: Transition,
) -> Array:
    """The mean over all heads of the Huber TD loss, 0 for a head that the transition's mask leaves out.

    Each head bootstraps on its own target head. Dividing by the number of heads is Osband's normalisation of the
    gradient that reaches the shared torso.
    """
    values = network(transition.obs)[:, transition.action]  # [heads]
    next_values = jnp.max(target(transition.next_obs), axis=-1)  # [heads]
    bootstrap = td_target(transition.reward, transition.terminated, next_values, config.gamma)
    return jnp.mean(transition.mask * optax.huber_loss(values, jax.lax.stop_gradient(bootstrap)))
