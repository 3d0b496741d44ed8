"""Parameter space noise for Stable-Baselines3 (the extra `sb3`), which dropped it.

`ParameterNoise` is a callback for DQN, QRDQN, DDPG, TD3, SAC and TQC; `PPO` and `A2C` are subclasses with the noise in
them; the policies have the layer norm that the method needs.
"""

from paramnoise.validation import require_extra

for _module in ("stable_baselines3", "sb3_contrib"):
    require_extra(_module, "sb3", "the classes of paramnoise.sb3")

from paramnoise.sb3.callback import ParameterNoise  # noqa: E402
from paramnoise.sb3.on_policy import A2C, PPO  # noqa: E402
from paramnoise.sb3.policies import (  # noqa: E402
    LayerNormActorCriticPolicy,
    LayerNormCNN,
    LayerNormDQNPolicy,
    LayerNormQRDQNPolicy,
    LayerNormSACPolicy,
    LayerNormTD3Policy,
    LayerNormTQCPolicy,
)

__all__ = [
    "A2C",
    "PPO",
    "LayerNormActorCriticPolicy",
    "LayerNormCNN",
    "LayerNormDQNPolicy",
    "LayerNormQRDQNPolicy",
    "LayerNormSACPolicy",
    "LayerNormTD3Policy",
    "LayerNormTQCPolicy",
    "ParameterNoise",
]
