"""TRPO: environment steps per second of ours and sb3-contrib's, training alike on Hopper.

Run it with `make bench`. Both have a Gaussian policy with two tanh layers of 64 units, batches of 5,000 steps, 10
conjugate-gradient steps with Fisher products on a tenth of the batch, and the same line search. They differ in two
ways: sb3-contrib takes the gradient and the line search on that tenth too, ours on the whole batch; and sb3-contrib
learns values with a network, 10 passes over each batch by default, where ours fits a linear baseline as in the paper.
It is measured with one pass as well, to show what the values cost.
"""

import dataclasses
from functools import partial
from typing import Any

import tyro
from contenders import environment_alone, ours, peer
from harness import Plan, Window, core_settings, measure, rate_table, ratio_table, show

BATCH = 5_000
OURS: dict[str, Any] = {
    "hidden_sizes": (64, 64),
    "batch_size": BATCH,
    "cg_steps": 10,
    "damping": 1e-5,
    "fisher_fraction": 0.1,
    "shrinkage": 0.8,
    "max_backtracks": 15,
    "delta_kl": 0.01,
    "gae_lambda": 1.0,
}
PEER: dict[str, Any] = {
    "policy_kwargs": {"net_arch": [64, 64]},  # tanh is its default
    "n_steps": BATCH,
    "batch_size": 125,  # of the values' train steps; its default, 128, does not divide the batch
    "cg_max_steps": 10,
    "cg_damping": 1e-5,
    "sub_sampling_factor": 10,
    "line_search_shrinking_factor": 0.8,
    "line_search_max_iter": 15,
    "target_kl": 0.01,
    "gae_lambda": 1.0,
    "seed": 0,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Measures TRPO against its peer."""

    env: str = "Hopper-v4"
    """The Gymnasium id of the task."""
    batches: int = 2
    """Batches of 5,000 environment steps in a window."""
    warm_up: int = 2
    """Batches before the first window."""
    repeats: int = 5
    """Windows of each contender."""


def sb3_contrib(env: str, passes: int) -> Window:
    """TRPO of sb3-contrib, on PyTorch, with that many passes of its values over a batch."""
    from sb3_contrib import TRPO

    return peer(TRPO("MlpPolicy", env, n_critic_updates=passes, device="cpu", **PEER))


def main(settings: Settings) -> None:
    """Measures all contenders in turn, on all cores and on one, and prints rates and ratios."""
    contenders = {
        "ours, action noise alone": partial(ours, "trpo", settings.env, "none", OURS),
        "ours, parameter noise": partial(ours, "trpo", settings.env, "parameter", OURS),
        "sb3-contrib": partial(sb3_contrib, settings.env, 10),
        "sb3-contrib, one pass for the values": partial(sb3_contrib, settings.env, 1),
        "environment alone": partial(environment_alone, settings.env),
    }
    plan = Plan(settings.batches * BATCH, settings.warm_up * BATCH, settings.repeats)
    rates = {name: measure(contenders, plan, cores) for name, cores in core_settings().items()}
    mine, with_parameter_noise, *peers, limit = contenders
    ratios = [(mine, other) for other in peers] + [(with_parameter_noise, mine), (mine, limit)]
    show(f"TRPO on {settings.env}", [rate_table(rates), ratio_table(rates, ratios)], plan)


if __name__ == "__main__":
    main(tyro.cli(Settings))
