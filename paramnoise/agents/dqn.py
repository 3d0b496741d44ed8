"""DQN (Mnih et al. 2015), plain or with a separate policy head for parameter noise (sec. 4.1, app. A.1, A.3)."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise.agents.learner import Learner, Transition
from paramnoise.agents.q_learning import QLearningConfig, QLearningState, apply_gradient, init_state, td_target
from paramnoise.convolutions import NATURE, Layer, output_size
from paramnoise.networks import PixelQNetwork, QNetwork
from paramnoise.policies import GreedyPolicy
from paramnoise.validation import UsageError, require

Network = QNetwork | PixelQNetwork


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(QLearningConfig):
    """Settings of DQN."""

    policy_head: bool = False
    """A separate policy head, trained to output the greedy action; parameter noise then perturbs it instead of Q."""
    double_q: bool = False
    """Choose the next action with the online network (van Hasselt et al. 2016); the paper does not."""
    convolutions: tuple[Layer, ...] = NATURE
    """For pixels: filters, size and stride of each layer; `hidden_sizes` then follow."""
    clip_rewards: bool = False
    """Learn from rewards clipped to [-1, 1] (Atari); scores are reported as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for layer in self.convolutions:
            fits = len(layer) == 3 and min(layer) >= 1 and layer[1] % layer[2] == 0
            require(
                fits, "convolutions", layer, "filters, size and stride of a layer, the stride a divisor of the size"
            )
        require(len(self.convolutions) >= 1, "convolutions", self.convolutions, "at least one layer")


def make(config: DQNConfig, observation: int | tuple[int, int, int], num_actions: int) -> Learner:
    """Builds DQN for vectors of a size, or for uint8 stacks of frames of a shape, and discrete actions."""

    def init(key: Array) -> QLearningState:
        kind: Any = {"policy_head": config.policy_head, "layer_norm": config.layer_norm}
        if isinstance(observation, int):
            return init_state(config, QNetwork((observation, *config.hidden_sizes, num_actions), key=key, **kind))
        layers, sizes = config.convolutions, config.hidden_sizes
        return init_state(config, PixelQNetwork(observation, layers, sizes, num_actions, key=key, **kind))

    if not isinstance(observation, int) and not output_size(observation[1:], config.convolutions):
        raise UsageError(f"frames of {observation[1:]} are too small for convolutions {config.convolutions}")
    return Learner(config, init, functools.partial(update, config), lambda state: GreedyPolicy(state.network.behaviour))


def update(config: DQNConfig, state: QLearningState, batch: Transition) -> tuple[QLearningState, dict[str, Array]]:
    """One train step on a batch of transitions."""

    def loss(network: Network) -> tuple[Array, dict[str, Array]]:
        terms = jax.vmap(functools.partial(losses, config, network, state.target))(batch)
        terms = jax.tree.map(jnp.mean, terms)
        return sum(terms.values()), terms

    gradient, terms = jax.grad(loss, has_aux=True)(state.network)
    return apply_gradient(config, state, gradient), terms


def losses(config: DQNConfig, network: Network, target: Network, transition: Transition) -> dict[str, Array]:
    """The loss terms of one transition; their sum is minimised."""
    values, logits = network.heads(transition.obs)
    next_values = target.values(transition.next_obs)
    chooser = network.values(transition.next_obs) if config.double_q else next_values
    reward = jnp.clip(transition.reward, -1.0, 1.0) if config.clip_rewards else transition.reward
    bootstrap = td_target(reward, transition.terminated, next_values[jnp.argmax(chooser)], config.gamma)
    # The Huber loss is the squared error with its gradient clipped to [-1, 1] (app. A.1).
    terms = {"q_loss": optax.huber_loss(values[transition.action], jax.lax.stop_gradient(bootstrap))}
    if logits is not None:
        greedy = jnp.argmax(values)
        terms["policy_loss"] = optax.softmax_cross_entropy_with_integer_labels(logits, greedy)
    return terms
