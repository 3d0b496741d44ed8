"""Policies with layer norm for the algorithms of Stable-Baselines3, which has none.

One scale of the noise must suit every layer of a network, and layer norm between a linear layer and its nonlinearity
makes it do so (sec. 3). Each class here is Stable-Baselines3's own policy of that algorithm, with its arguments, and
layer norm in its hidden layers; for images give it `LayerNormCNN` and for Dict observations `CombinedExtractor` as
`policy_kwargs=dict(features_extractor_class=...)`.
"""

from typing import Any

import gymnasium as gym
from sb3_contrib.qrdqn.policies import QRDQNPolicy, QuantileNetwork
from sb3_contrib.tqc.policies import Critic as QuantileCritic
from sb3_contrib.tqc.policies import TQCPolicy
from stable_baselines3.common.policies import ActorCriticPolicy, ContinuousCritic
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import nn

OUTPUT_RANGE = 3e-3
"""Of the first outputs of DDPG's actor and critics (app. A.2)."""


class LayerNormDQNPolicy(DQNPolicy):
    """DQN's policy, with layer norm."""

    def make_q_net(self) -> QNetwork:
        """A Q network: this one, or its target."""
        made = super().make_q_net()
        made.q_net = _with_layer_norm(made.q_net, has_output=True)
        return made


class LayerNormQRDQNPolicy(QRDQNPolicy):
    """QR-DQN's policy, with layer norm."""

    def make_quantile_net(self) -> QuantileNetwork:
        """A quantile network: this one, or its target."""
        made = super().make_quantile_net()
        made.quantile_net = _with_layer_norm(made.quantile_net, has_output=True)
        return made


class LayerNormTD3Policy(TD3Policy):
    """The policy of TD3 and DDPG, with layer norm in actor and critics, whose outputs begin near 0 (app. A.2).

    With PyTorch's own output layers the critic has a slope before there is any reward, and the actor soon follows it to
    the same extreme action in every state, which noise of a fixed distance hardly moves.
    """

    def make_actor(self, *args: Any, **kwargs: Any) -> Any:
        """An actor: this one, or its target."""
        made = super().make_actor(*args, **kwargs)
        made.mu = _begin_near_0(_with_layer_norm(made.mu, has_output=True))
        return made

    def make_critic(self, *args: Any, **kwargs: Any) -> ContinuousCritic:
        """The critics: these, or their targets."""
        made = _normalise_critics(super().make_critic(*args, **kwargs))
        for critic in made.q_networks:
            _begin_near_0(critic)
        return made


class LayerNormSACPolicy(SACPolicy):
    """SAC's policy, with layer norm in actor and critics."""

    def make_actor(self, *args: Any, **kwargs: Any) -> Any:
        """The actor."""
        made = super().make_actor(*args, **kwargs)
        made.latent_pi = _with_layer_norm(made.latent_pi)
        return made

    def make_critic(self, *args: Any, **kwargs: Any) -> ContinuousCritic:
        """The critics: these, or their targets."""
        return _normalise_critics(super().make_critic(*args, **kwargs))


class LayerNormTQCPolicy(TQCPolicy):
    """TQC's policy, with layer norm in actor and critics."""

    def make_actor(self, *args: Any, **kwargs: Any) -> Any:
        """The actor."""
        made = super().make_actor(*args, **kwargs)
        made.latent_pi = _with_layer_norm(made.latent_pi)
        return made

    def make_critic(self, *args: Any, **kwargs: Any) -> QuantileCritic:
        """The critics: these, or their targets."""
        return _normalise_critics(super().make_critic(*args, **kwargs))


class LayerNormActorCriticPolicy(ActorCriticPolicy):
    """The policy of PPO and A2C, with layer norm in the network of the policy and that of the values."""

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        extractor = self.mlp_extractor
        extractor.policy_net = _with_layer_norm(extractor.policy_net)
        extractor.value_net = _with_layer_norm(extractor.value_net)


class LayerNormCNN(NatureCNN):
    """Stable-Baselines3's network for images, with layer norm after its linear layer."""

    linear: nn.Sequential

    def __init__(self, observation_space: gym.Space, features_dim: int = 512, normalized_image: bool = False):
        super().__init__(observation_space, features_dim, normalized_image)
        self.linear = _with_layer_norm(self.linear)


def _normalise_critics(critics: Any) -> Any:
    """Gives critics layer norm in their hidden layers."""
    for index, plain in enumerate(critics.q_networks):
        critics.q_networks[index] = _with_layer_norm(plain, has_output=True)
        setattr(critics, f"qf{index}", critics.q_networks[index])
    return critics


def _with_layer_norm(layers: nn.Sequential, has_output: bool = False) -> nn.Sequential:
    """The same layers, with layer norm after each linear one; the output, where there is one, is the last of them."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    hidden = linear[:-1] if has_output else linear
    normalised: list[nn.Module] = []
    for layer in layers:
        normalised.append(layer)
        if layer in hidden:
            normalised.append(nn.LayerNorm(layer.out_features, device=layer.weight.device))
    return nn.Sequential(*normalised)


def _begin_near_0(layers: nn.Sequential) -> nn.Sequential:
    """Draws the output layer anew, weights and biases within OUTPUT_RANGE of 0."""
    *_, output = (layer for layer in layers if isinstance(layer, nn.Linear))
    for tensor in output.parameters():
        nn.init.uniform_(tensor, -OUTPUT_RANGE, OUTPUT_RANGE)
    return layers
