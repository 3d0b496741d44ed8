"""Gymnasium's tasks that people try first: presets of ours; docs/presets.md has what they come to over seeds.

Within a task an agent has the same settings whatever explores; only the explorations' own differ.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from paramnoise.envs.base import AgentPreset, Preset, register_env
from paramnoise.networks.mlp import MLP
from paramnoise.networks.own import register_network

GROUP = "Gymnasium's, with a preset of ours"
NEEDS_BOX2D = "needs the extra box2d"
_ENDS_LOW = {"parameter": {"epsilon_end": 0.02}, "epsilon-greedy": {"epsilon_end": 0.02}}


class ScaledMLP(eqx.Module):
    """Two hidden layers of 64 that see observations less `centre`, over `scale`; the two are fixed, not learned."""

    network: MLP
    centre: tuple[float, ...] = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, centre: tuple[float, ...], scale: tuple[float, ...], outputs: int, key: Array):
        """Makes the network for as many observations as there are numbers to scale."""
        self.network = MLP((len(scale), 64, 64, outputs), key=key)
        self.centre, self.scale = centre, scale

    def __call__(self, obs: Array) -> Array:
        """The outputs for one observation."""
        return self.network((obs - jnp.array(self.centre)) / jnp.array(self.scale))


@register_network("mountain-car")
def mountain_car_network(observation_shape: tuple[int, ...], outputs: int, key: Array) -> ScaledMLP:
    """Q values of MountainCar from its position and velocity, both of about 1.

    As they are, the velocity is at most 0.07: of 1,024 policies drawn around fresh networks of such observations none
    reaches the goal, whatever the noise; if they are scaled, 2 to 8 in 100 do.
    """
    return ScaledMLP((-0.5, 0.0), (0.3, 0.03), outputs, key)


@register_network("acrobot")
def acrobot_network(observation_shape: tuple[int, ...], outputs: int, key: Array) -> ScaledMLP:
    """Q values of Acrobot from sines and cosines as they are and angular velocities of about 1, which are up to 28."""
    return ScaledMLP((0.0,) * 6, (1.0, 1.0, 1.0, 1.0, 3.0, 6.0), outputs, key)


register_env(
    "CartPole-v1",
    preset=Preset(
        agents={
            "dqn": AgentPreset(
                settings={"learning_rate": "linear:5e-4:1e-5:49000", "buffer_size": 20_000, "double_q": True},
                explorations=_ENDS_LOW,
            ),
            "bootstrapped-dqn": AgentPreset(settings={"buffer_size": 10_000}, explorations=_ENDS_LOW),
            "ppo": AgentPreset(
                settings={
                    "learning_rate": "linear:1e-3:1e-5:7800",  # over all train steps: 195 batches, 40 of each
                    "batch_size": 256,
                    "gamma": 0.98,
                    "gae_lambda": 0.9,
                },
            ),
            "pqn": AgentPreset(
                settings={
                    "hidden_sizes": (64, 64),
                    "learning_rate": "linear:1e-3:1e-5:6000",  # of 6,240 train steps: 195 batches, 32 of each
                    "q_lambda": 0.9,
                    "epochs": 4,
                },
                explorations={
                    "parameter": {"epsilon_end": 0.05, "anneal_steps": 50_000},
                    "epsilon-greedy": {"epsilon_end": 0.05, "anneal_steps": 50_000},
                },
                run={"steps": 200_000, "num_envs": 32, "eval_every": 20_000},
            ),
        },
        run={"steps": 50_000, "num_envs": 4, "eval_every": 5_000},
    ),
    group=GROUP,
)
register_env(
    "Pendulum-v1",
    preset=Preset(
        agents={
            "ddpg": AgentPreset(
                settings={
                    "actor_learning_rate": "linear:1e-3:1e-5:18000",
                    "critic_learning_rate": "linear:1e-3:1e-5:18000",
                    "critic_l2": 0.0,
                    "tau": 0.005,
                    "gamma": 0.98,
                    "learning_starts": 2_000,  # with fewer steps to learn from, the actor may end at a bound for good
                    "train_every": 64,
                    "train_steps": 64,
                },
                explorations={
                    "parameter": {"delta": 0.2},
                    "gaussian": {"sigma": 0.2},
                    "pink": {"horizon": 200},
                },
            ),
            "td3": AgentPreset(
                settings={"gamma": 0.98},
                explorations={
                    "parameter": {"delta": 0.2},
                    "gaussian": {"sigma": 0.2},
                    "pink": {"horizon": 200},
                },
            ),
            "sac": AgentPreset(
                settings={"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "gamma": 0.98},
                explorations={"parameter": {"delta": 0.2}, "pink": {"horizon": 200}},
            ),
        },
        run={"steps": 20_000, "eval_every": 2_000},
    ),
    group=GROUP,
)
register_env(
    "MountainCarContinuous-v0",
    preset=Preset(
        agents={
            "ddpg": AgentPreset(
                settings={
                    "actor_learning_rate": 1e-3,
                    "batch_size": 64,
                    "critic_l2": 0.0,
                    "tau": 0.005,
                    "train_every": 64,
                    "train_steps": 64,
                },
                explorations={
                    "parameter": {"delta": 0.5, "adapt_every": 50},
                    "gaussian": {"sigma": 0.5},
                    "ou": {"sigma": 0.5},
                },
            )
        },
        run={"steps": 40_000, "num_envs": 4, "eval_every": 4_000},
    ),
    group=GROUP,
)


register_env(
    "MountainCar-v0",
    preset=Preset(
        agents={
            "dqn": AgentPreset(
                settings={
                    "network": "mountain-car",
                    "learning_rate": "linear:2e-3:2e-5:24000",
                    "buffer_size": 50_000,
                    "train_every": 4,
                    "target_every": 400,
                    "double_q": True,
                },
                explorations={
                    "parameter": {"epsilon_end": 0.05},
                    "epsilon-greedy": {"epsilon_end": 0.07, "anneal_steps": 20_000},
                },
            )
        },
        run={"steps": 100_000, "num_envs": 8, "eval_every": 10_000},
    ),
    group=GROUP,
)
register_env(
    "Acrobot-v1",
    preset=Preset(
        agents={
            "dqn": AgentPreset(
                settings={
                    "network": "acrobot",
                    "learning_rate": "linear:1e-3:1e-5:19000",
                    "buffer_size": 50_000,
                    "train_every": 4,
                    "target_every": 500,
                    "double_q": True,
                },
                explorations={
                    "parameter": {"epsilon_end": 0.05},
                    "epsilon-greedy": {"epsilon_end": 0.05},
                },
            )
        },
        run={"steps": 80_000, "num_envs": 8, "eval_every": 8_000},
    ),
    group=GROUP,
)
register_env(
    "LunarLander-v3",
    preset=Preset(
        agents={
            "dqn": AgentPreset(
                settings={
                    "hidden_sizes": (64, 64),
                    "learning_rate": "linear:1e-3:1e-5:49000",
                    "train_every": 4,
                    "target_every": 1_000,
                    "double_q": True,
                    "dueling": True,
                    "prioritized": True,
                    "n_step": 3,
                },
                explorations={"parameter": {"epsilon_end": 0.1}, "epsilon-greedy": {"epsilon_end": 0.05}},
            )
        },
        run={"steps": 200_000, "num_envs": 8, "eval_every": 20_000},
    ),
    group=GROUP,
    help=NEEDS_BOX2D,
)
for _env, _steps in (("LunarLanderContinuous-v3", 200_000), ("BipedalWalker-v3", 500_000)):
    register_env(
        _env,
        preset=Preset(
            agents={
                "td3": AgentPreset(
                    settings={"train_every": 8, "train_steps": 8},
                    explorations={"parameter": {"delta": 0.2}, "gaussian": {"sigma": 0.1}},
                )
            },
            run={"steps": _steps, "num_envs": 8, "eval_every": _steps // 10},
        ),
        group=GROUP,
        help=NEEDS_BOX2D,
    )
