"""Environments: ours under Gymnasium ids, and how any Gymnasium environment is made ready for the agents."""

import gymnasium as gym

from paramnoise.envs.atari import AtariFrames, is_atari
from paramnoise.envs.chain import ChainEnv, chain
from paramnoise.envs.factory import (
    EnvLike,
    env_factory,
    env_name,
    environment_actions,
    known_kwargs,
    pixel_env_factory,
    unflattened_space,
)
from paramnoise.envs.frames import FrameEnvs, FrameStep, GymFrames
from paramnoise.envs.jax_env import JaxEnv, JaxStep
from paramnoise.envs.stacks import stack_env_factory
from paramnoise.envs.tasks import OURS, env_id
from paramnoise.envs.vector import VectorEnv

SPARSE_HORIZON = 500
"""Steps of an episode of the sparse tasks (sec. 4.2)."""

_ENTRY_POINTS = {
    "SparseCartpoleSwingup": "sparse_box2d:SparseCartpoleSwingupEnv",
    "SparseDoublePendulum": "sparse_box2d:SparseDoublePendulumEnv",
    "SparseMountainCar": "sparse_box2d:SparseMountainCarEnv",
    "SparseHalfCheetah": "sparse_mujoco:SparseHalfCheetahEnv",
    "SwimmerGather": "swimmer_gather:SwimmerGatherEnv",
}

if "paramnoise/Chain-v0" not in gym.registry:
    gym.register("paramnoise/Chain-v0", entry_point="paramnoise.envs.chain:ChainEnv")
    for _name, _place in _ENTRY_POINTS.items():
        gym.register(
            f"paramnoise/{_name}-v0", entry_point=f"paramnoise.envs.{_place}", max_episode_steps=SPARSE_HORIZON
        )

__all__ = [
    "OURS",
    "AtariFrames",
    "ChainEnv",
    "EnvLike",
    "FrameEnvs",
    "FrameStep",
    "GymFrames",
    "JaxEnv",
    "JaxStep",
    "VectorEnv",
    "chain",
    "env_factory",
    "env_id",
    "env_name",
    "environment_actions",
    "is_atari",
    "known_kwargs",
    "pixel_env_factory",
    "stack_env_factory",
    "unflattened_space",
]
