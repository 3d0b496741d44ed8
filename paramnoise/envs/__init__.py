"""Environments: ours under Gymnasium ids, and how any Gymnasium environment is made ready for the agents.

One file per family; each registers its ids, its help lines and its presets where it defines them.
"""

from paramnoise.envs import atari, brax, chain, classic, continuous, gymnax
from paramnoise.envs.actions import environment_actions
from paramnoise.envs.base import (
    AgentPreset,
    EnvLike,
    Preset,
    ReturnBounds,
    env_id,
    env_name,
    preset,
    register_env,
    register_family,
)
from paramnoise.envs.factory import env_factory, env_source, known_kwargs
from paramnoise.envs.observations import agent_observations

__all__ = [
    "AgentPreset",
    "EnvLike",
    "Preset",
    "ReturnBounds",
    "agent_observations",
    "atari",
    "brax",
    "chain",
    "classic",
    "continuous",
    "env_factory",
    "env_id",
    "env_name",
    "env_source",
    "environment_actions",
    "gymnax",
    "known_kwargs",
    "preset",
    "register_env",
    "register_family",
]
