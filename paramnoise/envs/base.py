"""Environments by name: the registry of ids, help lines and presets, and the ids that names stand for.

A family of environments is one file that registers what it has; so is a user's own, from outside the package.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version
from gymnasium.vector import VectorEnv

from paramnoise.gymnasium_ids import IDS
from paramnoise.loops.environments import EnvSource, JaxEnv

NAMESPACE = "paramnoise/"
"""Of the environments of this package."""

Settings = Mapping[str, Any]
EnvLike = str | gym.Env | VectorEnv | JaxEnv | Callable[[], gym.Env] | Callable[[], VectorEnv]
"""What users have: an id or a name, an environment or a vector of them, one in JAX, or a function that makes one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentPreset:
    """The settings of one agent on an environment, where they differ from the defaults."""

    settings: Settings = dataclasses.field(default_factory=dict)
    """Fields of the agent's config."""
    explorations: Mapping[str, Settings] = dataclasses.field(default_factory=dict)
    """Fields of each exploration, by its name."""
    settings_with: Mapping[str, Settings] = dataclasses.field(default_factory=dict)
    """Further fields of the agent's config, by the name of the exploration that they go with."""
    run: Settings = dataclasses.field(default_factory=dict)
    """Fields of the run, where this agent's differ from those of the others."""

    def with_exploration(self, name: str) -> dict[str, Any]:
        """The fields of the agent's config if the exploration of that name acts for it."""
        return {**self.settings, **self.settings_with.get(name, {})}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """Settings that suit an environment: they apply by default, and each of them can be overridden."""

    agents: Mapping[str, AgentPreset] = dataclasses.field(default_factory=dict)
    """By the agent's name."""
    run: Settings = dataclasses.field(default_factory=dict)
    """Fields of the run."""

    def for_agent(self, agent: str) -> AgentPreset:
        """The part for one agent."""
        return self.agents.get(agent, AgentPreset())


class ReturnBounds(NamedTuple):
    """A fixed scale for returns, on which those of several environments can be put together."""

    low: float
    """What counts as 0."""
    high: float
    """What counts as 1."""
    source: str
    """What the two are, in words for tables."""


PresetOrRule = Preset | Callable[[Settings], Preset]
"""A preset, or a function from an environment's keywords to one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvEntry:
    """A registered environment."""

    id: str
    help: str
    """A line for `paramnoise envs`."""
    preset: PresetOrRule
    group: str
    """What it is listed under."""
    bounds: ReturnBounds | None = None
    """The scale of its return; None: none is known."""
    functions: Callable[[Settings], JaxEnv] | None = None
    """From its keywords to the same environment as pure functions in JAX; None: there is none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """Environments that Gymnasium does not make, such as Atari games on a vector of emulators."""

    name: str
    """The family's own."""
    matches: Callable[[str], bool]
    """Whether a name or an id means an environment of the family."""
    source: Callable[[str, Settings], EnvSource]
    """An id and its keywords -> how a loop makes the environments."""
    preset: PresetOrRule
    group: str
    """What it is listed under by `paramnoise envs`."""
    members: tuple[str, ...] = ()
    """Names to list; others may match too."""
    needs: tuple[str, str] | None = None
    """A module that may be missing, and the extra that installs it."""


ENVS: dict[str, EnvEntry] = {}
"""Every registered environment by its id."""
FAMILIES: dict[str, Family] = {}


def register_env(
    env_id: str,
    *,
    entry_point: Any = None,
    help: str = "",
    preset: PresetOrRule = Preset(),  # noqa: B008  # frozen
    group: str = "registered by plug-ins",
    bounds: ReturnBounds | None = None,
    functions: Callable[[Settings], JaxEnv] | None = None,
    **gymnasium: Any,
) -> None:
    """Makes an environment known by name, with a line of help and a preset.

    Args:
        env_id: Gymnasium's id, such as `mine/Task-v0`; its bare name `Task` then stands for it.
        entry_point: as for `gymnasium.register`; None: Gymnasium knows the id already.
        help: a line for `paramnoise envs`.
        preset: what it is usually run with, or a function from its keywords to that.
        group: what it is listed under.
        bounds: the scale of its return, for numbers over several environments.
        functions: makes the same environment as pure functions in JAX; agents that learn from replay or from batches
            of their own steps then train in one compiled program (TRPO and ES do not).
        gymnasium: further arguments of `gymnasium.register`, such as `max_episode_steps`.
    """
    if entry_point is not None:
        # Ours are known to Gymnasium before this; a notebook's cell may run twice; for any other id Gymnasium warns.
        if env_id in IDS or env_id in ENVS:
            gym.registry.pop(env_id, None)
        gym.register(env_id, entry_point=entry_point, **gymnasium)
    ENVS[env_id] = EnvEntry(id=env_id, help=help, preset=preset, group=group, bounds=bounds, functions=functions)


def register_family(name: str, **settings: Any) -> None:
    """Makes a family of environments known; the arguments are the fields of `Family`."""
    FAMILIES[name] = Family(name=name, **settings)


def family_of(env: str) -> Family | None:
    """The family that an id belongs to, if any."""
    return next((family for family in FAMILIES.values() if family.matches(env)), None)


def preset(env: str, env_kwargs: Settings) -> Preset:
    """The preset of an environment, else that of another version of it; an empty one if there is none."""
    entry: EnvEntry | Family | None = ENVS.get(env) or family_of(env)
    entry = entry or next((known for known in ENVS.values() if _unversioned(known.id) == _unversioned(env)), None)
    if entry is None:
        return Preset()
    return entry.preset if isinstance(entry.preset, Preset) else entry.preset(env_kwargs)


def return_bounds(env: str) -> ReturnBounds | None:
    """The scale of the return of an environment, by its id; None if none is known."""
    return ENVS[env].bounds if env in ENVS else None


def env_name(env: EnvLike) -> str:
    """A name for logs and directories."""
    if isinstance(env, str):
        return env
    if isinstance(env, JaxEnv):
        return env.name
    if isinstance(env, gym.Env | VectorEnv):
        return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    return getattr(env, "__name__", type(env).__name__)


def short_name(env: str) -> str:
    """An environment's name without namespace and version."""
    return _unversioned(env.rpartition("/")[2])


def _unversioned(env: str) -> str:
    return re.sub(r"-v\d+$", "", env)


def env_label(env: str) -> str:
    """An environment in paths, tables and figures: its id, without the namespace of this package."""
    return env.removeprefix(NAMESPACE)


def env_id(name: str) -> str:
    """The id that a name stands for: that of a registered environment, else Gymnasium's newest version.

    An id, a member of a family, and what nobody knows are returned as they are.
    """
    if name in gym.registry or family_of(name) is not None:
        return name
    for env in ENVS:
        if name in (short_name(env), env.rpartition("/")[2]):
            return env
    namespace, _, bare = name.rpartition("/")
    newest = find_highest_version(namespace or None, bare)
    return name if newest is None else f"{name}-v{newest}"
