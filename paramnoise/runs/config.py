"""What a run is: the one definition of its settings, for the command line, the API and the run directory."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np

from paramnoise.agents.base import AgentEntry, find_agent
from paramnoise.envs.base import env_id, preset
from paramnoise.explorations.base import Exploration, is_registered
from paramnoise.networks.own import OWN_PARTS, described, given_again
from paramnoise.validation import UsageError, brief, check_numbers, check_types, lookup, require

MAY_DIFFER = ("steps", "devices", "agent.workers", "agent.engine", "agent.ray_address")
"""The fields of a config that a resumed run may change."""
MOST_STEPS = 2**31 - 1
"""Steps are counted in 32 bits on the device."""
MOST_ENVIRONMENTS = 2**16
"""Each environment that is stepped, and each episode of an evaluation, is an object of its own in memory."""
ReplayPlace = Literal["auto", "device", "host"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of a run that do not depend on its agent, its exploration or its environment."""

    seed: int = 0
    """Decides every random draw of the run."""
    num_envs: int = 1
    """Environments stepped together, each with its own exploration."""
    overlap: bool = False
    """Learn while the environments step, where a second core is free; acting is then one training behind."""
    terminal_time_limits: bool = False
    """Treat a time limit as an end of the task: the value after it counts 0, as the authors' code had it; off: it is
    bootstrapped."""
    steps: int = 100_000
    """Environment steps in all, over all environments."""
    eval_every: int = 10_000
    """Environment steps between noise-free evaluations."""
    eval_episodes: int = 20
    """Episodes of an evaluation."""
    eval_max_steps: int = 10_000
    """Steps after which an evaluation's episode is cut, for environments without a time limit."""
    log_every: int | None = None
    """Environment steps between rows of progress that tell of training alone; None: no such rows."""
    replay_on: ReplayPlace = "auto"
    """Pixels: where replay keeps frames; auto is the device if it is a GPU."""
    save_replay: bool = True
    """Pixels: whether checkpoints hold replay, gigabytes; a run resumed without fills it anew before it learns on."""
    devices: int = 1
    """Environments written in JAX: the devices among which they, or seeds side by side, are divided."""

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**31, "seed", self.seed, "at least 0 and below 2^31")
        for name in ("num_envs", "steps", "eval_every", "eval_episodes", "eval_max_steps", "log_every", "devices"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "at least 1")
            most = MOST_ENVIRONMENTS if name in ("num_envs", "eval_episodes") else MOST_STEPS
            require(value is None or value <= most, name, value, f"at most {most:,}")
        lookup("replay_on", self.replay_on, dict.fromkeys(get_args(ReplayPlace)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(RunSettings):
    """Everything needed to repeat a run."""

    algorithm: str
    """The agent's name."""
    env: str
    """The environment's id, or a name for one that was given as an object."""
    env_is_id: bool = True
    """Whether the environment can be made from its id."""
    env_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Keywords of the environment."""
    agent: Any
    """The agent's settings: a config of the type that the agent is registered with."""
    exploration: Exploration
    """The exploration and its settings."""

    def __post_init__(self) -> None:
        entry = find_agent(self.algorithm)
        require(isinstance(self.agent, entry.config), "agent", self.agent, f"a {entry.config.__name__}")
        entry.check_exploration(self.exploration)
        if self.overlap and entry.experience != "replay":
            raise UsageError(f"overlap needs an agent that learns from replay, not {self.algorithm}")
        if self.terminal_time_limits and entry.experience == "returns":
            raise UsageError(f"terminal_time_limits needs an agent that learns values, not {self.algorithm}")
        super().__post_init__()

    @property
    def made_by(self) -> AgentEntry:
        """The agent's entry in the registry."""
        return find_agent(self.algorithm)

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON values.

        Raises:
            UsageError: if the exploration is not registered, so that `from_json` could not find it.
        """
        cls, kind = type(self.exploration), self.exploration.kind
        if not is_registered(cls):
            raise UsageError(
                f"{cls.__name__} is not registered, and a run with it could not be loaded: decorate the class with "
                f'register_exploration("{kind.lower()}")'
            )
        exploration = {"kind": self.exploration.kind, **dataclasses.asdict(self.exploration)}
        agent = {field.name: getattr(self.agent, field.name) for field in dataclasses.fields(self.agent)}
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _plain({**own, "agent": described(agent), "exploration": exploration})

    def digest(self) -> str:
        """A digest of all that a resumed run may not change, but for objects of the user's."""
        values = self.to_json()
        # Runs of before a setting was added have its default, and a digest without it.
        left_out = {*OWN_PARTS, *_added_with_defaults(self.agent)}
        agent = {name: value for name, value in values["agent"].items() if name not in left_out}
        added = _added_with_defaults(self.exploration)
        exploration = {name: value for name, value in values["exploration"].items() if name not in added}
        kept = {**values, "agent": agent, "exploration": exploration}
        for name in MAY_DIFFER:
            part, _, field = name.rpartition(".")
            (kept[part] if part else kept).pop(field, None)
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_json(cls, values: dict[str, Any], parts: Mapping[str, Any] | None = None) -> "RunConfig":
        """The config that `to_json` described; `parts` are those of the user's that are not registered, by field."""
        try:
            values = dict(values)
            entry = find_agent(values["algorithm"])
            agent = _build(entry.config, given_again(as_tuples(values.pop("agent")), parts or {}), entry.name)
            exploration = dict(values.pop("exploration"))
            kind = exploration.pop("kind")
            explored = _build(entry.exploration_type(kind), exploration, f"exploration {kind!r}")
            check_types(cls, values, "a run")
            return cls(agent=agent, exploration=explored, **values)
        except UsageError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UsageError(f"not a run's config: {type(error).__name__}: {error}") from None


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
    """A run's config: the defaults, what the exploration asks of the agent, the environment's preset, the caller's.

    An exploration that is given as an object is taken as it is; one that is given by name takes the agent's settings
    for it, the preset's and `exploration_settings`.
    """
    env_kwargs = dict(env_kwargs or {})
    env = env_id(env) if run.get("env_is_id", True) else env
    entry, known = find_agent(algorithm), preset(env, env_kwargs)
    own = known.for_agent(algorithm)
    if isinstance(exploration, Exploration):
        kind, explored = exploration.kind, exploration
        check_numbers({field.name: getattr(exploration, field.name) for field in dataclasses.fields(exploration)})
    else:
        if not isinstance(exploration, str | None):
            hint = f", such as {exploration.__name__}()" if isinstance(exploration, type) else ""
            raise UsageError(f"exploration must be a name or an object{hint}, not {brief(exploration)}")
        kind = exploration or entry.default_exploration
        usual = {**entry.exploration_settings.get(kind, {}), **own.explorations.get(kind, {})}
        settings = {**usual, **(exploration_settings or {})}
        explored = _build(entry.exploration_type(kind), settings, f"exploration {kind!r}")
    asked = entry.settings_for(type(explored))
    check_types(RunConfig, run, "a run")
    return RunConfig(
        algorithm=algorithm,
        env=env,
        env_kwargs=env_kwargs,
        agent=_build(entry.config, {**asked, **own.with_exploration(kind), **(agent or {})}, algorithm),
        exploration=explored,
        **as_tuples({**known.run, **own.run, **run}),
    )


def _build(cls: type, settings: Mapping[str, Any], what: str) -> Any:
    # An object of the user's is no text: the config itself refuses what does not fit.
    check_types(cls, {k: v for k, v in settings.items() if k not in OWN_PARTS or isinstance(v, str)}, what)
    return cls(**{name: as_tuples(value) for name, value in settings.items()})


def _added_with_defaults(settings: Any) -> set[str]:
    """The settings of a config that were added after runs without them were made, and are as they are by default."""
    added = getattr(settings, "added_later", ())
    return {
        field.name
        for field in dataclasses.fields(settings)
        if field.name in added and getattr(settings, field.name) == field.default
    }


def _plain(value: Any) -> Any:
    """A value as it comes back from JSON: tuples are lists, NumPy's numbers Python's."""
    if isinstance(value, np.number):
        return value.item()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def as_tuples(value: Any) -> Any:
    """The opposite: lists are tuples. NumPy's numbers are Python's here too."""
    if isinstance(value, np.number):
        return value.item()
    if isinstance(value, Mapping):
        return {name: as_tuples(each) for name, each in value.items()}
    return tuple(map(as_tuples, value)) if type(value) in (tuple, list) else value
