"""A batch as a policy with an offset for each segment could have met it: no environment, two rows of episodes."""

import numpy as np
from jax.flatten_util import ravel_pytree

from paramnoise.experience.rollout import Rollout
from paramnoise.networks.policies import CategoricalPolicy

ENVS, STEPS, LENGTH = 2, 50, 15  # episodes of 15 steps: 4 segments in each environment
SEGMENTS = np.concatenate([np.arange(STEPS) // LENGTH, 4 + np.arange(STEPS) // LENGTH])


def handmade(policy, sigma=0.3, obs_scale=1.0):
    """Observations of three numbers and two actions, or two dimensions of one; rewards favour the first action."""
    rng = np.random.default_rng(0)
    obs = obs_scale * rng.normal(size=(ENVS, STEPS, 3)).astype(np.float32)
    size = ravel_pytree(policy)[0].size
    discrete = isinstance(policy, CategoricalPolicy)
    action = rng.integers(0, 2, (ENVS, STEPS)) if discrete else rng.normal(size=(ENVS, STEPS, 2)).astype(np.float32)
    ends = np.tile(np.arange(STEPS) % LENGTH == LENGTH - 1, (ENVS, 1))
    return Rollout(
        obs=obs,
        action=action,
        reward=(action if discrete else action[..., 0]).astype(np.float32),
        next_obs=obs,
        terminated=ends,
        truncated=np.zeros_like(ends),
        time=np.tile(np.arange(STEPS) % LENGTH, (ENVS, 1)),
        segment=SEGMENTS.reshape(ENVS, STEPS),
        offsets=(sigma * rng.normal(size=(10, size))).astype(np.float32),
    )
