"""DDPG compiles while it warms up, and never again."""

import gymnasium as gym

from paramnoise.agents import DDPGConfig
from paramnoise.explorations import ParameterNoise
from paramnoise.loops import sharing
from paramnoise.runs.config import RunConfig
from paramnoise.runs.loop import make_loop


def test_ddpg_compiles_nothing_after_warm_up(compiled, monkeypatch):
    monkeypatch.setattr(sharing, "_shared", {})  # what other tests compiled does not count
    # The settings of `test_api_ddpg.py`: XLA's work is found in the cache on disk.
    agent = DDPGConfig(hidden_sizes=(8, 8), batch_size=8, buffer_size=150, train_every=40, train_steps=3)
    config = RunConfig(algorithm="ddpg", env="Pendulum-v1", agent=agent, exploration=ParameterNoise(), num_envs=2)
    loop = make_loop([config], lambda: gym.make("Pendulum-v1", max_episode_steps=9))
    rows = [*loop.run(80, eval_every=80, eval_episodes=2)]
    assert compiled  # warm-up: one cycle, one evaluation, an episode's end
    compiled.clear()
    rows += loop.run(800, eval_every=104, eval_episodes=2)  # evaluations within a cycle, and at its end
    loop.snapshot()
    assert not compiled
    assert len(rows) == 1 + 8
    assert rows[-1][0]["episodes"] > 10
