"""Exploration by parameter space noise (Plappert et al., ICLR 2018)."""

from paramnoise import noise, schedules
from paramnoise.agents.base import Learner, Spaces, register_agent
from paramnoise.api import DDPG, DQN, ES, TRPO, Agent, BootstrappedDQN, Evaluation, agent_class, load
from paramnoise.callbacks import Callback
from paramnoise.envs.base import AgentPreset, Preset, ReturnBounds, register_env
from paramnoise.explorations import (
    BootstrapHead,
    EpsilonGreedy,
    Exploration,
    Gaussian,
    NoNoise,
    OnPolicyParameterNoise,
    OrnsteinUhlenbeck,
    ParameterNoise,
)
from paramnoise.explorations.base import register_exploration
from paramnoise.figures.base import register_figure
from paramnoise.loops.frames import FrameStack
from paramnoise.networks.own import register_network, register_optimizer
from paramnoise.plugins import load_known_plugins
from paramnoise.validation import UsageError

__version__ = "0.2.0"

__all__ = [
    "DDPG",
    "DQN",
    "ES",
    "TRPO",
    "Agent",
    "AgentPreset",
    "BootstrapHead",
    "BootstrappedDQN",
    "Callback",
    "EpsilonGreedy",
    "Evaluation",
    "Exploration",
    "FrameStack",
    "Gaussian",
    "Learner",
    "NoNoise",
    "OnPolicyParameterNoise",
    "OrnsteinUhlenbeck",
    "ParameterNoise",
    "Preset",
    "ReturnBounds",
    "Spaces",
    "UsageError",
    "agent_class",
    "load",
    "noise",
    "register_agent",
    "register_env",
    "register_exploration",
    "register_figure",
    "register_network",
    "register_optimizer",
    "schedules",
]

load_known_plugins()  # last, so that a plug-in can use all of the above
