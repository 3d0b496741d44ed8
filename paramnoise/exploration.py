"""Exploration: how a policy is turned into behaviour, per environment and per episode.

Every strategy is a frozen config with the same four pure functions over a state: `init`, `begin_episode`, `act`,
`adapt`. None of them knows a learner; the learners know none of them. Parameter noise for on-policy learners is in
`on_policy_noise`.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from paramnoise import noise
from paramnoise.policies import DeterministicPolicy, GreedyPolicy, Policy, VotingPolicy
from paramnoise.strategy import Exploration, NoNoise
from paramnoise.validation import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(Exploration):
    """A random action with probability epsilon, which is annealed linearly."""

    kind: ClassVar[str] = "epsilon-greedy"
    policies: ClassVar[tuple[type, ...]] = (GreedyPolicy, VotingPolicy)

    epsilon_start: float = 1.0
    """The probability of a random action at the first step."""
    epsilon_end: float = 0.1
    """The probability after annealing."""
    anneal_steps: int = 10_000
    """Environment steps over which epsilon is annealed."""

    def __post_init__(self) -> None:
        _check_epsilon(self)

    def act(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        values = jax.vmap(policy)(obs)
        return state, _mix_in_random(key, policy, values, jax.vmap(policy.greedy)(values), _epsilon(self, step))

    def report(self, state: Any, step: Array) -> dict[str, Array]:
        return {"epsilon": _epsilon(self, step)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gaussian(Exploration):
    """Independent Gaussian noise on each continuous action."""

    kind: ClassVar[str] = "gaussian"
    policies: ClassVar[tuple[type, ...]] = (DeterministicPolicy,)

    sigma: float = 0.2
    """The standard deviation, in units of half the action range."""

    def __post_init__(self) -> None:
        require(self.sigma >= 0, "sigma", self.sigma, "at least 0")

    def act(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        actions = jax.vmap(policy)(obs)
        return state, jnp.clip(actions + self.sigma * jax.random.normal(key, actions.shape), -1.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrnsteinUhlenbeck(Exploration):
    """Correlated noise on continuous actions: dx = -theta x dt + sigma sqrt(dt) N(0, I), from 0 in each episode.

    With dt = 0.01 a sigma of 0.2 moves the noise by 0.02 a step; code bases with dt = 1 explore far more for the same
    sigma.
    """

    kind: ClassVar[str] = "ou"
    policies: ClassVar[tuple[type, ...]] = (DeterministicPolicy,)

    sigma: float = 0.2
    """The scale of the noise, in units of half the action range."""
    theta: float = 0.15
    """How strongly the noise returns to 0."""
    dt: float = 0.01
    """The time of one step."""

    def __post_init__(self) -> None:
        require(self.sigma >= 0, "sigma", self.sigma, "at least 0")
        require(self.theta >= 0, "theta", self.theta, "at least 0")
        require(self.dt > 0, "dt", self.dt, "above 0")

    def init(self, policy: Policy, obs: Array) -> Array:
        return jnp.zeros(jax.eval_shape(jax.vmap(policy), obs).shape)

    def begin_episode(self, key: Array, state: Array, policy: Policy, starts: Array, step: Array) -> Array:
        return jnp.where(starts[:, None], 0.0, state)

    def act(self, key: Array, state: Array, policy: Policy, obs: Array, step: Array) -> tuple[Array, Array]:
        shock = self.sigma * self.dt**0.5 * jax.random.normal(key, state.shape)
        state = state - self.theta * self.dt * state + shock
        return state, jnp.clip(jax.vmap(policy)(obs) + state, -1.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BootstrapHead(Exploration):
    """One head of an ensemble acts for a whole episode (Osband et al. 2016)."""

    kind: ClassVar[str] = "bootstrap"
    policies: ClassVar[tuple[type, ...]] = (VotingPolicy,)

    def init(self, policy: Policy, obs: Array) -> Array:
        return jnp.zeros(obs.shape[0], jnp.int32)

    def begin_episode(self, key: Array, state: Array, policy: Policy, starts: Array, step: Array) -> Array:
        assert isinstance(policy, VotingPolicy)
        return jnp.where(starts, jax.random.randint(key, state.shape, 0, policy.num_heads), state)

    def act(self, key: Array, state: Array, policy: Policy, obs: Array, step: Array) -> tuple[Array, Array]:
        values = jax.vmap(policy)(obs)  # [num_envs, heads, actions]
        acting = jnp.take_along_axis(values, state[:, None, None], axis=1)[:, 0]
        return state, jnp.argmax(acting, axis=-1)


DEFAULT_RMS_DELTA = 0.2
"""The delta of continuous actions if none is given: that of the paper's dense tasks."""


class ParameterNoiseState(NamedTuple):
    """All that changes in adaptive parameter noise."""

    policies: Any
    """The acting policy of each environment: a leading axis on every array."""
    sampled_at: Array
    """The environment step at which each environment's policy was sampled, [num_envs]."""
    scale: noise.Scale
    distance: Array
    """The last measured distance between clean and probe policy; NaN before the first."""
    delta: Array
    """The threshold that it was compared with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterNoise(Exploration):
    """Adaptive parameter space noise: a perturbed policy acts for a whole episode (sec. 3)."""

    kind: ClassVar[str] = "parameter"

    delta: float | None = None
    """The distance in action space to keep; None: that of the annealed epsilon (discrete), 0.2 (continuous)."""
    sigma: float | None = None
    """The standard deviation of the noise before the first adaptation; None: 0.01 (discrete), delta (continuous)."""
    alpha: float = 1.01
    """The factor by which one adaptation changes sigma."""
    adapt_every: int = 10  # type: ignore[misc]  # a field here, a constant elsewhere
    """Environment steps between adaptations."""
    epsilon: float = 0.0
    """The probability of a random action on top of the noise (0.01 on Atari)."""
    max_age: int | None = None
    """Steps after which a policy is sampled anew within an episode; None: never."""
    epsilon_start: float = 1.0
    """With no delta: the epsilon that delta matches at the first step."""
    epsilon_end: float = 0.1
    """With no delta: the epsilon that delta matches after annealing."""
    anneal_steps: int = 10_000
    """With no delta: environment steps over which that epsilon is annealed."""

    def __post_init__(self) -> None:
        require(self.delta is None or self.delta > 0, "delta", self.delta, "above 0")
        require(self.sigma is None or self.sigma > 0, "sigma", self.sigma, "above 0")
        require(self.alpha > 1, "alpha", self.alpha, "above 1")
        require(self.adapt_every >= 1, "adapt_every", self.adapt_every, "at least 1")
        require(0 <= self.epsilon <= 1, "epsilon", self.epsilon, "between 0 and 1")
        require(self.max_age is None or self.max_age >= 1, "max_age", self.max_age, "at least 1")
        _check_epsilon(self)

    def init(self, policy: Policy, obs: Array) -> ParameterNoiseState:
        num_envs = obs.shape[0]
        policies = noise.perturb_each(jax.random.key(0), policy, 0.0, num_envs)
        nan = jnp.float32(jnp.nan)
        return ParameterNoiseState(
            policies, jnp.zeros(num_envs, jnp.int32), noise.initial_scale(self._first_sigma(policy)), nan, nan
        )

    def begin_episode(
        self, key: Array, state: ParameterNoiseState, policy: Policy, starts: Array, step: Array
    ) -> ParameterNoiseState:
        policies = noise.resample(key, state.policies, policy, state.scale.sigma, starts)
        return state._replace(policies=policies, sampled_at=jnp.where(starts, step, state.sampled_at))

    def act(
        self, key: Array, state: ParameterNoiseState, policy: Policy, obs: Array, step: Array
    ) -> tuple[ParameterNoiseState, Array]:
        if self.max_age is not None:
            key, age_key = jax.random.split(key)
            old = step - state.sampled_at >= self.max_age * obs.shape[0]  # steps are counted over all environments
            renew = lambda s: self.begin_episode(age_key, s, policy, old, step)  # noqa: E731
            state = jax.lax.cond(jnp.any(old), renew, lambda s: s, state)
        values = eqx.filter_vmap(lambda perturbed, o: perturbed(o))(state.policies, obs)
        actions = jax.vmap(policy.greedy)(values)
        if self.epsilon > 0:
            actions = _mix_in_random(key, policy, values, actions, self.epsilon)
        return state, actions

    def adapt(
        self, key: Array, state: ParameterNoiseState, policy: Policy, obs: Array, step: Array
    ) -> ParameterNoiseState:
        # A probe of its own: measuring must not touch the policies that act.
        probe = noise.perturb(key, policy, state.scale.sigma)
        values = jax.vmap(policy)(obs)
        distance = policy.distance(values, jax.vmap(probe)(obs))
        delta = self.threshold(policy, values.shape[-1], step)
        return state._replace(
            scale=noise.adapt(state.scale, distance, delta, self.alpha), distance=distance, delta=delta
        )

    def adopt(self, state: ParameterNoiseState, adapted: ParameterNoiseState) -> ParameterNoiseState:
        return state._replace(scale=adapted.scale, distance=adapted.distance, delta=adapted.delta)

    def threshold(self, policy: Policy, num_actions: int, step: Array) -> Array:
        """Delta at an environment step."""
        if self.delta is not None:
            return jnp.float32(self.delta)
        if isinstance(policy, DeterministicPolicy):
            return jnp.float32(DEFAULT_RMS_DELTA)
        return noise.delta_from_epsilon(_epsilon(self, step), num_actions)

    def _first_sigma(self, policy: Policy) -> float:
        if self.sigma is not None:
            return self.sigma
        return (self.delta or DEFAULT_RMS_DELTA) if isinstance(policy, DeterministicPolicy) else 0.01

    def report(self, state: ParameterNoiseState, step: Array) -> dict[str, Array]:
        return {
            "sigma": state.scale.sigma,
            "distance": state.distance,
            "delta": state.delta,
            "adaptations": state.scale.adaptations,
        }


EXPLORATIONS: dict[str, type[Exploration]] = {
    cls.kind: cls for cls in (NoNoise, EpsilonGreedy, Gaussian, OrnsteinUhlenbeck, BootstrapHead, ParameterNoise)
}
"""Every strategy by its name on the command line."""


def _mix_in_random(key: Array, policy: Policy, values: Array, actions: Array, epsilon: Array | float) -> Array:
    choice_key, action_key = jax.random.split(key)
    explore = jax.random.bernoulli(choice_key, epsilon, actions.shape[:1])
    explore = explore.reshape((-1,) + (1,) * (actions.ndim - 1))
    return jnp.where(explore, policy.random(action_key, values).astype(actions.dtype), actions)


def _epsilon(config: EpsilonGreedy | ParameterNoise, step: Array) -> Array:
    schedule = optax.linear_schedule(config.epsilon_start, config.epsilon_end, config.anneal_steps)
    return jnp.asarray(schedule(step), jnp.float32)


def _check_epsilon(config: EpsilonGreedy | ParameterNoise) -> None:
    require(0 <= config.epsilon_start <= 1, "epsilon_start", config.epsilon_start, "between 0 and 1")
    require(0 <= config.epsilon_end <= 1, "epsilon_end", config.epsilon_end, "between 0 and 1")
    require(config.anneal_steps >= 1, "anneal_steps", config.anneal_steps, "at least 1")
