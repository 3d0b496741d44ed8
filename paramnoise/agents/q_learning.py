"""What DQN and bootstrapped DQN share: settings, the optimizer, the TD target, the target network."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise import schedules
from paramnoise.networks.own import OptimizerSetting, find_optimizer
from paramnoise.validation import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class QLearningConfig:
    """Settings of value learning with replay and a target network."""

    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of each hidden layer."""
    layer_norm: bool = True
    """Layer norm before each nonlinearity; parameter noise needs it (sec. 3)."""
    learning_rate: float | str = 3e-4
    """Adam's step size; or a schedule over train steps, such as linear:1e-3:1e-5:100000."""
    adam_epsilon: float = 1e-8
    """Adam's epsilon."""
    optimizer: OptimizerSetting = None
    """A transformation of optax in place of Adam, or its registered name; `learning_rate` then says nothing."""
    max_grad_norm: float | None = None
    """The norm to which a gradient is cut; None: as it is."""
    gamma: float = 0.99
    """The discount factor."""
    batch_size: int = 128
    """Transitions per train step."""
    buffer_size: int = 100_000
    """Transitions that replay holds."""
    learning_starts: int = 1_000
    """Environment steps before the first train step."""
    train_every: int = 1
    """Environment steps per train step."""
    target_every: int = 256
    """Environment steps between copies into the target network."""

    def __post_init__(self) -> None:
        require(all(size >= 1 for size in self.hidden_sizes), "hidden_sizes", self.hidden_sizes, "all at least 1")
        schedules.check("learning_rate", self.learning_rate)
        require(self.max_grad_norm is None or self.max_grad_norm > 0, "max_grad_norm", self.max_grad_norm, "above 0")
        _optimizer(self)  # refuses what is none
        require(self.adam_epsilon > 0, "adam_epsilon", self.adam_epsilon, "above 0")
        require(0 <= self.gamma <= 1, "gamma", self.gamma, "between 0 and 1")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        require(self.buffer_size >= self.batch_size, "buffer_size", self.buffer_size, "at least batch_size")
        require(self.learning_starts >= 0, "learning_starts", self.learning_starts, "at least 0")
        require(self.train_every >= 1, "train_every", self.train_every, "at least 1")
        require(
            self.target_every >= 1 and self.target_every % self.train_every == 0,
            "target_every",
            self.target_every,
            f"a positive multiple of train_every ({self.train_every})",
        )

    @property
    def train_steps(self) -> int:
        """Train steps every `train_every` environment steps."""
        return 1

    @property
    def target_period(self) -> int:
        """Train steps between copies into the target network."""
        return self.target_every // self.train_every


class QLearningState(NamedTuple):
    """All that changes in a value learner."""

    network: Any
    target: Any
    optimizer: Any
    updates: Array
    """Train steps so far."""
    key: Array | None = None
    """Decides the noise of train steps, where layers are noisy."""


def init_state(config: QLearningConfig, network: Any, key: Array | None = None) -> QLearningState:
    """The state around a fresh network."""
    return QLearningState(network, network, _optimizer(config).init(network), jnp.int32(0), key)


def td_target(reward: Array, terminated: Array, next_value: Array, gamma: Array | float) -> Array:
    """The target r + gamma * V(s'), or r alone where the task ended; at a truncated end the value is bootstrapped."""
    return reward + gamma * jnp.where(terminated, 0.0, next_value)


def n_step_return(rewards: Array, num_steps: Array, gamma: float) -> tuple[Array, Array]:
    """The sum of gamma^i r_i over the steps of each item, and the discount gamma^steps of what follows them.

    Args:
        rewards: [batch, n_step], 0 after an item's last step.
        num_steps: of each item, [batch].
        gamma: the discount of one step.
    """
    powers = gamma ** jnp.arange(rewards.shape[1])
    return jnp.sum(powers * rewards, axis=1), gamma**num_steps


def importance_weights(probability: Array, beta: Array | float) -> Array:
    """What undoes the bias of draws by priority, (N p)^-beta over the largest in the batch (Schaul et al. 2016)."""
    return (jnp.min(probability) / probability) ** beta  # N is the same for all


def apply_gradient(config: QLearningConfig, state: QLearningState, gradient: Any) -> QLearningState:
    """One step of the optimizer, and the copy into the target network when it is due."""
    changes, optimizer = _optimizer(config).update(gradient, state.optimizer, state.network)
    network = optax.apply_updates(state.network, changes)
    updates = state.updates + 1
    copy = updates % config.target_period == 0
    target = jax.tree.map(lambda new, old: jnp.where(copy, new, old), network, state.target)
    return QLearningState(network, target, optimizer, updates, state.key)


def _optimizer(config: QLearningConfig) -> optax.GradientTransformation:
    adam = optax.adam(schedules.as_optax(config.learning_rate), eps=config.adam_epsilon)
    return find_optimizer(config.optimizer, adam, config.max_grad_norm)
