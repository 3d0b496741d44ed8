"""Exploration by an ensemble: one of its heads acts for a whole episode (Osband et al. 2016)."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from paramnoise.explorations.base import Exploration, register_exploration
from paramnoise.networks.policies import Policy, VotingPolicy


@register_exploration("bootstrap")
@dataclasses.dataclass(frozen=True, kw_only=True)
class BootstrapHead(Exploration):
    """One head of an ensemble acts for a whole episode."""

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
