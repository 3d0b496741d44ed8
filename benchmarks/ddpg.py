"""DDPG: environment steps per second of ours, Stable-Baselines3 and SBX, training alike on HalfCheetah.

Run it with `make bench`. All have two layers of 64 units, batches of 128, 50 train steps after every 100 environment
steps, a replay of 100,000 and Gaussian noise of 0.2. Ours keeps its defaults beyond that and so does more per step:
layer norm, normalised observations, L2 on the critic, a guard against diverged simulations; it is also measured with
the peers' network, which has no layer norm. With `overlap` acting is one training behind, so that learning and stepping
go on at once; with parameter noise they do so anyway, as the policy of an episode is fixed.
"""

import dataclasses
from functools import partial
from typing import Any

import tyro
from contenders import environment_alone, gaussian, ours, peer
from harness import Plan, Window, core_settings, measure, rate_table, ratio_table, show

NOISE = 0.2
SHARED: dict[str, Any] = {"batch_size": 128, "buffer_size": 100_000, "gamma": 0.99}
OURS = {**SHARED, "hidden_sizes": (64, 64), "train_every": 100, "train_steps": 50}
PLAIN = {**OURS, "layer_norm": False}
PEERS = {**SHARED, "policy_kwargs": {"net_arch": [64, 64]}, "train_freq": 100, "gradient_steps": 50, "seed": 0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Measures DDPG against its peers."""

    env: str = "HalfCheetah-v4"
    """The Gymnasium id of the task."""
    steps: int = 5_000
    """Environment steps of a window; a multiple of the episode's length gives each window as many resets."""
    warm_up: int = 3_000
    """Environment steps before the first window."""
    repeats: int = 5
    """Windows of each contender."""


def stable_baselines3(env: str) -> Window:
    """DDPG of Stable-Baselines3, on PyTorch."""
    from stable_baselines3 import DDPG

    return peer(DDPG("MlpPolicy", env, action_noise=gaussian(env, NOISE), device="cpu", **PEERS))


def sbx(env: str) -> Window:
    """DDPG of SBX: Stable-Baselines3's loop around train steps that are compiled by JAX."""
    from sbx import DDPG

    return peer(DDPG("MlpPolicy", env, action_noise=gaussian(env, NOISE), **PEERS))


def main(settings: Settings) -> None:
    """Measures all contenders in turn, on all cores and on one, and prints rates and ratios."""
    contenders = {
        "ours, Gaussian noise": partial(ours, "ddpg", settings.env, "gaussian", OURS),
        "ours, Gaussian noise, overlap": partial(ours, "ddpg", settings.env, "gaussian", OURS, overlap=True),
        "ours, parameter noise": partial(ours, "ddpg", settings.env, "parameter", OURS),
        "ours, parameter noise, no layer norm": partial(ours, "ddpg", settings.env, "parameter", PLAIN),
        "Stable-Baselines3": partial(stable_baselines3, settings.env),
        "SBX": partial(sbx, settings.env),
        "environment alone": partial(environment_alone, settings.env),
    }
    plan = Plan(settings.steps, settings.warm_up, settings.repeats)
    rates = {name: measure(contenders, plan, cores) for name, cores in core_settings().items()}
    mine, overlapped, with_parameter_noise, plain, *peers, limit = contenders
    ratios = [(one, other) for other in peers for one in (mine, overlapped, with_parameter_noise, plain)]
    ratios += [(with_parameter_noise, mine), (with_parameter_noise, overlapped), (with_parameter_noise, limit)]
    show(f"DDPG on {settings.env}", [rate_table(rates), ratio_table(rates, ratios)], plan)


if __name__ == "__main__":
    main(tyro.cli(Settings))
