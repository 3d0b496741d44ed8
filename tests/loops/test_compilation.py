"""DDPG compiles while it warms up, and never again."""

import gymnasium as gym

from paramnoise.agents import DDPGConfig
from paramnoise.explorations import ParameterNoise
from paramnoise.runs.config import RunConfig
from paramnoise.runs.run import make_loop


def test_ddpg_compiles_nothing_after_warm_up(compiled):
    agent = DDPGConfig(hidden_sizes=(8, 8), batch_size=4, buffer_size=64, train_every=10, train_steps=3)
    noise = ParameterNoise(adapt_every=7)
    config = RunConfig(algorithm="ddpg", env="Pendulum-v1", agent=agent, exploration=noise, num_envs=2)
    loop = make_loop([config], lambda: gym.make("Pendulum-v1", max_episode_steps=9))
    rows = [*loop.run(20, eval_every=20, eval_episodes=2)]
    assert compiled  # warm-up: one cycle, one evaluation, an episode's end
    compiled.clear()
    rows += loop.run(200, eval_every=26, eval_episodes=2)  # evaluations within a cycle, and at its end
    loop.snapshot()
    assert not compiled
    assert len(rows) == 1 + 8
    assert rows[-1][0]["episodes"] > 10
