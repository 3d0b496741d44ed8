"""Environments: ours under Gymnasium ids, and how any Gymnasium environment is made ready for the agents."""

import gymnasium as gym

from paramnoise.envs.chain import ChainEnv, chain
from paramnoise.envs.factory import (
    OURS,
    EnvLike,
    env_factory,
    env_name,
    environment_actions,
    known_kwargs,
    unflattened_space,
)
from paramnoise.envs.jax_env import JaxEnv, JaxStep
from paramnoise.envs.vector import VectorEnv

if "paramnoise/Chain-v0" not in gym.registry:
    gym.register("paramnoise/Chain-v0", entry_point="paramnoise.envs.chain:ChainEnv")

__all__ = [
    "OURS",
    "ChainEnv",
    "EnvLike",
    "JaxEnv",
    "JaxStep",
    "VectorEnv",
    "chain",
    "env_factory",
    "env_name",
    "environment_actions",
    "known_kwargs",
    "unflattened_space",
]
