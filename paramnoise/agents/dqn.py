"""DQN (Mnih et al. 2015), plain or with a separate policy head for parameter noise (sec. 4.1, app. A.1, A.3)."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise.agents.learner import Learner, Transition
from paramnoise.agents.q_learning import QLearningConfig, QLearningState, apply_gradient, init_state, td_target
from paramnoise.networks import QNetwork
from paramnoise.policies import GreedyPolicy


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(QLearningConfig):
    """Settings of DQN."""

    policy_head: bool = False
    """A separate policy head, trained to output the greedy action; parameter noise then perturbs it instead of Q."""
    double_q: bool = False
    """Choose the next action with the online network (van Hasselt et al. 2016); the paper does not."""


def make(config: DQNConfig, observation_size: int, num_actions: int) -> Learner:
    """Builds DQN for vector observations and discrete actions."""
    sizes = (observation_size, *config.hidden_sizes, num_actions)

    def init(key: Array) -> QLearningState:
        network = QNetwork(sizes, key=key, policy_head=config.policy_head, layer_norm=config.layer_norm)
        return init_state(config, network)

    return Learner(config, init, functools.partial(update, config), lambda state: GreedyPolicy(state.network.behaviour))


def update(config: DQNConfig, state: QLearningState, batch: Transition) -> tuple[QLearningState, dict[str, Array]]:
    """One train step on a batch of transitions."""

    def loss(network: QNetwork) -> tuple[Array, dict[str, Array]]:
        terms = jax.vmap(functools.partial(losses, config, network, state.target))(batch)
        terms = jax.tree.map(jnp.mean, terms)
        return sum(terms.values()), terms

    gradient, terms = jax.grad(loss, has_aux=True)(state.network)
    return apply_gradient(config, state, gradient), terms


def losses(config: DQNConfig, network: QNetwork, target: QNetwork, transition: Transition) -> dict[str, Array]:
    """The loss terms of one transition; their sum is minimised."""
    values = network.q(transition.obs)
    next_values = target.q(transition.next_obs)
    chooser = network.q(transition.next_obs) if config.double_q else next_values
    bootstrap = td_target(transition.reward, transition.terminated, next_values[jnp.argmax(chooser)], config.gamma)
    # The Huber loss is the squared error with its gradient clipped to [-1, 1] (app. A.1).
    terms = {"q_loss": optax.huber_loss(values[transition.action], jax.lax.stop_gradient(bootstrap))}
    if network.policy is not None:
        greedy = jnp.argmax(values)
        logits = network.policy(transition.obs)
        terms["policy_loss"] = optax.softmax_cross_entropy_with_integer_labels(logits, greedy)
    return terms
