"""Small models of every algorithm of Stable-Baselines3 that the noise is for, on environments that are made at once."""

from typing import Any

import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env

from paramnoise import sb3

ALGORITHMS: dict[str, tuple[type[BaseAlgorithm], type, str]] = {
    "DQN": (stable_baselines3.DQN, sb3.LayerNormDQNPolicy, "CartPole-v1"),
    "QRDQN": (sb3_contrib.QRDQN, sb3.LayerNormQRDQNPolicy, "CartPole-v1"),
    "DDPG": (stable_baselines3.DDPG, sb3.LayerNormTD3Policy, "Pendulum-v1"),
    "TD3": (stable_baselines3.TD3, sb3.LayerNormTD3Policy, "Pendulum-v1"),
    "SAC": (stable_baselines3.SAC, sb3.LayerNormSACPolicy, "Pendulum-v1"),
    "TQC": (sb3_contrib.TQC, sb3.LayerNormTQCPolicy, "Pendulum-v1"),
}
"""Each with its policy and an environment, all that the callback is for."""
NETWORKS = {"DQN": "q_net", "QRDQN": "quantile_net"}
"""What acts, by algorithm; an actor in the others."""


def make(name: str, num_envs: int = 1, env: str | None = None, **settings: Any) -> Any:
    """A small model that learns from its 65th step on."""
    algorithm, policy, usual = ALGORITHMS[name]
    envs = make_vec_env(env or usual, num_envs, seed=0)
    own = {"learning_starts": 64, "buffer_size": 3_000, "batch_size": 16, "train_freq": 4, "seed": 0, "device": "cpu"}
    own["policy_kwargs"] = {"net_arch": [16, 16]}  # a new one each time: Stable-Baselines3 writes into it
    if name == "QRDQN":
        own["policy_kwargs"]["n_quantiles"] = 10
    if name in NETWORKS:
        own.update(exploration_fraction=0.5, target_update_interval=200)
    return algorithm(settings.pop("policy", policy), envs, **{**own, **settings})


def acting_network(model: Any) -> torch.nn.Module:
    """The network that is perturbed."""
    names = {algorithm: network for name, network in NETWORKS.items() for algorithm in [ALGORITHMS[name][0]]}
    return getattr(model.policy, names.get(type(model), "actor"))


def weights(model: Any) -> dict[str, np.ndarray]:
    """All that a model has learned, targets included."""
    return {name: tensor.detach().numpy().copy() for name, tensor in model.policy.state_dict().items()}
