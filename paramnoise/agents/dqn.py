"""DQN (Mnih et al. 2015), plain or with a separate policy head for parameter noise (sec. 4.1, app. A.1, A.3)."""

import dataclasses
import functools
from typing import Any, get_args

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.agents.q_learning import QLearningConfig, QLearningState, apply_gradient, init_state, td_target
from paramnoise.experience.replay import Transition
from paramnoise.networks import PixelQNetwork, QNetwork
from paramnoise.networks.convolutions import NATURE, Layer, Precision, check_frames, check_layers, product_dtype
from paramnoise.networks.own import NetworkSetting, OwnQNetwork, find_network, make_network
from paramnoise.networks.policies import GreedyPolicy
from paramnoise.validation import lookup, require

Network = QNetwork | PixelQNetwork | OwnQNetwork


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNConfig(QLearningConfig):
    """Settings of DQN."""

    network: NetworkSetting = None
    """A factory (observation_shape, actions, key) -> module of Q values, or its registered name, in place of ours."""
    policy_head: bool = False
    """A separate policy head, trained to output the greedy action; parameter noise then perturbs it instead of Q."""
    double_q: bool = False
    """Choose the next action with the online network (van Hasselt et al. 2016); the paper does not."""
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
        check_layers(self.convolutions)
        lookup("precision", self.precision, dict.fromkeys(get_args(Precision)))

    def applying(self, spaces: Spaces) -> dict[str, Any]:
        """The settings that matter in such spaces, with the values that they come to."""
        values = {**dataclasses.asdict(self), "precision": str(product_dtype(self.precision))}
        return {
            name: values[name] for name in values if spaces.shows_frames or name not in ("convolutions", "precision")
        }


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
        kind: Any = {"policy_head": config.policy_head, "layer_norm": config.layer_norm}
        layers, sizes = config.convolutions, config.hidden_sizes
        if config.network is not None:
            own = make_network(config.network, spaces.observation, spaces.actions, key)
            return init_state(config, OwnQNetwork(own))
        if not spaces.shows_frames:
            return init_state(config, QNetwork((*spaces.observation, *sizes, spaces.actions), key=key, **kind))
        kind["precision"] = config.precision
        return init_state(config, PixelQNetwork(spaces.observation, layers, sizes, spaces.actions, key=key, **kind))

    if spaces.shows_frames and config.network is None:
        check_frames(spaces.observation[1:], config.convolutions)
    policy = lambda state: GreedyPolicy(state.network.behaviour)  # noqa: E731
    return Learner(config, spaces, init, functools.partial(update, config), policy)


def update(config: DQNConfig, state: QLearningState, batch: Transition) -> tuple[QLearningState, dict[str, Array]]:
    """One train step on a batch of transitions."""

    def loss(network: Network) -> tuple[Array, dict[str, Array]]:
        terms = jax.tree.map(jnp.mean, losses(config, network, state.target, batch))
        return sum(terms.values()), terms

    gradient, terms = jax.grad(loss, has_aux=True)(state.network)
    return apply_gradient(config, state, gradient), terms


def losses(config: DQNConfig, network: Network, target: Network, batch: Transition) -> dict[str, Array]:
    """The loss terms of each transition; the mean of their sum is minimised."""
    values, logits = network.heads(batch.obs)
    next_values = target.values(batch.next_obs)
    chooser = network.values(batch.next_obs) if config.double_q else next_values
    reward = jnp.clip(batch.reward, -1.0, 1.0) if config.clip_rewards else batch.reward
    next_value = _at(next_values, jnp.argmax(chooser, axis=-1))
    bootstrap = jax.lax.stop_gradient(td_target(reward, batch.terminated, next_value, config.gamma))
    # The Huber loss is the squared error with its gradient clipped to [-1, 1] (app. A.1).
    terms = {"q_loss": optax.huber_loss(_at(values, batch.action), bootstrap)}
    if logits is not None:
        greedy = jnp.argmax(values, axis=-1)
        terms["policy_loss"] = optax.softmax_cross_entropy_with_integer_labels(logits, greedy)
    return terms


def _at(values: Array, action: Array) -> Array:
    """The value of one action in each row."""
    return jnp.take_along_axis(values, action[:, None], axis=-1)[:, 0]
