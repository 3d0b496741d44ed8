"""Explorations: how a policy becomes behaviour. One file per strategy; each registers its name where it is defined."""

from paramnoise.explorations.action_noise import Gaussian, OrnsteinUhlenbeck
from paramnoise.explorations.base import Exploration, NoNoise, register_exploration
from paramnoise.explorations.bootstrap import BootstrapHead
from paramnoise.explorations.epsilon_greedy import EpsilonGreedy
from paramnoise.explorations.gsde import StateDraws, StateNoise
from paramnoise.explorations.noisy import NoisyNet
from paramnoise.explorations.on_policy import OnPolicyParameterNoise
from paramnoise.explorations.parameter import ParameterNoise
from paramnoise.explorations.pink import ColouredDraws, ColouredNoise

__all__ = [
    "BootstrapHead",
    "ColouredDraws",
    "ColouredNoise",
    "EpsilonGreedy",
    "Exploration",
    "Gaussian",
    "NoNoise",
    "NoisyNet",
    "OnPolicyParameterNoise",
    "OrnsteinUhlenbeck",
    "ParameterNoise",
    "StateDraws",
    "StateNoise",
    "register_exploration",
]
