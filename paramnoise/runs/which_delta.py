"""Which delta? What noise of several sizes does to the policy of a run, in states of its own environment."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import numpy as np

from paramnoise.agents.base import Spaces
from paramnoise.explorations.effect import effect
from paramnoise.loops.frames import Stacks
from paramnoise.loops.host import HostLoop
from paramnoise.networks.policies import CONTINUOUS, GreedyPolicy, Policy, VotingPolicy
from paramnoise.noise import epsilon_from_delta
from paramnoise.runs.config import RunConfig
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.loop import load_checked, make_loop
from paramnoise.runs.machine import fitting_here
from paramnoise.validation import UsageError, require

SIGMAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""The standard deviations to try by default."""
EPISODES = 4
"""Noise-free episodes that the states come from."""
PROBES = 20
"""Perturbations of each sigma."""


Matched = Literal["epsilon", "Gaussian sigma"]


class Row(NamedTuple):
    """What noise of one sigma does."""

    sigma: float
    distance: float
    """The median over perturbations: the delta with which adaptive scaling settles at this sigma."""
    low: float
    """The first quartile."""
    high: float
    """The third quartile."""
    matched: float | None
    """The size of the action noise that this delta matches; None: no epsilon is that large, or nothing is matched."""
    changed: float | None
    """The part of states in which the noise-free action changes; None for continuous actions."""


class Report(NamedTuple):
    """The effect of several sigmas on the policy of one run."""

    config: RunConfig
    step: int
    """Environment steps that the policy has learned for."""
    states: int
    matches: Matched | None
    """The action noise that a delta matches: an epsilon (app. C.1), or the standard deviation of Gaussian noise (app.
    C.2). None: the policy is stochastic, and delta a bound on its KL (app. C.3)."""
    rows: list[Row]


def which_delta(
    path: Path,
    sigmas: Sequence[float] = SIGMAS,
    *,
    states: int = 1_000,
    probes: int = PROBES,
    seed: int = 0,
    trust_env: bool = False,
) -> Report:
    """Measures what noise does to the policy of a run directory, or of a saved agent.

    Args:
        path: the directory.
        sigmas: the standard deviations to try.
        states: how many states at the most; they are spread over a few noise-free episodes.
        probes: perturbations of each sigma.
        seed: decides the episodes and the perturbations.
        trust_env: make the stored environment though its id names a module, whose import runs code.

    Raises:
        UsageError: if there is no such agent, or it was made with an environment object.
    """
    require(len(sigmas) > 0 and min(sigmas) > 0, "sigmas", tuple(sigmas), "some numbers above 0")
    require(states >= 1, "states", states, "at least 1")
    require(probes >= 1, "probes", probes, "at least 1")
    directory = RunDirectory(path)
    config = fitting_here(directory.config())
    if not trust_env:
        directory.check_env(config)
    if not config.env_is_id:
        raise UsageError(f"{path} was made with an environment object ({config.env}), which cannot be made anew here")
    with directory.naming_plugins():  # the environment may be a plug-in's
        loop = make_loop([config], config.env)
    try:
        load_checked(loop, config, directory)
        obs = visited_states(loop, states, seed)
        policy, spaces = loop.policy(), loop.learner.spaces
        keys = jax.random.split(jax.random.key(seed), (len(sigmas), probes))
        rows = [_row(policy, spaces, obs, sigma, own) for sigma, own in zip(sigmas, keys, strict=True)]
        return Report(config, loop.step, len(obs), _matches(policy), rows)
    finally:
        loop.close()


def visited_states(loop: HostLoop, most: int, seed: int) -> np.ndarray:
    """States of noise-free episodes, at most so many, evenly spread over the episodes' steps."""
    spaces = loop.learner.spaces
    stacks = Stacks((1, EPISODES, *spaces.observation)) if spaces.shows_frames else None
    kept: list[np.ndarray] = []
    every, seen = 1, 0

    def watch(shown: np.ndarray, running: np.ndarray) -> None:
        nonlocal every, seen
        if stacks is not None:
            begins = np.full((1, EPISODES), seen == 0)
            shown = np.asarray(stacks.see(shown[None], begins))[0]
        for state in np.asarray(shown)[running]:
            if seen % every == 0:
                kept.append(state.copy())
            seen += 1
        if len(kept) > 2 * most:
            kept[:], every = kept[::2], 2 * every

    loop.evaluate(EPISODES, seed, watch=watch)
    return np.stack(kept)[np.unique(np.linspace(0, len(kept) - 1, min(most, len(kept))).astype(int))]


def _matches(policy: Policy) -> Matched | None:
    if isinstance(policy, CONTINUOUS):
        return "Gaussian sigma"
    return "epsilon" if isinstance(policy, GreedyPolicy | VotingPolicy) else None


def _row(policy: Policy, spaces: Spaces, obs: np.ndarray, sigma: float, keys: jax.Array) -> Row:
    found = _effect(keys, policy, obs, sigma)
    low, distance, high = np.percentile(found.distance, [25, 50, 75]).tolist()
    matched: float | None = distance if _matches(policy) == "Gaussian sigma" else None
    if _matches(policy) == "epsilon" and distance <= math.log(spaces.actions):
        matched = float(epsilon_from_delta(distance, spaces.actions))
    return Row(sigma, distance, low, high, matched, float(np.mean(found.changed)) if spaces.is_discrete else None)


_effect = jax.jit(effect)
