"""Networks and policies: Equinox modules whose leaves are all arrays."""

from paramnoise.networks.heads import Actor, BootstrappedQNetwork, Critic, PixelPolicyNetwork, PixelQNetwork, QNetwork
from paramnoise.networks.mlp import MLP, DuelingMLP

__all__ = [
    "MLP",
    "Actor",
    "BootstrappedQNetwork",
    "Critic",
    "DuelingMLP",
    "PixelPolicyNetwork",
    "PixelQNetwork",
    "QNetwork",
]
