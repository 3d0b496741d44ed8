"""Exploration by parameter space noise (Plappert et al., ICLR 2018)."""

from paramnoise import noise
from paramnoise.api import DDPG, DQN, ES, TRPO, Agent, BootstrappedDQN, Evaluation, load
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
from paramnoise.validation import UsageError

__version__ = "0.1.0"

__all__ = [
    "DDPG",
    "DQN",
    "ES",
    "TRPO",
    "Agent",
    "BootstrapHead",
    "BootstrappedDQN",
    "EpsilonGreedy",
    "Evaluation",
    "Exploration",
    "Gaussian",
    "NoNoise",
    "OnPolicyParameterNoise",
    "OrnsteinUhlenbeck",
    "ParameterNoise",
    "UsageError",
    "load",
    "noise",
]
