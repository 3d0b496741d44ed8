"""The objects that people use: agents that learn, predict, evaluate, save and load."""

from paramnoise.api.agent import (
    Agent,
    _from_files,  # noqa: F401  # pickles that were made when this package was a module name it here
    agent_class,
    load,
)
from paramnoise.api.classes import DDPG, DQN, ES, PPO, PQN, SAC, TD3, TRPO, BootstrappedDQN
from paramnoise.api.evaluation import Evaluation

__all__ = [
    "DDPG",
    "DQN",
    "ES",
    "PPO",
    "PQN",
    "SAC",
    "TD3",
    "TRPO",
    "Agent",
    "BootstrappedDQN",
    "Evaluation",
    "agent_class",
    "load",
]
