"""What the benchmarks of agents measure. Libraries are imported where they are used: one per process."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from harness import Window

NEVER = 10**9


def ours(algorithm: str, env: str, exploration: str, agent: Mapping[str, Any], **run: Any) -> "Window":
    """Training by this package, without evaluations."""
    from paramnoise.runs.config import make_config
    from paramnoise.runs.loop import make_loop
    from paramnoise.runs.machine import set_up_process

    config = make_config(algorithm, env, exploration=exploration, agent=agent, **run)
    set_up_process(config, env)  # threads as `paramnoise train` has them
    return training(make_loop([config], env))


def training(loop: Any) -> "Window":
    """A host loop that trains, without evaluations, and waits until all is learned."""
    import jax

    def window(steps: int) -> int:
        first = loop.step
        stop_at = first + steps
        for _ in loop.run(NEVER, eval_every=NEVER, eval_episodes=1, should_stop=lambda: loop.step >= stop_at):
            pass
        jax.block_until_ready(loop.state())
        return loop.step - first

    return window


def peer(model: Any) -> "Window":
    """Training by an agent that has the face of Stable-Baselines3."""

    def window(steps: int) -> int:
        first = model.num_timesteps
        model.learn(steps, reset_num_timesteps=False)
        return model.num_timesteps - first

    return window


def gaussian(env: str, sigma: float) -> Any:
    """Gaussian noise on actions, for an agent that has the face of Stable-Baselines3."""
    import gymnasium as gym
    from stable_baselines3.common.noise import NormalActionNoise

    space: Any = gym.spec(env).make().action_space
    return NormalActionNoise(np.zeros(space.shape), np.full(space.shape, sigma))


def environment_alone(env: str) -> "Window":
    """Random actions and no agent: what an agent that costs nothing would reach."""
    import gymnasium as gym

    made = gym.make(env)
    space = made.action_space
    assert isinstance(space, gym.spaces.Box)
    made.reset(seed=0)
    actions = np.random.default_rng(0).uniform(space.low, space.high, (10_000, *space.shape)).astype(np.float32)

    def window(steps: int) -> int:
        for i in range(steps):
            *_, terminated, truncated, _ = made.step(actions[i % len(actions)])
            if terminated or truncated:
                made.reset()
        return steps

    return window
