"""PPO: environment steps per second of ours and Stable-Baselines3's, training alike.

Run it with `make bench`. Both have two tanh networks of 64-64 units, for the policy and for the values, batches of
2,048 steps of one environment, 10 epochs of minibatches of 64, Adam, and gradients cut to a norm of 0.5. Hopper's early
episodes are short, so that parameter noise is drawn often; where they are long, as on HalfCheetah, it costs less
(`--env HalfCheetah-v4`).
"""

import dataclasses
from functools import partial
from typing import Any

import tyro
from contenders import environment_alone, ours, peer
from harness import Plan, Window, core_settings, measure, rate_table, ratio_table, show

BATCH = 2_048
SHARED: dict[str, Any] = {"learning_rate": 3e-4, "gamma": 0.99, "gae_lambda": 0.95, "max_grad_norm": 0.5}
OURS = {**SHARED, "hidden_sizes": (64, 64), "batch_size": BATCH, "minibatch_size": 64, "epochs": 10, "clip": 0.2}
PEER: dict[str, Any] = {
    **SHARED,
    "policy_kwargs": {"net_arch": {"pi": [64, 64], "vf": [64, 64]}},  # tanh is its default
    "n_steps": BATCH,
    "batch_size": 64,
    "n_epochs": 10,
    "clip_range": 0.2,
    "seed": 0,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Measures PPO against its peer."""

    env: str = "Hopper-v4"
    """The Gymnasium id of the task."""
    batches: int = 2
    """Batches of 2,048 environment steps in a window."""
    warm_up: int = 4
    """Batches before the first window."""
    repeats: int = 5
    """Windows of each contender."""


def stable_baselines3(env: str) -> Window:
    """PPO of Stable-Baselines3, on PyTorch."""
    from stable_baselines3 import PPO

    return peer(PPO("MlpPolicy", env, device="cpu", **PEER))


def main(settings: Settings) -> None:
    """Measures all contenders in turn, on all cores and on one, and prints rates and ratios."""
    contenders = {
        "ours, action noise alone": partial(ours, "ppo", settings.env, "none", OURS),
        "ours, parameter noise": partial(ours, "ppo", settings.env, "parameter", OURS),
        "Stable-Baselines3": partial(stable_baselines3, settings.env),
        "environment alone": partial(environment_alone, settings.env),
    }
    plan = Plan(settings.batches * BATCH, settings.warm_up * BATCH, settings.repeats)
    rates = {name: measure(contenders, plan, cores) for name, cores in core_settings().items()}
    mine, with_parameter_noise, other, limit = contenders
    ratios = [(mine, other), (with_parameter_noise, other), (with_parameter_noise, mine), (mine, limit)]
    show(f"PPO on {settings.env}", [rate_table(rates), ratio_table(rates, ratios)], plan)


if __name__ == "__main__":
    main(tyro.cli(Settings))
