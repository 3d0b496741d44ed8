"""Pixel loops from configs."""

from collections.abc import Mapping, Sequence
from typing import Any

from paramnoise.agents import dqn
from paramnoise.agents.dqn import DQNConfig
from paramnoise.envs.atari import atari_frames, is_atari
from paramnoise.envs.factory import EnvLike, pixel_env_factory, shows_images
from paramnoise.envs.frames import STACK, GymFrames
from paramnoise.training.config import RunConfig
from paramnoise.training.pixel import MakeEnvs, PixelLoop
from paramnoise.training.pixel_member import PixelMember
from paramnoise.validation import UsageError


def shows_pixels(env: EnvLike, env_kwargs: Mapping[str, Any] | None) -> bool:
    """Whether an environment is an Atari game, or shows uint8 images."""
    if isinstance(env, str) and is_atari(env):
        return True
    probe = pixel_env_factory(env, env_kwargs)()
    space = probe.observation_space
    probe.close()
    return shows_images(space)


def pixel_members(configs: Sequence[RunConfig], env: EnvLike) -> list[PixelMember]:
    """The loops of configs that differ in their seeds alone: one that trains them side by side, seen by each."""
    config = configs[0]
    if not isinstance(config.agent, DQNConfig):
        raise UsageError(
            f"{config.env} shows pixels, which {config.algorithm} does not take: "
            "only dqn does, and es with one seed at a time"
        )
    make_envs = frame_envs(env, config.env_kwargs)
    probe = make_envs([0], 1, False)
    learner = dqn.make(config.agent, (STACK, *probe.frame_shape), probe.num_actions)
    probe.close()
    loop = PixelLoop(
        learner,
        config.exploration,
        make_envs,
        seeds=[each.seed for each in configs],
        num_envs=config.num_envs,
        eval_max_steps=config.eval_max_steps,
        log_every=config.log_every,
        replay_on=config.replay_on,
    )
    return [PixelMember(loop, member, save_replay=config.save_replay) for member in range(len(configs))]


def frame_envs(env: EnvLike, env_kwargs: Mapping[str, Any]) -> MakeEnvs:
    """A function that makes an environment's vectors of frames, for training or for scores."""
    if isinstance(env, str) and is_atari(env):
        return lambda seeds, num_envs, trains: atari_frames(env, num_envs, seeds, env_kwargs, trains=trains)
    make_env = pixel_env_factory(env, env_kwargs if isinstance(env, str) else None)
    return lambda seeds, num_envs, trains: GymFrames(make_env, num_envs, seeds)
