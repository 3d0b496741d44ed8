"""TD3 and SAC: environment steps per second of ours, Stable-Baselines3 and SBX, one train step after each, HalfCheetah.

Run it with `make bench`. All have the same network, without layer norm, the same batch, one train step after every
environment step, a replay of 100,000; TD3 has Gaussian noise of 0.1, SAC its own. With 64-64 and batches of 128 what
is around the products decides, with 256-256 and batches of 256 the products do. Ours is also measured with parameter
noise, which perturbs the same network, and on two cores with `overlap`, where acting is one training behind.
"""

import dataclasses
from functools import partial
from typing import Any, Literal

import tyro
from contenders import environment_alone, gaussian, ours, peer
from harness import Plan, Window, core_settings, measure, rate_table, ratio_table, show

NOISE = 0.1
SIZES = {"64-64, batches of 128": ((64, 64), 128), "256-256, batches of 256": ((256, 256), 256)}
"""The networks and batches that are measured, by name."""
SHARED: dict[str, Any] = {"buffer_size": 100_000, "gamma": 0.99, "tau": 0.005, "learning_starts": 100}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Measures TD3 and SAC against their peers."""

    agents: tuple[Literal["td3", "sac"], ...] = ("td3", "sac")
    """The agents."""
    sizes: tuple[Literal["small", "large"], ...] = ("small", "large")
    """The networks: 64-64 with batches of 128, 256-256 with batches of 256."""
    env: str = "HalfCheetah-v4"
    """The Gymnasium id of the task."""
    steps: int = 2_000
    """Environment steps of a window; a multiple of the episode's length gives each window as many resets."""
    warm_up: int = 2_000
    """Environment steps before the first window."""
    repeats: int = 5
    """Windows of each contender."""


def own(agent: str, env: str, exploration: str, units: tuple[int, ...], batch: int, **run: Any) -> Window:
    """Ours, with the peers' network."""
    plain = {"layer_norm": False, "normalise_observations": False, "random_steps": 100}
    rates = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}
    settings = {**SHARED, **plain, **rates, "hidden_sizes": units, "batch_size": batch}
    noise = {"gaussian": {"sigma": NOISE}, "parameter": {"delta": NOISE, "adapt_every": 50}}.get(exploration, {})
    return ours(agent, env, exploration, settings, exploration_settings=noise, **run)


def theirs(library: str, agent: str, env: str, units: tuple[int, ...], batch: int) -> Window:
    """The agent of a peer, `stable_baselines3` (on PyTorch) or `sbx` (its loop around compiled train steps)."""
    import importlib

    made = getattr(importlib.import_module(library), agent.upper())
    own = {"action_noise": gaussian(env, NOISE)} if agent == "td3" else {}
    device = {"device": "cpu"} if library == "stable_baselines3" else {}
    network = {"policy_kwargs": {"net_arch": list(units)}, "batch_size": batch, "learning_rate": 3e-4}
    return peer(made("MlpPolicy", env, train_freq=1, gradient_steps=1, seed=0, **SHARED, **network, **own, **device))


def compare(agent: str, size: str, settings: Settings) -> None:
    """Measures the contenders of one agent and one size in turn, on all cores and on one, and prints the tables."""
    units, batch = SIZES[size]
    usual = "gaussian" if agent == "td3" else "none"
    make = partial(own, agent, settings.env, units=units, batch=batch)
    contenders = {
        "ours": partial(make, usual),
        "ours, overlap": partial(make, usual, overlap=True),
        "ours, parameter noise": partial(make, "parameter"),
        "ours, parameter noise, overlap": partial(make, "parameter", overlap=True),
        "SBX": partial(theirs, "sbx", agent, settings.env, units, batch),
        "Stable-Baselines3": partial(theirs, "stable_baselines3", agent, settings.env, units, batch),
        "environment alone": partial(environment_alone, settings.env),
    }
    plan = Plan(settings.steps, settings.warm_up, settings.repeats)
    rates = {name: measure(contenders, plan, cores) for name, cores in core_settings().items()}
    mine, overlapped, perturbed, both, *peers, _ = contenders
    ratios = [(one, other) for other in peers for one in (mine, overlapped, perturbed, both)]
    ratios += [(perturbed, mine), (both, overlapped)]
    show(f"{agent.upper()} on {settings.env}, {size}", [rate_table(rates), ratio_table(rates, ratios)], plan)


def main(settings: Settings) -> None:
    """Measures each agent with each size."""
    names = dict(zip(("small", "large"), SIZES, strict=True))
    for agent in settings.agents:
        for size in settings.sizes:
            compare(agent, names[size], settings)


if __name__ == "__main__":
    main(tyro.cli(Settings))
