"""The agents: one file each, with a frozen config and a `make` that is registered where it is defined."""

from paramnoise.agents.base import AGENTS, AgentEntry, Learner, Spaces, find_agent, register_agent
from paramnoise.agents.bootstrapped_dqn import BootstrappedDQNConfig
from paramnoise.agents.ddpg import DDPGConfig
from paramnoise.agents.dqn import DQNConfig
from paramnoise.agents.es import ESConfig
from paramnoise.agents.ppo import PPOConfig
from paramnoise.agents.pqn import PQNConfig
from paramnoise.agents.sac import SACConfig
from paramnoise.agents.td3 import TD3Config
from paramnoise.agents.trpo import TRPOConfig

__all__ = [
    "AGENTS",
    "AgentEntry",
    "BootstrappedDQNConfig",
    "DDPGConfig",
    "DQNConfig",
    "ESConfig",
    "Learner",
    "PPOConfig",
    "PQNConfig",
    "SACConfig",
    "Spaces",
    "TD3Config",
    "TRPOConfig",
    "find_agent",
    "register_agent",
]
