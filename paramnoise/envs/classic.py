"""Gymnasium's classic tasks: presets that are not the paper's, chosen by noise-free returns over several seeds."""

from paramnoise.envs.base import AgentPreset, Preset, register_env

_ENDS_LOW = {"parameter": {"epsilon_end": 0.02}, "epsilon-greedy": {"epsilon_end": 0.02}}
register_env(
    "CartPole-v1",
    preset=Preset(
        agents={
            "dqn": AgentPreset(settings={"buffer_size": 10_000, "double_q": True}, explorations=_ENDS_LOW),
            "bootstrapped-dqn": AgentPreset(settings={"buffer_size": 10_000}, explorations=_ENDS_LOW),
        },
        run={"steps": 50_000, "eval_every": 5_000},
    ),
    group="Gymnasium's, with a preset of ours",
)
