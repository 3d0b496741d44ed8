"""Policies with layer norm, and what surrounds a policy: images, Dict observations, goals, normalised observations."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from models import ALGORITHMS, make
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv, FakeImageEnv, SimpleMultiObsEnv
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from paramnoise import sb3
from paramnoise.sb3 import ParameterNoise

pytestmark = pytest.mark.sb3


def layouts(module: nn.Module) -> list[list[str]]:
    """The layers of every sequence with a linear one, by type."""
    sequences = [[*part] for part in module.modules() if isinstance(part, nn.Sequential)]
    found = [[type(layer).__name__ for layer in part] for part in sequences]
    return [names for names in found if "Linear" in names]


HIDDEN = ["Linear", "LayerNorm", "ReLU"] * 2


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_hidden_layer_has_layer_norm_before_its_nonlinearity_and_the_output_has_none(name: str):
    policy = make(name).policy
    output = {"DQN": ["Linear"], "QRDQN": ["Linear"], "DDPG": ["Linear", "Tanh"], "TD3": ["Linear", "Tanh"]}
    if name in ("DQN", "QRDQN"):
        assert layouts(policy) == [[*HIDDEN, "Linear"]] * 2  # and the target
        return
    assert layouts(policy.actor) == [[*HIDDEN, *output.get(name, [])]]
    critics = layouts(policy.critic)
    assert critics == layouts(policy.critic_target) == [[*HIDDEN, "Linear"]] * len(critics)
    obs, action = torch.zeros(1, 3), torch.zeros(1, 1)
    policy.critic.qf0[0].weight.data.fill_(3.0)
    before = policy.critic(obs, action + 1)[0]
    policy.critic.qf0[-1].bias.data += 1
    assert not torch.equal(before, policy.critic(obs, action + 1)[0])  # what is called is what is registered


@pytest.mark.parametrize("name", ["DDPG", "TD3"])
def test_actions_and_values_of_ddpg_and_td3_begin_near_0_and_so_do_their_targets(name: str):
    policy = make(name).policy
    actors = (policy.actor.mu[-2], policy.actor_target.mu[-2])
    critics = [[network[-1] for network in each.q_networks] for each in (policy.critic, policy.critic_target)]
    for ours, target in [actors, *zip(*critics, strict=True)]:
        assert 1e-3 < ours.weight.abs().max() <= 3e-3
        assert ours.bias.abs().max() <= 3e-3
        assert torch.equal(ours.weight, target.weight)


def test_policy_and_values_of_an_actor_critic_have_layer_norm():
    model = stable_baselines3.PPO(sb3.LayerNormActorCriticPolicy, "CartPole-v1", device="cpu")
    assert layouts(model.policy.mlp_extractor) == [["Linear", "LayerNorm", "Tanh"] * 2] * 2


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_policy_with_layer_norm_is_saved_and_loaded(name: str, tmp_path: Any):
    model = make(name).learn(80)
    model.save(tmp_path / "model")
    obs = model.get_env().reset()
    loaded = type(model).load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])


class Images(FakeImageEnv):
    """Images that differ from step to step, of a size that a small test can do."""

    def __init__(self, discrete: bool):
        super().__init__(screen_height=36, screen_width=36, n_channels=1, discrete=discrete)


@pytest.mark.parametrize("algorithm", [stable_baselines3.DQN, stable_baselines3.TD3, sb3.PPO])
def test_images_work(algorithm: Any):
    is_ppo = algorithm is sb3.PPO
    policy = {stable_baselines3.DQN: sb3.LayerNormDQNPolicy, stable_baselines3.TD3: sb3.LayerNormTD3Policy}
    settings = (
        {"n_steps": 16, "batch_size": 16} if is_ppo else {"learning_starts": 16, "buffer_size": 64, "batch_size": 4}
    )
    kwargs = {"features_extractor_class": sb3.LayerNormCNN, "features_extractor_kwargs": {"features_dim": 16}}
    model = algorithm(
        policy.get(algorithm, sb3.LayerNormActorCriticPolicy),
        Images(discrete=algorithm is not stable_baselines3.TD3),
        policy_kwargs={**kwargs, "net_arch": [8]},
        device="cpu",
        **settings,
    )
    model.learn(40, callback=None if is_ppo else ParameterNoise(adapt_every=5))
    assert model.parameter_noise.sigma > 0


@pytest.mark.parametrize("algorithm", [stable_baselines3.DQN, sb3.PPO])
def test_dict_observations_work(algorithm: Any):
    is_ppo = algorithm is sb3.PPO
    on_policy = {"policy": sb3.LayerNormActorCriticPolicy, "n_steps": 16, "batch_size": 16, "adapt_every": 5}
    off_policy = {"policy": sb3.LayerNormDQNPolicy, "learning_starts": 16, "buffer_size": 64, "batch_size": 4}
    model = algorithm(
        env=SimpleMultiObsEnv(random_start=False),
        policy_kwargs={"features_extractor_class": CombinedExtractor, "net_arch": [8]},
        device="cpu",
        **(on_policy if is_ppo else off_policy),
    )
    model.learn(40, callback=None if is_ppo else ParameterNoise(adapt_every=5))
    assert model.parameter_noise.adaptations > 2
    assert model.parameter_noise.distance > 0


@pytest.mark.parametrize("num_envs", [1, 2])
def test_hindsight_replay_works(num_envs: int):
    env = stable_baselines3.common.env_util.make_vec_env(lambda: BitFlippingEnv(4, continuous=True), num_envs)
    model = stable_baselines3.SAC(
        sb3.LayerNormSACPolicy,
        env,
        replay_buffer_class=HerReplayBuffer,
        policy_kwargs={"features_extractor_class": CombinedExtractor, "net_arch": [8]},
        learning_starts=30,
        buffer_size=200,
        batch_size=8,
        device="cpu",
    )
    model.learn(60, callback=ParameterNoise(adapt_every=5))
    assert model.parameter_noise.adaptations > 4
    assert model.parameter_noise.distance > 0


def test_the_distance_is_measured_on_normalised_observations(monkeypatch: pytest.MonkeyPatch):
    model = make("TD3", learning_starts=10_000)
    model.set_env(VecNormalize(model.get_env(), norm_reward=False))
    noise, seen = ParameterNoise(adapt_every=100, sigma=0.1), []
    kind = sb3.callback.KINDS[stable_baselines3.TD3]
    outputs = lambda network, obs: (seen.append(obs), kind.outputs(network, obs))[1]  # noqa: E731
    monkeypatch.setitem(sb3.callback.KINDS, stable_baselines3.TD3, kind._replace(outputs=outputs))
    model.learn(100, callback=noise)
    stored = model.replay_buffer.observations[:100, 0]
    normalised = model.get_vec_normalize_env().normalize_obs(stored)
    assert len(seen) == 2
    assert all(np.abs(normalised - row.numpy()).sum(1).min() < 1e-5 for row in seen[0])
    assert not np.allclose(normalised, stored, atol=0.1)


def test_discrete_observations_work():
    env = gym.make("Taxi-v3") if "Taxi-v3" in gym.registry else gym.make("Taxi-v4")
    model = stable_baselines3.DQN(sb3.LayerNormDQNPolicy, env, learning_starts=16, buffer_size=64, device="cpu")
    model.learn(40, callback=ParameterNoise(adapt_every=5))
    assert model.parameter_noise.distance > 0
