"""What an agent is to a loop: pure functions over its state, and the experience it asks for. The registry of agents.

An agent is one file: a frozen config, and a function `make(config, spaces)` that returns a `Learner` and is registered
with what the agent needs. A learner knows no exploration by name.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np
from jax import Array

from paramnoise.experience.replay import Drawing
from paramnoise.explorations.base import Exploration, definition, explorations_for, find_exploration, is_known
from paramnoise.networks.policies import Policy, StochasticPolicy
from paramnoise.validation import UsageError, lookup, one_line

ExperienceKind = Literal["replay", "rollout", "returns"]
"""What a learner learns from: replayed transitions, a batch of its own steps, or one number per perturbed policy."""
TD_ERROR = "td_error"
"""The term of an update by which a learner tells replay with priorities the error of each item; it is not logged."""
Actions = Literal["discrete", "multi-discrete", "continuous"]
Observations = Literal["vectors", "frames"]


class Spaces(NamedTuple):
    """The sizes of what an agent sees and does."""

    observation: tuple[int, ...]
    """The shape: (size,) of a vector, or (frames, height, width) of a uint8 stack of grey frames."""
    actions: int
    """The number of discrete actions, or the dimensions of continuous ones in [-1, 1].

    Of actions with several discrete parts, the choices of all parts together.
    """
    is_discrete: bool
    parts: tuple[int, ...] = ()
    """The choices of each part, if a discrete action has several; each part is then a number from 0."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of an action: () of a number, (parts,) of several, (dimensions,) of a continuous one."""
        if self.parts:
            return (len(self.parts),)
        return () if self.is_discrete else (self.actions,)

    @property
    def shows_frames(self) -> bool:
        """Whether observations are stacks of frames."""
        return len(self.observation) == 3


def _no_mask(key: Array, num_envs: int) -> None:
    return None


def _as_it_was(state: Any, batch: Any) -> Any:
    return state


def _as_gathered(gathered: Any, number: int) -> Any:
    return gathered


class Learner(NamedTuple):
    """An agent without its exploration."""

    config: Any
    spaces: Spaces
    init: Callable[[Array], Any]
    """key -> state."""
    update: Callable[[Any, Any], tuple[Any, dict[str, Array]]]
    """state, a batch of the agent's experience -> state, terms to report."""
    policy: Callable[[Any], Policy]
    """state -> the clean policy."""
    annotate: Callable[[Array, int], Array | None] = _no_mask
    """Replay: key, num_envs -> the `mask` to store with the transitions of one step."""
    observe: Callable[[Any, Any], Any] = _as_it_was
    """Replay: state, the transitions of one step -> state; called once a step, before they are stored."""
    drawing: Drawing = Drawing()
    """Replay: how batches are drawn; with priorities `update` reports `TD_ERROR`, [batch], beside its terms."""
    prepare: Callable[[Any, int], Any] = _as_gathered
    """Rollout, returns: what was gathered, the number of updates so far -> the batch for `update`; in NumPy."""
    needs_offsets: bool = True
    """Rollout: whether a batch holds what each episode's behaviour added to the parameters; values need no such thing,
    and what explores for them then adapts as it does on replay."""
    policy_every: int = 1
    """Replay of vectors: a train step changes the policy only if its number, counted from 1, is a multiple of this."""
    random_steps: int = 0
    """Replay of vectors: environment steps at the beginning whose actions are uniformly random, whatever explores."""
    experience: ExperienceKind = "replay"
    """What it learns from; registration sets it."""
    made_by: Callable[..., Any] | None = None
    """The agent's `make`; registration sets it. Learners of one `make`, config and spaces are the same functions."""

    @property
    def can_be_compiled(self) -> bool:
        """Whether one program can step environments and learn: nothing on the way is gathered or prepared in NumPy."""
        return self.experience == "replay" or (self.experience == "rollout" and self.prepare is _as_gathered)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentEntry:
    """An agent as the registry knows it: how it is made, and what it needs."""

    name: str
    """On the command line and in run directories."""
    title: str
    """In figures and tables."""
    config: type
    """Its settings: a frozen dataclass with a default for every field; it may say which of them matter (`applying`),
    and which were added after runs without them were made (`added_later`), so that these go on."""
    make: Callable[[Any, Spaces], Learner]
    """Settings and the environment's spaces -> the learner."""
    experience: ExperienceKind
    """What it learns from."""
    policy: type
    """The type of its policy, which decides what explorations fit."""
    actions: tuple[Actions, ...]
    """The kinds of action that it can choose."""
    observations: tuple[Observations, ...]
    """The kinds of observation that it can see."""
    explores: bool
    """Whether an exploration acts for it. ES, which learns by perturbing its policy, takes `none` alone."""
    default_exploration: str
    """The exploration if none is named."""
    exploration_settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """Fields of explorations, by their names, where the agent's defaults are not the exploration's own."""

    @property
    def explorations(self) -> list[str]:
        """The names of the explorations that fit."""
        names = explorations_for(self.policy) if self.explores else ["none"]
        return [name for name in names if self._fits(self.exploration_type(name))]

    def _fits(self, exploration: type[Exploration]) -> bool:
        """Whether the exploration can act for this agent: on its policy, and with settings that the agent has."""
        if not self.explores:
            return exploration.kind == "none"
        own = {field.name for field in dataclasses.fields(self.config)}
        return self.policy in exploration.policies and set(exploration.agent_settings) <= own

    def settings_for(self, exploration: type[Exploration]) -> dict[str, Any]:
        """The settings of the agent that an exploration which fits asks for."""
        return dict(exploration.agent_settings) if self._fits(exploration) else {}

    def exploration_type(self, kind: str) -> type[Exploration]:
        """The exploration of that name for the type of the agent's policy, or UsageError with those that fit."""
        if not is_known(kind):
            lookup("exploration", kind, dict.fromkeys(self.explorations))
        return find_exploration(kind, self.policy)

    def check_exploration(self, exploration: Exploration) -> None:
        """Raises UsageError if the exploration cannot act for this agent."""
        if self._fits(type(exploration)):
            return
        nature = f"actions are {' or '.join(self.actions)}"
        if issubclass(self.policy, StochasticPolicy):
            nature = "policy is stochastic"
        lacking = set(exploration.agent_settings) - {field.name for field in dataclasses.fields(self.config)}
        if lacking:
            nature = f"settings lack {', '.join(lacking)}"
        if not self.explores:
            nature = "own perturbations explore"
        if exploration.kind in self.explorations:
            own = self.exploration_type(exploration.kind).__name__
            remedy = f"its {exploration.kind!r} is {own}, not {type(exploration).__name__}"
        else:
            remedy = f"choose from {', '.join(self.explorations)}"
        raise UsageError(f"exploration {exploration.kind!r} does not fit {self.name}, whose {nature}: {remedy}")

    def build(self, config: Any, env: str, observation_space: gym.Space, action_space: gym.Space) -> Learner:
        """Makes the learner for an environment, or raises UsageError if it does not fit."""
        assert isinstance(observation_space, gym.spaces.Box)
        shape = observation_space.shape
        if len(shape) == 3 and "frames" not in self.observations:
            able = [entry.name for entry in AGENTS.values() if "frames" in entry.observations]
            raise UsageError(f"{env} shows pixels, which {self.name} does not take: only {' and '.join(able)} do")
        return self.make(config, Spaces(shape, *self._actions(env, action_space)))

    def _actions(self, env: str, space: gym.Space) -> tuple[int, bool, tuple[int, ...]]:
        """What `Spaces` says of actions."""
        if isinstance(space, gym.spaces.Box) and "continuous" in self.actions:
            return math.prod(space.shape), False, ()
        is_several = isinstance(space, gym.spaces.MultiDiscrete | gym.spaces.MultiBinary)
        kind = "multi-discrete" if is_several else "discrete"
        if not (is_several or isinstance(space, gym.spaces.Discrete)) or kind not in self.actions:
            wants = " or ".join(self.actions)
            raise UsageError(f"{self.name} needs {wants} actions, but the action space of {env} is {one_line(space)}")
        if np.any(getattr(space, "start", 0)):
            raise UsageError(f"{self.name} needs actions from 0, but those of {env} are {one_line(space)}: wrap it")
        if isinstance(space, gym.spaces.Discrete):
            return int(space.n), True, ()
        several = space.nvec if isinstance(space, gym.spaces.MultiDiscrete) else np.full(space.shape or (), 2)
        parts = tuple(map(int, np.ravel(several)))
        return sum(parts), True, parts


def applying(config: Any, spaces: Spaces) -> dict[str, Any]:
    """The settings of an agent that matter in such spaces, by name, with the values that they come to; for people.

    All of them, unless the config has a method `applying(spaces)`.
    """
    own = getattr(config, "applying", None)
    return dataclasses.asdict(config) if own is None else own(spaces)


AGENTS: dict[str, AgentEntry] = {}
"""Every agent by its name."""
Make = TypeVar("Make", bound=Callable[..., Learner])


def register_agent(
    name: str,
    *,
    config: type,
    experience: ExperienceKind,
    policy: type,
    actions: tuple[Actions, ...],
    default_exploration: str,
    title: str | None = None,
    observations: tuple[Observations, ...] = ("vectors",),
    explores: bool = True,
    exploration_settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[Make], Make]:
    """Makes an agent known by name to the command line, the API, run directories, presets and figures.

    It decorates `make(config, spaces)`. The arguments are the fields of `AgentEntry`. A `make` that is defined anew, as
    a notebook's cell does that runs twice, takes the place of the one before.

    Raises:
        UsageError: if another agent has the name already.
    """

    def register(make: Make) -> Make:
        if name in AGENTS and (other := definition(AGENTS[name].make)) != definition(make):
            raise UsageError(f"agent {name!r} is registered already, by {other}: choose another name")

        @functools.wraps(make)
        def made(config: Any, spaces: Spaces) -> Learner:
            return make(config, spaces)._replace(experience=experience, made_by=made)

        AGENTS[name] = AgentEntry(
            name=name,
            title=title or name,
            config=config,
            make=made,
            experience=experience,
            policy=policy,
            actions=actions,
            observations=observations,
            explores=explores,
            default_exploration=default_exploration,
            exploration_settings=exploration_settings or {},
        )
        return made  # type: ignore[return-value]

    return register


def find_agent(name: str) -> AgentEntry:
    """The agent of that name, or UsageError with those that exist."""
    return lookup("agent", name, AGENTS)
