"""Presets: the paper's settings for the tasks it names, and settings that work for a few others.

They apply by default, are printed when training starts, and every field can be overridden.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from paramnoise.agents import ALGORITHMS, Algorithm, DQNConfig, ESConfig, TRPOConfig
from paramnoise.envs.atari import FRAME_SKIP, MAX_FRAMES, is_atari
from paramnoise.envs.chain import DEFAULT_LENGTH, check_length, horizon
from paramnoise.envs.tasks import DENSE, SPARSE, env_id, short_name
from paramnoise.exploration import Exploration
from paramnoise.training.config import RunConfig, as_tuples
from paramnoise.validation import check_types, choose


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """Settings that differ from the defaults."""

    agent: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of the agent's config."""
    on_policy: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The same for an on-policy agent, which takes nothing from `agent` and `explorations`."""
    explorations: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """Fields of each exploration, by its name."""
    agent_with: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """Fields of the agent's config that go with an exploration, by its name."""
    population: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The same for ES."""
    run: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of the run."""
    only: type | None = None
    """The one type of agent's config that `agent` is for, if not for all."""

    def agent_settings(self, config: type, exploration: str) -> dict[str, Any]:
        """The agent's settings that its config has, with an exploration."""
        if config is ESConfig:
            return self.population
        if config is not (self.only or config):
            return {}
        names = {field.name for field in dataclasses.fields(config)}
        own = {**self.agent, **self.agent_with.get(exploration, {})}
        settings = self.on_policy if issubclass(config, TRPOConfig) else own
        return {name: value for name, value in settings.items() if name in names}

    def exploration_settings(self, algorithm: Algorithm, kind: str) -> dict[str, Any]:
        """The settings of an exploration, as that agent uses it."""
        return {} if algorithm.is_on_policy else self.explorations.get(kind, {})


def preset(env: str, env_kwargs: Mapping[str, Any]) -> Preset:
    """The preset of an environment; an empty one if there is none."""
    if env == "paramnoise/Chain-v0":
        return chain_preset(env_kwargs.get("length", DEFAULT_LENGTH))
    if is_atari(env):
        return ATARI
    name = short_name(env)
    on_policy = {"hidden_sizes": (64, 64)} if name in LOCOMOTION else {}
    if name in map(short_name, DENSE):
        return continuous_preset(0.2, on_policy)
    if name in map(short_name, SPARSE):
        # With L2 the rare reward is found and not learned from.
        return continuous_preset(0.6, on_policy, critic_l2=0.0)
    return CLASSIC.get(env, Preset())


def chain_preset(length: int) -> Preset:
    """The paper's settings for a chain of `length` states (app. A.3)."""
    check_length(length)
    episode = horizon(length)
    return Preset(
        agent={
            "hidden_sizes": (16, 16),
            "gamma": 0.999,
            "learning_rate": 1e-3,
            "batch_size": 32,
            "buffer_size": 100_000,
            "learning_starts": 5 * episode,
            "train_every": 1,
            "target_every": 100,
        },
        explorations={
            "parameter": {"delta": 0.05, "adapt_every": 1},
            "epsilon-greedy": {"epsilon_start": 1.0, "epsilon_end": 0.1, "anneal_steps": 100 * episode},
        },
        run={"steps": 2_000 * episode, "eval_every": 50 * episode, "eval_episodes": 1},
    )


def continuous_preset(noise: float, on_policy: dict[str, Any], **agent: Any) -> Preset:
    """The paper's settings for a continuous task with that level of noise (app. A.2).

    The defaults of DDPG and TRPO are its agents; `agent` and `on_policy` hold what differs.
    """
    return Preset(
        agent=agent,
        on_policy=on_policy,
        explorations={
            "gaussian": {"sigma": noise},
            "ou": {"sigma": noise},
            "parameter": {"delta": noise, "adapt_every": 50},
        },
        run={"steps": 1_000_000, "eval_every": 10_000, "eval_episodes": 20},
    )


LOCOMOTION = ("HalfCheetah", "Hopper", "Swimmer", "Walker2d", "SparseHalfCheetah", "SwimmerGather")

ATARI = Preset(
    only=DQNConfig,
    agent={
        "hidden_sizes": (512,),
        "learning_rate": 1e-4,
        "adam_epsilon": 1e-4,
        "batch_size": 32,
        "buffer_size": 1_000_000,
        "learning_starts": 50_000,
        "train_every": 4,
        "target_every": 10_000,
        "clip_rewards": True,
    },
    agent_with={"parameter": {"policy_head": True}},
    population={"hidden_sizes": (512,), "layer_norm": True},
    explorations={
        "parameter": {"epsilon": 0.01, "adapt_every": 50, "anneal_steps": 1_000_000},
        "epsilon-greedy": {"anneal_steps": 1_000_000},
    },
    run={
        "steps": 10_000_000,
        "num_envs": 16,
        "eval_every": 500_000,
        "eval_episodes": 10,
        "eval_max_steps": MAX_FRAMES // FRAME_SKIP,
        "log_every": 50_000,
    },
)
"""The paper's settings for its Atari games (app. A.1); the number of environments is ours."""

CLASSIC = {
    "CartPole-v1": Preset(
        agent={"buffer_size": 10_000, "double_q": True},
        explorations={"parameter": {"epsilon_end": 0.02}, "epsilon-greedy": {"epsilon_end": 0.02}},
        run={"steps": 50_000, "eval_every": 5_000},
    )
}
"""Not the paper's: chosen by noise-free returns over several seeds (docs/dqn.md)."""


def make_config(
    algorithm: str,
    env: str,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    exploration: Exploration | str | None = None,
    exploration_settings: Mapping[str, Any] | None = None,
    agent: Mapping[str, Any] | None = None,
    **run: Any,
) -> RunConfig:
    """A run's config: the defaults, then the environment's preset, then what the caller set.

    An exploration that is given as an object is taken as it is; one that is given by name takes the preset's settings
    and `exploration_settings`.
    """
    env_kwargs = dict(env_kwargs or {})
    env = env_id(env) if run.get("env_is_id", True) else env
    known = preset(env, env_kwargs)
    entry = choose("algorithm", algorithm, ALGORITHMS)
    kind = exploration.kind if isinstance(exploration, Exploration) else exploration or entry.default_exploration
    if isinstance(exploration, Exploration):
        explored = exploration
    else:
        settings = {**known.exploration_settings(entry, kind), **(exploration_settings or {})}
        explored = _build(entry.exploration_type(kind), settings, f"exploration {kind!r}")
    check_types(RunConfig, run, "a run")
    return RunConfig(
        algorithm=algorithm,
        env=env,
        env_kwargs=env_kwargs,
        agent=_build(entry.config, {**known.agent_settings(entry.config, kind), **(agent or {})}, algorithm),
        exploration=explored,
        **{**known.run, **run},
    )


def _build(cls: type, settings: Mapping[str, Any], what: str) -> Any:
    check_types(cls, settings, what)
    return cls(**{name: as_tuples(value) for name, value in settings.items()})
