"""Exploration by noisy layers (NoisyNet, Fortunato et al. 2018): the network itself learns how much noise it needs."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
from jax import Array

from paramnoise.explorations.base import Exploration, register_exploration
from paramnoise.networks.noisy import draw_noise, noise_scale
from paramnoise.networks.policies import GreedyPolicy, Policy
from paramnoise.validation import UsageError


@register_exploration("noisy")
@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyNet(Exploration):
    """The noise of the network's own noisy layers, drawn anew for each action of each environment.

    How much there is, is learned: it is no setting of the exploration but of the agent, `noisy_sigma`.
    """

    policies: ClassVar[tuple[type, ...]] = (GreedyPolicy,)
    agent_settings: ClassVar[Mapping[str, Any]] = {"noisy_sigma": 0.5}

    def init(self, policy: Policy, obs: Array) -> tuple[()]:
        if noise_scale(policy) is None:
            raise UsageError("exploration 'noisy' needs noisy layers: give the agent a noisy_sigma, such as 0.5")
        return ()

    def act(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        values = jax.vmap(lambda own, o: draw_noise(own, policy)(o))(jax.random.split(key, obs.shape[0]), obs)
        return state, jax.vmap(policy.greedy)(values)
