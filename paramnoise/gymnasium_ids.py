"""The Gymnasium ids of our environments, known as soon as `paramnoise` is imported: neither JAX nor an engine is yet.

The families in `envs/` register the same with their help and presets; they are imported when one is made by its id.
"""

import gymnasium as gym

IDS: dict[str, tuple[str, int | None]] = {
    "paramnoise/Chain-v0": ("chain:ChainEnv", None),
    "paramnoise/SparseCartpoleSwingup-v0": ("sparse_box2d:SparseCartpoleSwingupEnv", 500),
    "paramnoise/SparseDoublePendulum-v0": ("sparse_box2d:SparseDoublePendulumEnv", 500),
    "paramnoise/SparseMountainCar-v0": ("sparse_box2d:SparseMountainCarEnv", 500),
    "paramnoise/SparseHalfCheetah-v0": ("sparse_mujoco:SparseHalfCheetahEnv", 500),
    "paramnoise/SwimmerGather-v0": ("swimmer_gather:SwimmerGatherEnv", 500),
}
"""Where each class is, below `envs/`, and the steps of an episode."""


def register_ids() -> None:
    """Makes the ids known to `gymnasium.make`."""
    for env_id, (place, steps) in IDS.items():
        gym.register(env_id, entry_point=f"paramnoise.envs.{place}", max_episode_steps=steps)
