"""What a run takes of this machine: programs kept from before, threads, devices."""

import dataclasses

import jax

from paramnoise.envs import EnvLike
from paramnoise.envs.atari_games import is_atari
from paramnoise.parallel.process import cores, use_compilation_cache, use_one_thread
from paramnoise.runs.config import RunConfig

LARGE_PRODUCT = 2**23
"""Multiplications of a layer's product, units x units x batch, from which XLA may have all threads: 256-256 with
batches of 256 is above it, 64-64 with batches of 128 below."""


def set_up_process(config: RunConfig, env: EnvLike) -> None:
    """Keeps compiled programs for the next process, and gives XLA one thread where networks are small or cores few.

    Both only where JAX was not told otherwise; the second only if JAX has not computed anything yet.
    """
    use_compilation_cache()
    shape = getattr(getattr(env, "observation_space", None), "shape", None) or ()
    is_small = not (is_atari(config.env) or len(shape) == 3 or _has_large_products(config))
    if config.made_by.experience == "returns" or is_small or cores() == 1:
        use_one_thread()  # workers are how a population uses more cores; and threads that share one core wait in turn


def _has_large_products(config: RunConfig) -> bool:
    """Whether a train step from replay multiplies matrices that are worth more than one thread."""
    units, batch = max(getattr(config.agent, "hidden_sizes", ()), default=0), getattr(config.agent, "batch_size", 0)
    return config.made_by.experience == "replay" and units * units * batch >= LARGE_PRODUCT


def fitting_here(config: RunConfig) -> RunConfig:
    """A stored config as this machine can go on with it: on one device, if it has fewer than the run was on."""
    if config.devices == 1 or config.devices <= len(jax.local_devices()):
        return config
    return dataclasses.replace(config, devices=1)
