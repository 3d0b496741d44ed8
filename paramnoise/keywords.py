"""The keywords of an agent's constructor, taken from its config and from the run's settings, for people and checkers.

A dataclass that joins the two is the only list of them: type checkers read its fields through `takes`, notebooks and
`help` through the signature that `takes` sets.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

from paramnoise.agents.bootstrapped_dqn import BootstrappedDQNConfig
from paramnoise.agents.ddpg import DDPGConfig
from paramnoise.agents.dqn import DQNConfig
from paramnoise.agents.es import ESConfig
from paramnoise.agents.ppo import PPOConfig
from paramnoise.agents.pqn import PQNConfig
from paramnoise.agents.sac import SACConfig
from paramnoise.agents.td3 import TD3Config
from paramnoise.agents.trpo import TRPOConfig
from paramnoise.envs import EnvLike
from paramnoise.explorations import Exploration
from paramnoise.runs.config import RunSettings

Keywords = ParamSpec("Keywords")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentKeywords(RunSettings):
    """What the constructors of all agents take; `steps` apart, which are told to `learn`."""

    exploration: Exploration | str | None = None
    """An exploration such as `ParameterNoise(delta=0.05)`, or its name; None: the agent's default."""
    env_kwargs: Mapping[str, Any] | None = None
    """Keywords of an environment that is given by id."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNKeywords(DQNConfig, AgentKeywords):
    """What `DQN` takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BootstrappedDQNKeywords(BootstrappedDQNConfig, AgentKeywords):
    """What `BootstrappedDQN` takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DDPGKeywords(DDPGConfig, AgentKeywords):
    """What `DDPG` takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TD3Keywords(TD3Config, AgentKeywords):
    """What `TD3` takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACKeywords(SACConfig, AgentKeywords):
    """What `SAC` takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TRPOKeywords(TRPOConfig, AgentKeywords):
    """What `TRPO` takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOKeywords(PPOConfig, AgentKeywords):
    """What `PPO` takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PQNKeywords(PQNConfig, AgentKeywords):
    """What `PQN` takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ESKeywords(ESConfig, AgentKeywords):
    """What `ES` takes."""


def takes(
    keywords: Callable[Keywords, Any],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, EnvLike, Keywords], None]]:
    """Says that a constructor takes an environment and, as keywords, the fields of a dataclass."""

    def give(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def constructor(self: Any, env: EnvLike, **settings: Any) -> None:
            init(self, env, **settings)

        first = list(inspect.signature(init).parameters.values())[:2]
        fields = [field for field in inspect.signature(keywords).parameters.values() if field.name != "steps"]
        constructor.__signature__ = inspect.Signature([*first, *fields])  # type: ignore[attr-defined]
        return constructor

    return give
