"""PPO (Schulman et al. 2017), clipped, whose batch may hold episodes with parameter noise.

The learner knows nothing of how noise came about: each segment of a batch brings an offset, its behaviour was the
policy at phi + offset, and gradients go to phi. Without noise there are no offsets, and nothing is computed for them.
"""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise import schedules
from paramnoise.agents import baseline
from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.agents.on_policy import estimate, make_tanh_network, over_epochs, predict, stochastic_policy
from paramnoise.experience.rollout import Rollout
from paramnoise.experience.segments import beside_row, tables
from paramnoise.networks.own import NetworkSetting, OptimizerSetting, find_network, find_optimizer
from paramnoise.networks.policies import StochasticPolicy
from paramnoise.validation import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Settings of PPO; the defaults are those of Stable-Baselines3."""

    added_later: ClassVar = ("std_from_features",)

    network: NetworkSetting = None
    """A factory (observation_shape, outputs, key) -> module, or its registered name, in place of ours; it makes the
    network of means or logits, and with 1 output that of values."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of each hidden layer of the policy and of the values, with tanh."""
    layer_norm: bool = False
    """Layer norm before each nonlinearity."""
    initial_std: float = 1.0
    """The first standard deviation of a Gaussian policy, in units of half the action range; if it comes from features,
    where their root mean square is 1."""
    std_from_features: bool = False
    """Let the standard deviations come from the features of the last hidden layer, by learned weights, and not be the
    same in every state: what the exploration gsde needs."""
    learning_rate: float | str = 3e-4
    """Adam's step size; or a schedule over train steps, such as linear:3e-4:1e-5:100000."""
    optimizer: OptimizerSetting = None
    """A transformation of optax in place of Adam, or its registered name; the learning rate then says nothing."""
    max_grad_norm: float | None = 0.5
    """The norm to which the gradient of both networks together is cut; None: as it is."""
    gamma: float = 0.99
    """The discount factor."""
    gae_lambda: float = 0.95
    """The lambda of generalised advantage estimation."""
    batch_size: int = 2_048
    """Environment steps per update, over all environments."""
    minibatch_size: int = 64
    """Environment steps per train step."""
    epochs: int = 10
    """How often an update goes through its batch."""
    clip: float = 0.2
    """How far the ratio of new to old probability may leave 1 and still be paid for."""
    value_coefficient: float = 0.5
    """The weight of the values' squared error in the loss."""
    entropy_coefficient: float = 0.0
    """The weight of the entropy bonus."""

    def __post_init__(self) -> None:
        if self.network is not None:
            find_network(self.network)
            own = self.std_from_features
            require(not own, "std_from_features", own, "False with a network of your own")
        require(all(size >= 1 for size in self.hidden_sizes), "hidden_sizes", self.hidden_sizes, "all at least 1")
        schedules.check("learning_rate", self.learning_rate)
        require(self.max_grad_norm is None or self.max_grad_norm > 0, "max_grad_norm", self.max_grad_norm, "above 0")
        _optimizer(self)  # refuses what is none
        for name in ("initial_std", "clip"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in ("gamma", "gae_lambda"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "between 0 and 1")
        for name in ("batch_size", "minibatch_size", "epochs"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.minibatch_size <= self.batch_size, "minibatch_size", self.minibatch_size, "at most batch_size")
        for name in ("value_coefficient", "entropy_coefficient"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")

    def applying(self, spaces: Spaces) -> dict[str, Any]:
        """The settings that matter in such spaces."""
        absent = {"initial_std", "std_from_features"} if spaces.is_discrete else set()
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in absent}


class Networks(NamedTuple):
    """What is learned, by one optimizer."""

    policy: StochasticPolicy
    values: Any
    """A network with one output."""


class PPOState(NamedTuple):
    """All that changes in PPO."""

    networks: Networks
    optimizer: Any
    key: Array
    """Decides minibatches, together with the number of updates."""
    updates: Array
    """Batches so far."""


class Sample(NamedTuple):
    """One step of a batch as the loss sees it."""

    obs: Array
    action: Array
    segment: Array
    """The number of its segment, whose offset is that of its episode."""
    advantage: Array
    returns: Array
    """The value's target."""
    log_probability: Array
    """Of the action, when it was drawn: by the policy before the update, under the episode's offset."""


@register_agent(
    "ppo",
    title="PPO",
    config=PPOConfig,
    experience="rollout",
    policy=StochasticPolicy,
    actions=("discrete", "multi-discrete", "continuous"),
    default_exploration="parameter",
    exploration_settings={"parameter": {"scaling": "adaptive"}},
)
def make(config: PPOConfig, spaces: Spaces) -> Learner:
    """Builds PPO for vector observations and discrete actions of one or more parts, or continuous ones in [-1, 1]."""

    def init(key: Array) -> PPOState:
        policy_key, values_key, key = jax.random.split(key, 3)
        means_or_logits = make_tanh_network(config, spaces, spaces.actions, 0.01, policy_key)
        policy = stochastic_policy(spaces, means_or_logits, config.initial_std, config.std_from_features)
        networks = Networks(policy, make_tanh_network(config, spaces, 1, 1.0, values_key))
        return PPOState(networks, _optimizer(config).init(networks), key, jnp.int32(0))

    return Learner(config, spaces, init, functools.partial(update, config), lambda state: state.networks.policy)


def update(config: PPOConfig, state: PPOState, rollout: Rollout) -> tuple[PPOState, dict[str, Array]]:
    """Several epochs of train steps on minibatches of a batch.

    A batch without any reward leaves the policy as it is: its advantages could only be what earlier batches left in the
    values, and standardised they would move the policy as far as rewards do.

    Returns:
        The state, and to report, in the mean over train steps: `policy_loss`, the clipped objective with its sign
        changed; `value_loss`, the squared error of the values; `entropy`, of the behaviour; `clipped`, the part of the
        samples whose ratio left the range. In the mean over the last epoch: `kl`, an estimate of KL(old || new). Of the
        batch: `explained_variance`, of the returns by the values before the update.
    """
    policy = state.networks.policy
    has_noise = rollout.offsets.shape[1] > 0
    offsets = tables(policy, rollout.offsets) if has_noise else None
    estimates = estimate(state.networks.values, rollout, config.gamma, config.gae_lambda)
    rows = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
    samples = Sample(
        obs=rows(rollout.obs),
        action=rows(rollout.action),
        segment=rows(rollout.segment),
        advantage=rows(estimates.advantages),
        returns=rows(estimates.returns),
        log_probability=rows(jnp.zeros_like(estimates.returns)),  # not known yet
    )
    look = functools.partial(log_probability, policy, offsets)
    # Every row with an offset has a network of its own; without, all rows together are what the values were asked for.
    before = jax.lax.map(look, samples, batch_size=config.minibatch_size) if has_noise else jax.vmap(look)(samples)
    samples = samples._replace(log_probability=before)
    optimizer = _optimizer(config)

    def step(carry: tuple[Networks, Any], minibatch: Sample) -> tuple[tuple[Networks, Any], dict[str, Array]]:
        networks, moments = carry
        gradient, terms = jax.grad(loss, argnums=1, has_aux=True)(config, networks, offsets, minibatch)
        changes, moments = optimizer.update(gradient, moments, networks)
        return (optax.apply_updates(networks, changes), moments), terms

    learned, key = (state.networks, state.optimizer), jax.random.fold_in(state.key, state.updates)
    (networks, moments), terms = over_epochs(step, learned, samples, key, config.minibatch_size, config.epochs)
    stays = lambda new, old: jnp.where(estimates.has_reward, new, old)  # noqa: E731
    networks = networks._replace(policy=jax.tree.map(stays, networks.policy, policy))
    report = {name: jnp.mean(values) for name, values in terms.items()}
    report["kl"] = jnp.mean(terms["kl"][-1])
    report["explained_variance"] = baseline.explained_variance(estimates.values, estimates.returns)
    return PPOState(networks, moments, state.key, state.updates + 1), report


def distribution(policy: StochasticPolicy, offsets: Any, sample: Sample) -> Array:
    """The distribution of one sample's action, under its own episode's noise.

    `offsets` are those of all segments (`tables`), of which it takes its own, or None if there is no noise.
    """
    own = policy if offsets is None else beside_row(policy, offsets, sample.segment)
    return own(sample.obs)


def log_probability(policy: StochasticPolicy, offsets: Any, sample: Sample) -> Array:
    """The log of the probability, or of its density, of one sample's action, under its own episode's noise."""
    return policy.log_probability(distribution(policy, offsets, sample), sample.action)


def loss(config: PPOConfig, networks: Networks, offsets: Any, samples: Sample) -> tuple[Array, dict[str, Array]]:
    """The loss of a minibatch, and its terms to report.

    An episode's offset enters both probabilities of a ratio, since with it the episode was sampled; the derivative is
    taken in phi (eq. 2; derived in app. B, eq. 3 to 6).
    """
    policy = networks.policy
    values = jax.vmap(functools.partial(distribution, policy, offsets))(samples)
    log_ratio = policy.log_probability(values, samples.action) - samples.log_probability
    ratio, advantage = jnp.exp(log_ratio), baseline.standardise(samples.advantage)
    within = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    policy_loss = -jnp.mean(jnp.minimum(ratio * advantage, within * advantage))
    value_loss = jnp.mean(jnp.square(predict(networks.values, samples.obs) - samples.returns))
    entropy = jnp.mean(policy.entropy(values))
    total = policy_loss + config.value_coefficient * value_loss - config.entropy_coefficient * entropy
    terms = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "kl": jnp.mean(jnp.expm1(log_ratio) - log_ratio),  # of KL(old || new), never below 0
        "clipped": jnp.mean(within != ratio),
    }
    return total, terms


def _optimizer(config: PPOConfig) -> optax.GradientTransformation:
    adam = optax.adam(schedules.as_optax(config.learning_rate), eps=1e-5)
    return find_optimizer(config.optimizer, adam, config.max_grad_norm)
