"""Parameter space noise for on-policy learners: one offset of the parameters per episode (app. B, C.3)."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from paramnoise import noise as parameter_noise
from paramnoise import schedules
from paramnoise.explorations.base import Exploration, HostNoise, HostPolicy, register_exploration
from paramnoise.networks.policies import Policy, StochasticPolicy
from paramnoise.noise.natural import SCALINGS, perturbed_entries
from paramnoise.noise.perturbation import Where
from paramnoise.validation import require


class OnPolicyNoiseState(NamedTuple):
    """All that changes in the noise of on-policy learning."""

    offsets: Array
    """What the episode of each environment adds to the flat parameters, [num_envs, parameters]."""
    obs: Array
    """States of the last batch, [states, ...]; new noise is measured on them."""
    has_obs: Array
    """Whether there was a batch; before the first one there is no noise."""
    scale: parameter_noise.Scale
    distance: Array
    """The last KL(perturbed || clean): of the last noise, or of the last probe if sigma is adapted; NaN before."""
    sampled: Array
    """Episodes whose noise was measured so far."""
    failed: Array
    """Those of them whose search found nothing within the bound: they went without noise."""


@register_exploration("parameter")
@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicyParameterNoise(Exploration):
    """Parameter noise for a stochastic policy: an offset of its parameters, one for each episode.

    The behaviour of an episode is always the current policy plus the episode's own offset. The learner gets the offset
    with the episode, and so it can improve the policy below the noise.
    """

    policies: ClassVar[tuple[type, ...]] = (StochasticPolicy,)

    scaling: str = "boundary"
    """How noise gets its size: a natural step scaled to the KL bound (boundary) or only shrunk to it (shrink), or
    spherical noise with sigma adapted on the KL (adaptive)."""
    delta: float | str = 0.1
    """The bound on the mean KL between perturbed and clean policy, with adaptive scaling the KL to keep; or a schedule
    over environment steps, such as linear:0.1:0.001:500000. With 0.01, the bound of the policy's own step, noise is too
    small to explore (docs/trpo.md)."""
    sigma: float = 0.01
    """The standard deviation of the noise before it is scaled, or before the first adaptation; 0: no noise."""
    max_states: int = 100
    """States of the last batch on which noise is measured; they are evenly spread over it."""
    damping: float = 1e-5
    """Natural steps: added to the diagonal of the Fisher matrix."""
    cg_steps: int = 10
    """Natural steps: conjugate-gradient steps."""
    shrinkage: float = 0.8
    """Natural steps: the factor by which the search shortens a step that is out of bounds."""
    max_backtracks: int = 60
    """Natural steps: lengths that the search tries before an episode goes without noise."""
    alpha: float = 1.01
    """Adaptive scaling: the factor by which one adaptation changes sigma; 1: sigma is fixed."""
    adapt_every: int = 50  # type: ignore[misc]  # a field here, a constant elsewhere
    """Adaptive scaling: environment steps per adaptation; all the adaptations of a batch happen after the batch."""
    perturb_log_std: bool = False
    """Perturb the standard deviations of a Gaussian policy too."""

    def __post_init__(self) -> None:
        allowed = (*SCALINGS, "adaptive")
        require(self.scaling in allowed, "scaling", repr(self.scaling), f"one of {', '.join(allowed)}")
        schedules.check("delta", self.delta)
        require(self.sigma >= 0, "sigma", self.sigma, "at least 0")
        stays_0 = self.scaling == "adaptive" and self.sigma == 0
        require(not stays_0, "sigma", self.sigma, "above 0 with adaptive scaling, which only multiplies it")
        require(self.damping >= 0, "damping", self.damping, "at least 0")
        require(0 < self.shrinkage < 1, "shrinkage", self.shrinkage, "above 0 and below 1")
        require(self.alpha >= 1, "alpha", self.alpha, "at least 1")
        for name in ("max_states", "cg_steps", "max_backtracks", "adapt_every"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")

    def init(self, policy: Policy, obs: Array) -> OnPolicyNoiseState:
        zero = jnp.int32(0)
        return OnPolicyNoiseState(
            offsets=jnp.zeros((obs.shape[0], ravel_pytree(policy)[0].size)),
            obs=jnp.zeros((self.max_states, *obs.shape[1:]), obs.dtype),
            has_obs=jnp.bool_(False),
            scale=parameter_noise.initial_scale(self.sigma),
            distance=jnp.float32(jnp.nan),
            sampled=zero,
            failed=zero,
        )

    def begin_episode(
        self, key: Array, state: OnPolicyNoiseState, policy: Policy, starts: Array, step: Array
    ) -> OnPolicyNoiseState:
        if self.scaling == "adaptive":
            return self._begin_spherical(key, state, policy, starts)

        def sample(carry: OnPolicyNoiseState, start: tuple[Array, Array, Array]) -> tuple[OnPolicyNoiseState, Array]:
            starts_here, env_key, offset = start
            drawn = lambda s: self._draw(env_key, s, policy, step)  # noqa: E731
            blank = lambda s: (s, jnp.zeros_like(offset))  # noqa: E731
            fresh = lambda s: jax.lax.cond(s.has_obs, drawn, blank, s)  # noqa: E731
            return jax.lax.cond(starts_here, fresh, lambda s: (s, offset), carry)

        # One environment after the other: a search under vmap would run for all of them if one episode starts.
        rows = (starts, jax.random.split(key, starts.shape[0]), state.offsets)
        after, offsets = jax.lax.scan(sample, state, rows)
        return after._replace(offsets=offsets)

    def _begin_spherical(
        self, key: Array, state: OnPolicyNoiseState, policy: Policy, starts: Array
    ) -> OnPolicyNoiseState:
        """Draws spherical noise where episodes start, of many environments together."""
        entries = perturbed_entries(policy, self._where(policy))
        sigma = jnp.where(state.has_obs, state.scale.sigma, 0.0)
        drawn = parameter_noise.resample(
            key, state.offsets, jnp.zeros_like(entries), sigma, starts, where=lambda path, leaf: True
        )
        sampled = state.sampled + jnp.where(state.has_obs, jnp.sum(starts, dtype=jnp.int32), 0)
        return state._replace(offsets=entries * drawn, sampled=sampled)

    def _draw(
        self, key: Array, state: OnPolicyNoiseState, policy: Policy, step: Array
    ) -> tuple[OnPolicyNoiseState, Array]:
        assert isinstance(policy, StochasticPolicy)
        natural = parameter_noise.natural_noise(
            key,
            policy,
            state.obs,
            policy.divergence,
            sigma=state.scale.sigma,
            delta=schedules.at(self.delta, step),
            scaling=self.scaling,
            where=self._where(policy),
            damping=self.damping,
            cg_steps=self.cg_steps,
            shrinkage=self.shrinkage,
            max_backtracks=self.max_backtracks,
        )
        after = state._replace(distance=natural.kl, sampled=state.sampled + 1, failed=state.failed + ~natural.found)
        return after, natural.offset

    def act(
        self, key: Array, state: OnPolicyNoiseState, policy: Policy, obs: Array, step: Array
    ) -> tuple[OnPolicyNoiseState, Array]:
        assert isinstance(policy, StochasticPolicy)
        values = jax.vmap(lambda offset, o: parameter_noise.displace(policy, offset)(o))(state.offsets, obs)
        return state, policy.random(key, values)

    def acting_policy(self, state: OnPolicyNoiseState, policy: Any) -> tuple[Any, bool]:
        leaves, structure = jax.tree.flatten(policy)
        parts = np.split(state.offsets, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=1)
        moved = [leaf + part.reshape(-1, *leaf.shape) for leaf, part in zip(leaves, parts, strict=True)]
        return jax.tree.unflatten(structure, moved), True

    def act_on_host(self, noise: HostNoise, state: Any, policy: HostPolicy, obs: np.ndarray, step: int) -> np.ndarray:
        return policy.random(policy(obs), noise)

    def adapt(
        self, key: Array, state: OnPolicyNoiseState, policy: Policy, obs: Array, step: Array
    ) -> OnPolicyNoiseState:
        """Keeps some states of a batch, [batch, ...], for the noise of the next one, and adapts sigma on them.

        It follows the update on that batch: `policy` is the improved one.
        """
        spread = jnp.linspace(0, obs.shape[0] - 1, self.max_states).astype(jnp.int32)
        state = state._replace(obs=obs[spread], has_obs=jnp.bool_(True))
        if self.scaling != "adaptive":
            return state
        clean, delta = jax.vmap(policy)(state.obs), schedules.at(self.delta, step)

        def once(
            carry: tuple[parameter_noise.Scale, Array], key: Array
        ) -> tuple[tuple[parameter_noise.Scale, Array], None]:
            scale, _ = carry
            probe = parameter_noise.displace(
                policy, parameter_noise.spherical_noise(key, policy, scale.sigma, self._where(policy))
            )
            distance = policy.distance(clean, jax.vmap(probe)(state.obs))
            return (parameter_noise.adapt(scale, distance, delta, self.alpha), distance), None

        keys = jax.random.split(key, obs.shape[0] // self.adapt_every)
        (scale, distance), _ = jax.lax.scan(once, (state.scale, state.distance), keys)
        return state._replace(scale=scale, distance=distance)

    def offsets(self, state: OnPolicyNoiseState) -> Array:
        return state.offsets

    def report(self, state: OnPolicyNoiseState, step: Array) -> dict[str, Array]:
        return {
            "sigma": state.scale.sigma,
            "distance": state.distance,
            "delta": schedules.at(self.delta, step),
            "adaptations": state.scale.adaptations,
            "noise_sampled": state.sampled,
            "noise_failed": state.failed,
        }

    def applying(self, actions: int, is_discrete: bool) -> dict[str, Any]:
        natural, adaptive = ("damping", "cg_steps", "shrinkage", "max_backtracks"), ("alpha", "adapt_every")
        absent = {*(natural if self.scaling == "adaptive" else adaptive), *(["perturb_log_std"] * is_discrete)}
        return {name: value for name, value in super().applying(actions, is_discrete).items() if name not in absent}

    def _where(self, policy: Policy) -> Where | None:
        if not self.perturb_log_std:
            return None
        marked = jax.tree_util.tree_leaves_with_path(parameter_noise.selected(policy))
        chosen = {"log_std", *(jax.tree_util.keystr(path, simple=True, separator="/") for path, take in marked if take)}
        return lambda path, leaf: path in chosen
