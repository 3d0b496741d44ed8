"""The tasks by name: ours, the paper's, and the ids that names stand for."""

import re

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version

from paramnoise.envs.atari import is_atari

NAMESPACE = "paramnoise/"
OURS = {
    f"{NAMESPACE}Chain-v0": "the chain of the paper (app. A.3); length:N sets its number of states (default 20)",
    f"{NAMESPACE}SparseCartpoleSwingup-v0": "reward while the pole is up; needs the extra box2d",
    f"{NAMESPACE}SparseDoublePendulum-v0": "reward while the tip is near the top; needs the extra box2d",
    f"{NAMESPACE}SparseMountainCar-v0": "reward at the goal; vime_rule:true pays the left exit; needs the extra box2d",
    f"{NAMESPACE}SparseHalfCheetah-v0": "reward 5 units ahead; frame_skip:5 has longer steps; needs the extra mujoco",
    f"{NAMESPACE}SwimmerGather-v0": "apples and bombs; solid_walls:false lets the swimmer pass; needs the extra mujoco",
}
"""The environments of this package, with a line of help each."""
DENSE = (
    "HalfCheetah-v4",
    "Walker2d-v4",
    "Hopper-v4",
    "Swimmer-v4",
    "InvertedDoublePendulum-v4",
    "Reacher-v4",
    "InvertedPendulum-v4",
)
"""The paper's continuous tasks with dense rewards, in the versions that have its sizes."""
SPARSE = (
    f"{NAMESPACE}SwimmerGather-v0",
    f"{NAMESPACE}SparseHalfCheetah-v0",
    f"{NAMESPACE}SparseCartpoleSwingup-v0",
    f"{NAMESPACE}SparseDoublePendulum-v0",
    f"{NAMESPACE}SparseMountainCar-v0",
)


def short_name(env: str) -> str:
    """A task's name without namespace and version."""
    return re.sub(r"-v\d+$", "", env.rpartition("/")[2])


def env_id(name: str) -> str:
    """The id that a name stands for: that of a task of ours or of the paper's, else Gymnasium's newest version.

    An id, an Atari game, and what nobody knows are returned as they are.
    """
    if name in gym.registry or is_atari(name):
        return name
    for env in (*OURS, *DENSE):
        if name in (short_name(env), env.removeprefix(NAMESPACE)):
            return env
    namespace, _, bare = name.rpartition("/")
    newest = find_highest_version(namespace or None, bare)
    return name if newest is None else f"{name}-v{newest}"
