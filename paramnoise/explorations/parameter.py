"""Adaptive parameter space noise for off-policy learners (sec. 3)."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise import noise as parameter_noise
from paramnoise import schedules
from paramnoise.explorations.base import Exploration, HostNoise, HostPolicy, register_exploration
from paramnoise.explorations.epsilon_greedy import annealed_epsilon, check_annealing, mix_in_random
from paramnoise.networks.convolutions import Convolution
from paramnoise.networks.policies import CONTINUOUS, Policy, SquashedGaussianPolicy
from paramnoise.noise.many import values_of_each
from paramnoise.noise.perturbation import redraw_first
from paramnoise.noise.pool import (
    Pool,
    act_in_pool,
    begin_first_in_pool,
    begin_in_pool,
    init_pool,
    policies_in_pool,
)
from paramnoise.validation import UsageError, require

DEFAULT_RMS_DELTA = 0.2
"""The delta of continuous actions if none is given: that of the paper's dense tasks."""
LAYERS = (eqx.nn.Linear, eqx.nn.Conv, Convolution, eqx.nn.LayerNorm)
"""What half precision is for: numbers near 1. A normaliser's sums of all that was seen are beyond float16."""


class ParameterNoiseState(NamedTuple):
    """All that changes in adaptive parameter noise."""

    policies: Any
    """The acting policy of each environment: a leading axis on every array; or a `Pool` of them."""
    sampled_at: Array
    """The environment step at which each environment's policy was sampled, [num_envs]."""
    scale: parameter_noise.Scale
    distance: Array
    """The last measured distance between clean and probe policy; NaN before the first."""
    delta: Array
    """The threshold that it was compared with."""


@register_exploration("parameter")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterNoise(Exploration):
    """Adaptive parameter space noise: a perturbed policy acts for a whole episode (sec. 3).

    A policy with randomness of its own, SAC's, keeps it: the perturbed policy draws from its own distribution.
    """

    added_later: ClassVar = ("pool", "half_precision")
    policies: ClassVar[tuple[type, ...]] = (*Exploration.policies, SquashedGaussianPolicy)
    fixes_episodes: ClassVar[bool] = True

    delta: float | str | None = None
    """The distance in action space to keep, or a schedule over environment steps, such as linear:0.5:0.1:100000; None:
    that of the annealed epsilon (discrete), 0.2 (continuous)."""
    sigma: float | str | None = None
    """The standard deviation of the noise before the first adaptation; None: 0.01 (discrete), delta (continuous). With
    alpha 1 it may be a schedule over environment steps, which is looked at every `adapt_every`."""
    alpha: float = 1.01
    """The factor by which one adaptation changes sigma; 1: sigma is fixed, and the distance is measured alone."""
    adapt_every: int = 10  # type: ignore[misc]  # a field here, a constant elsewhere
    """Environment steps between adaptations."""
    epsilon: float = 0.0
    """The probability of a random action on top of the noise (0.01 on Atari)."""
    max_age: int | None = None
    """Steps of an environment after which its policy is sampled anew within an episode; None: never."""
    num_policies: int | None = None
    """Perturbed policies that the environments whose episodes start together share; None: each has one of its own."""
    pool: int | None = None
    """Perturbed policies in all, two for each group of neighbouring environments, where a copy for each environment
    costs too much; None: each has one of its own."""
    half_precision: bool = False
    """Whether the layers of the policies that act are kept as float16, which is half as much to read at every step of
    thousands of environments: 11 bits of each weight, about as many as a GPU's products keep of it anyway."""
    epsilon_start: float = 1.0
    """With no delta: the epsilon that delta matches at the first step."""
    epsilon_end: float = 0.1
    """With no delta: the epsilon that delta matches after annealing."""
    anneal_steps: int = 10_000
    """With no delta: environment steps over which that epsilon is annealed."""

    def __post_init__(self) -> None:
        for name in ("delta", "sigma"):
            if getattr(self, name) is not None:
                schedules.check(name, getattr(self, name))
        require(self.alpha >= 1, "alpha", self.alpha, "at least 1")
        follows = isinstance(self.sigma, str) and self.alpha > 1
        require(not follows, "alpha", self.alpha, "1 where sigma follows a schedule, which adapting would undo")
        require(self.adapt_every >= 1, "adapt_every", self.adapt_every, "at least 1")
        require(0 <= self.epsilon <= 1, "epsilon", self.epsilon, "between 0 and 1")
        require(self.max_age is None or self.max_age >= 1, "max_age", self.max_age, "at least 1")
        require(self.num_policies is None or self.num_policies >= 1, "num_policies", self.num_policies, "at least 1")
        even = self.pool is None or (self.pool >= 2 and self.pool % 2 == 0)
        require(even, "pool", self.pool, "an even number, as each group of environments has two policies")
        alone = self.pool is None or self.num_policies is None
        require(alone, "num_policies", self.num_policies, "unset with a pool, which says how many there are")
        whole = self.pool is None or not self.half_precision
        require(whole, "half_precision", self.half_precision, "false with a pool, of which little is read at a step")
        check_annealing(self)

    def init(self, policy: Policy, obs: Array) -> ParameterNoiseState:
        num_envs = obs.shape[0]
        policies: Any
        if self.pool is None:
            policies = parameter_noise.perturb_each(jax.random.key(0), policy, 0.0, num_envs)
            if self.half_precision:
                policies = _halved(policies)
        else:
            self._check_pool(obs)
            policies = init_pool(policy, self.pool, num_envs)
        nan, sigma = jnp.float32(jnp.nan), self._first_sigma(not isinstance(policy, CONTINUOUS))
        return ParameterNoiseState(
            policies, jnp.zeros(num_envs, jnp.int32), parameter_noise.initial_scale(sigma), nan, nan
        )

    def begin_episode(
        self, key: Array, state: ParameterNoiseState, policy: Policy, starts: Array, step: Array
    ) -> ParameterNoiseState:
        policies: Any
        sigma = state.scale.sigma
        if isinstance(state.policies, Pool):
            policies = begin_in_pool(key, state.policies, policy, sigma, starts)
        else:
            policies = parameter_noise.resample(key, state.policies, policy, sigma, starts, distinct=self.num_policies)
        return state._replace(policies=policies, sampled_at=jnp.where(starts, step, state.sampled_at))

    def begin_first(
        self, key: Array, state: ParameterNoiseState, policy: Policy, starts: Array, step: Array
    ) -> tuple[ParameterNoiseState, Array]:
        policies: Any
        sigma = state.scale.sigma
        if isinstance(state.policies, Pool):
            policies, left = begin_first_in_pool(key, state.policies, policy, sigma, starts)
        else:
            policies, left = redraw_first(key, state.policies, policy, sigma, starts, distinct=self.num_policies)
        return state._replace(policies=policies, sampled_at=jnp.where(starts, step, state.sampled_at)), left

    def act(
        self, key: Array, state: ParameterNoiseState, policy: Policy, obs: Array, step: Array
    ) -> tuple[ParameterNoiseState, Array]:
        if self.max_age is not None:
            key, age_key = jax.random.split(key)
            old = step - state.sampled_at >= self.max_age * obs.shape[0]  # steps are counted over all environments
            renew = lambda s: self.begin_episode(age_key, s, policy, old, step)  # noqa: E731
            state = jax.lax.cond(jnp.any(old), renew, lambda s: s, state)
        if isinstance(state.policies, Pool):
            values = act_in_pool(state.policies, obs)
        else:
            values = values_of_each(lambda perturbed, o: _typed_as(policy, perturbed)(o), state.policies, obs)
        if isinstance(policy, SquashedGaussianPolicy):
            key, draw_key = jax.random.split(key)
            actions = policy.random(draw_key, values)
        else:
            actions = jax.vmap(policy.greedy)(values)
        if self.epsilon > 0:
            actions = mix_in_random(key, policy, values, actions, self.epsilon)
        return state, actions

    @property
    def can_act_on_host(self) -> bool:
        return self.epsilon == 0 and self.max_age is None

    def acting_policy(self, state: ParameterNoiseState, policy: Any) -> tuple[Any, bool]:
        if isinstance(state.policies, Pool):
            return policies_in_pool(state.policies), True
        return _typed_as(policy, state.policies), True

    def act_on_host(self, noise: HostNoise, state: Any, policy: HostPolicy, obs: np.ndarray, step: int) -> np.ndarray:
        values = policy(obs)
        return policy.random(values, noise) if policy.is_stochastic else policy.greedy(values)

    def adapt(
        self, key: Array, state: ParameterNoiseState, policy: Policy, obs: Array, step: Array
    ) -> ParameterNoiseState:
        # A probe of its own: measuring must not touch the policies that act. It is seen beside the clean policy, which
        # is the same draw with a sigma of 0: on a GPU two small networks cost as much as one.
        sigmas = jnp.stack([jnp.zeros_like(state.scale.sigma), state.scale.sigma])
        values, perturbed = jax.vmap(lambda sigma: jax.vmap(parameter_noise.perturb(key, policy, sigma))(obs))(sigmas)
        distance = policy.distance(values, perturbed)
        delta = self.threshold(policy, values.shape[-1], step)
        scale = parameter_noise.adapt(state.scale, distance, delta, self.alpha)
        if isinstance(self.sigma, str):
            scale = scale._replace(sigma=schedules.at(self.sigma, step))
        return state._replace(scale=scale, distance=distance, delta=delta)

    def threshold(self, policy: Policy, num_actions: int, step: Array) -> Array:
        """Delta at an environment step."""
        if self.delta is not None:
            return schedules.at(self.delta, step)
        if isinstance(policy, CONTINUOUS):
            return jnp.float32(DEFAULT_RMS_DELTA)
        return parameter_noise.delta_from_epsilon(annealed_epsilon(self, step), num_actions)

    def _check_pool(self, obs: Array) -> None:
        """Raises UsageError if these environments cannot share the pool."""
        assert self.pool is not None
        if obs.ndim > 2:
            raise UsageError("pool is for environments that show vectors: on frames each has a policy of its own")
        groups, num_envs = self.pool // 2, obs.shape[0]
        fits = num_envs % groups == 0
        require(fits, "pool", self.pool, f"twice a number that divides num_envs, which is {num_envs}")

    def _first_sigma(self, is_discrete: bool) -> float:
        if self.sigma is not None:
            return schedules.first_value(self.sigma)
        if is_discrete:
            return 0.01
        return DEFAULT_RMS_DELTA if self.delta is None else schedules.first_value(self.delta)

    def applying(self, actions: int, is_discrete: bool) -> dict[str, Any]:
        values = {**super().applying(actions, is_discrete), "sigma": self._first_sigma(is_discrete)}
        if is_discrete and self.delta is None:
            ends = (self.epsilon_start, self.epsilon_end)
            first, last = (float(parameter_noise.delta_from_epsilon(epsilon, actions)) for epsilon in ends)
            return {**values, "delta": f"{first:.3g} to {last:.3g}"}
        for name in ("epsilon_start", "epsilon_end", "anneal_steps"):
            del values[name]
        return {**values, "delta": self.delta or DEFAULT_RMS_DELTA}

    def report(self, state: ParameterNoiseState, step: Array) -> dict[str, Array]:
        return {
            "sigma": state.scale.sigma,
            "distance": state.distance,
            "delta": state.delta,
            "adaptations": state.scale.adaptations,
        }


def _halved(policies: Any) -> Any:
    """Policies whose layers are float16; all else, such as what observations are normalised by, stays as it is."""
    is_layer = lambda node: isinstance(node, LAYERS)  # noqa: E731
    half = lambda leaf: leaf.astype(jnp.float16) if eqx.is_array(leaf) else leaf  # noqa: E731
    return jax.tree.map(lambda node: jax.tree.map(half, node) if is_layer(node) else node, policies, is_leaf=is_layer)


def _typed_as(policy: Any, perturbed: Any) -> Any:
    """Perturbed policies with the dtypes of the clean one, in which they may not be kept; else nothing is copied."""
    return jax.tree.map(
        lambda clean, kept: kept if kept.dtype == clean.dtype else kept.astype(clean.dtype), policy, perturbed
    )
