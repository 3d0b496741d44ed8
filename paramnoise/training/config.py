"""What a run is: the config that repeats it, and its JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from paramnoise.agents import ALGORITHMS, Algorithm, DDPGConfig, ESConfig, TRPOConfig
from paramnoise.agents.q_learning import QLearningConfig
from paramnoise.exploration import Exploration
from paramnoise.validation import UsageError, choose, require


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything needed to repeat a run."""

    algorithm: str
    """The agent's name."""
    env: str
    """The environment's id, or a name for one that was given as an object."""
    env_is_id: bool = True
    """Whether Gymnasium can make the environment from its id."""
    env_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Keywords of the environment."""
    agent: QLearningConfig | DDPGConfig | TRPOConfig | ESConfig
    """The agent's settings."""
    exploration: Exploration
    """The exploration and its settings."""
    seed: int = 0
    """Decides every random draw of the run."""
    num_envs: int = 1
    """Environments stepped together, each with its own exploration."""
    overlap: bool = False
    """Learn while the environments step, where a second core is free; acting is then one training behind."""
    steps: int = 100_000
    """Environment steps in all, over all environments."""
    eval_every: int = 10_000
    """Environment steps between noise-free evaluations."""
    eval_episodes: int = 20
    """Episodes of an evaluation."""
    eval_max_steps: int = 10_000
    """Steps after which an evaluation's episode is cut, for environments without a time limit."""

    log_every: int | None = None
    """Pixels: environment steps between rows of progress that tell of training alone; None: no such rows."""
    replay_on: str = "auto"
    """Pixels: where replay keeps frames: `device`, `host`, or `auto`, which is the device if it is a GPU."""
    save_replay: bool = True
    """Pixels: whether checkpoints hold replay, gigabytes; a run resumed without fills it anew before it learns on."""

    def __post_init__(self) -> None:
        algorithm = choose("algorithm", self.algorithm, ALGORITHMS)
        require(isinstance(self.agent, algorithm.config), "agent", self.agent, f"a {algorithm.config.__name__}")
        algorithm.check_exploration(self.exploration)
        require(0 <= self.seed < 2**31, "seed", self.seed, "at least 0 and below 2^31")
        require(self.num_envs >= 1, "num_envs", self.num_envs, "at least 1")
        if self.overlap and (algorithm.is_on_policy or algorithm.is_population):
            raise UsageError(f"overlap needs an agent that learns from replay, not {self.algorithm}")
        require(self.steps >= 1, "steps", self.steps, "at least 1")
        require(self.eval_every >= 1, "eval_every", self.eval_every, "at least 1")
        require(self.eval_episodes >= 1, "eval_episodes", self.eval_episodes, "at least 1")
        require(self.eval_max_steps >= 1, "eval_max_steps", self.eval_max_steps, "at least 1")
        require(self.log_every is None or self.log_every >= 1, "log_every", self.log_every, "at least 1")
        choose("replay_on", self.replay_on, {place: place for place in ("auto", "device", "host")})

    @property
    def made_by(self) -> Algorithm:
        """The agent's entry in the registry."""
        return ALGORITHMS[self.algorithm]

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON values."""
        exploration = {"kind": self.exploration.kind, **dataclasses.asdict(self.exploration)}
        return _plain({**dataclasses.asdict(self), "exploration": exploration})

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "RunConfig":
        """The config that `to_json` described."""
        try:
            values = dict(values)
            algorithm = choose("algorithm", values["algorithm"], ALGORITHMS)
            agent = algorithm.config(**as_tuples(values.pop("agent")))
            exploration = dict(values.pop("exploration"))
            kind = algorithm.exploration_type(exploration.pop("kind"))
            return cls(agent=agent, exploration=kind(**exploration), **values)
        except UsageError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"not a run's config: {type(error).__name__}: {error}") from None


def _plain(value: Any) -> Any:
    """A value as it comes back from JSON: tuples are lists."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def as_tuples(value: Any) -> Any:
    """The opposite: lists are tuples."""
    if isinstance(value, Mapping):
        return {name: as_tuples(each) for name, each in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
