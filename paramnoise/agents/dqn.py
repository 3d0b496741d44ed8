"""DQN (Mnih et al. 2015), plain or with a separate policy head for parameter noise (sec. 4.1, app. A.1, A.3)."""

import dataclasses
import functools
from typing import Any, ClassVar, get_args

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise import schedules
from paramnoise.agents.base import TD_ERROR, Learner, Spaces, register_agent
from paramnoise.agents.q_learning import (
    QLearningConfig,
    QLearningState,
    apply_gradient,
    importance_weights,
    init_state,
    n_step_return,
    td_target,
)
from paramnoise.experience.replay import Drawing, Transition
from paramnoise.networks import PixelQNetwork, QNetwork
from paramnoise.networks.convolutions import NATURE, Layer, Precision, check_frames, check_layers, product_dtype
from paramnoise.networks.noisy import draw_noise, noise_scale, with_noisy_layers
from paramnoise.networks.own import NetworkSetting, OwnQNetwork, find_network, make_network
from paramnoise.networks.policies import GreedyPolicy
from paramnoise.validation import lookup, require

Network = QNetwork | PixelQNetwork | OwnQNetwork


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(QLearningConfig):
    """Settings of DQN."""

    added_later: ClassVar = ("dueling", "n_step", "prioritized", "priority_alpha", "priority_beta", "noisy_sigma")

    network: NetworkSetting = None
    """A factory (observation_shape, actions, key) -> module of Q values, or its registered name, in place of ours."""
    policy_head: bool = False
    """A separate policy head, trained to output the greedy action; parameter noise then perturbs it instead of Q."""
    double_q: bool = False
    """Choose the next action with the online network (van Hasselt et al. 2016); the paper does not."""
    dueling: bool = False
    """Q values as a state's value and the actions' advantages (Wang et al. 2016), each with a last hidden layer of its
    own."""
    n_step: int = 1
    """Rewards of consecutive steps in a target, before it bootstraps; fewer at an episode's end."""
    prioritized: bool = False
    """Draw transitions by their TD errors (Schaul et al. 2016) instead of uniformly."""
    priority_alpha: float = 0.6
    """With prioritized replay: the power of absolute TD errors that priorities are; 0: uniform."""
    priority_beta: float | str = "linear:0.4:1.0:100000"
    """With prioritized replay: how much of its bias importance weights undo, 1: all; or a schedule over train steps."""
    noisy_sigma: float | None = None
    """Noisy layers (Fortunato et al. 2018): sigma_0, the first scale of their noise, 0.5 with exploration `noisy`;
    None: ordinary layers."""
    convolutions: tuple[Layer, ...] = NATURE
    """For pixels: filters, size and stride of each layer; `hidden_sizes` then follow."""
    precision: Precision = "auto"
    """For pixels: of the numbers that convolutions multiply; they add in float32. `auto` is bfloat16 on a CPU that has
    instructions for it, where it is faster, and float32 elsewhere."""
    clip_rewards: bool = False
    """Learn from rewards clipped to [-1, 1] (Atari); scores are reported as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network is not None:
            find_network(self.network)
            require(not self.policy_head, "policy_head", self.policy_head, "off with a network of one's own")
            require(not self.dueling, "dueling", self.dueling, "off with a network of one's own")
        require(self.noisy_sigma is None or self.noisy_sigma > 0, "noisy_sigma", self.noisy_sigma, "above 0")
        require(self.n_step >= 1, "n_step", self.n_step, "at least 1")
        require(0 <= self.priority_alpha <= 1, "priority_alpha", self.priority_alpha, "between 0 and 1")
        schedules.check("priority_beta", self.priority_beta)
        check_layers(self.convolutions)
        lookup("precision", self.precision, dict.fromkeys(get_args(Precision)))

    def applying(self, spaces: Spaces) -> dict[str, Any]:
        """The settings that matter in such spaces, with the values that they come to."""
        values = {**dataclasses.asdict(self), "precision": str(product_dtype(self.precision))}
        hidden = set() if spaces.shows_frames else {"convolutions", "precision"}
        hidden |= set() if self.prioritized else {"priority_alpha", "priority_beta"}
        return {name: value for name, value in values.items() if name not in hidden}


@register_agent(
    "dqn",
    title="DQN",
    config=DQNConfig,
    experience="replay",
    policy=GreedyPolicy,
    actions=("discrete",),
    observations=("vectors", "frames"),
    default_exploration="epsilon-greedy",
)
def make(config: DQNConfig, spaces: Spaces) -> Learner:
    """Builds DQN for vectors, or for uint8 stacks of frames, and discrete actions."""

    def init(key: Array) -> QLearningState:
        if config.noisy_sigma is None:
            return init_state(config, network(key))
        key, noise_key = jax.random.split(key)
        return init_state(config, with_noisy_layers(network(key), config.noisy_sigma), noise_key)

    def network(key: Array) -> Network:
        kind: Any = {"policy_head": config.policy_head, "layer_norm": config.layer_norm, "dueling": config.dueling}
        layers, sizes = config.convolutions, config.hidden_sizes
        if config.network is not None:
            return OwnQNetwork(make_network(config.network, spaces.observation, spaces.actions, key))
        if not spaces.shows_frames:
            return QNetwork((*spaces.observation, *sizes, spaces.actions), key=key, **kind)
        kind["precision"] = config.precision
        return PixelQNetwork(spaces.observation, layers, sizes, spaces.actions, key=key, **kind)

    if spaces.shows_frames and config.network is None:
        check_frames(spaces.observation[1:], config.convolutions)
    policy = lambda state: GreedyPolicy(state.network.behaviour)  # noqa: E731
    drawing = Drawing(config.n_step, config.priority_alpha if config.prioritized else None)
    return Learner(config, spaces, init, functools.partial(update, config), policy, drawing=drawing)


def update(config: DQNConfig, state: QLearningState, batch: Transition) -> tuple[QLearningState, dict[str, Array]]:
    """One train step on a batch of transitions."""
    keys = None if state.key is None else jax.random.split(jax.random.fold_in(state.key, state.updates), 3)
    drawn = lambda use, network: network if keys is None else draw_noise(keys[use], network)  # noqa: E731

    def loss(network: Network) -> tuple[Array, dict[str, Array]]:
        # Noise of its own in each use, shared by the batch (Fortunato et al. 2018).
        terms = losses(config, drawn(0, network), drawn(1, state.target), batch, drawn(2, network))
        if batch.probability is None:
            means = jax.tree.map(jnp.mean, terms)
            return sum(means.values()), means
        weights = importance_weights(batch.probability, schedules.at(config.priority_beta, state.updates))
        errors = terms.pop(TD_ERROR)
        means = jax.tree.map(lambda term: jnp.mean(weights * term), terms)
        return sum(means.values()), {**means, TD_ERROR: errors}

    gradient, terms = jax.grad(loss, has_aux=True)(state.network)
    scale = noise_scale(state.network)
    return apply_gradient(config, state, gradient), terms if scale is None else {**terms, "noise_scale": scale}


def losses(
    config: DQNConfig, network: Network, target: Network, batch: Transition, chooser: Network | None = None
) -> dict[str, Array]:
    """The loss terms of each transition, the mean of whose sum is minimised; with priorities its TD error too.

    Args:
        config: the settings.
        network: the network that learns.
        target: the one that values what follows.
        batch: the transitions.
        chooser: with double Q the learned network as it chooses the next action; None: `network`.
    """
    values, logits = network.heads(batch.obs)
    next_values = target.values(batch.next_obs)
    chooser = network if chooser is None else chooser
    choice = chooser.values(batch.next_obs) if config.double_q else next_values
    reward = jnp.clip(batch.reward, -1.0, 1.0) if config.clip_rewards else batch.reward
    discount: Array | float = config.gamma
    if batch.num_steps is not None:
        reward, discount = n_step_return(reward, batch.num_steps, config.gamma)
    next_value = _at(next_values, jnp.argmax(choice, axis=-1))
    bootstrap = jax.lax.stop_gradient(td_target(reward, batch.terminated, next_value, discount))
    value = _at(values, batch.action)
    # The Huber loss is the squared error with its gradient clipped to [-1, 1] (app. A.1).
    terms = {"q_loss": optax.huber_loss(value, bootstrap)}
    if logits is not None:
        greedy = jnp.argmax(values, axis=-1)
        terms["policy_loss"] = optax.softmax_cross_entropy_with_integer_labels(logits, greedy)
    return terms if batch.probability is None else {**terms, TD_ERROR: bootstrap - value}


def _at(values: Array, action: Array) -> Array:
    """The value of one action in each row."""
    return jnp.take_along_axis(values, action[:, None], axis=-1)[:, 0]
