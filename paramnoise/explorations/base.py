"""What an exploration is: how a policy becomes behaviour, per environment and per episode; and the registry of them.

An exploration is a frozen config with pure functions over a state of its own. It knows no learner, and no learner
knows it. A subclass overrides what it needs; the class itself is the simplest case, the policy alone.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from paramnoise.networks.policies import (
    DRAWN,
    DeterministicPolicy,
    GreedyPolicy,
    Policy,
    SquashedGaussianPolicy,
    StochasticPolicy,
    VotingPolicy,
)
from paramnoise.validation import UsageError, lookup


class HostPolicy(Protocol):
    """A policy with its arrays in NumPy, as `act_on_host` gets it; all environments share it, or each has its own.

    What the environments show is not to be written to: replay and other seeds see it, too.
    """

    is_stochastic: bool

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """The policy's output for the observation of each environment, [num_envs, ...]."""

    def greedy(self, values: np.ndarray) -> np.ndarray:
        """The noise-free action for each output."""

    def random(self, values: np.ndarray, noise: "HostNoise") -> np.ndarray:
        """An action drawn from the distribution that each output stands for."""


class HostNoise(Protocol):
    """The randomness of one vector step on the host: a function of the seed and the step, so nothing of it is saved."""

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal numbers, float32."""

    def gumbel(self, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers of the standard Gumbel distribution, float32."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exploration:
    """The interface, and its simplest case: act on the clean policy, without state."""

    kind: ClassVar[str] = ""
    """The name on the command line and in results; registration sets it, and before it is that of the class."""
    policies: ClassVar[tuple[type, ...]] = (GreedyPolicy, VotingPolicy, DeterministicPolicy)
    """The types of policy that the strategy can act on."""
    adapt_every: ClassVar[int] = 0
    """Environment steps between two calls of `adapt`; 0: never. Some strategies have it as a field."""
    agent_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings that an agent must have for the strategy, with the values that they get unless others are set."""
    fixes_episodes: ClassVar[bool] = False
    """Whether an episode's behaviour is decided when it begins, whatever is learned meanwhile. It is said of the `act`
    of the same class: a subclass with another `act` says it again (`is_fixed_by_episode`)."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Gives a subclass a name of its own, so that it does not pass for its parent in a run directory."""
        super().__init_subclass__(**keywords)
        cls.kind = cls.__name__

    def init(self, policy: Policy, obs: Array) -> Any:
        """The state before the first `begin_episode`; only the shape of `obs`, [num_envs, ...], matters."""
        return ()

    def begin_episode(self, key: Array, state: Any, policy: Policy, starts: Array, step: Array) -> Any:
        """Prepares the environments in which an episode starts (bool[num_envs]) and leaves the others alone."""
        return state

    def begin_first(self, key: Array, state: Any, policy: Policy, starts: Array, step: Array) -> tuple[Any, Array]:
        """As `begin_episode`, at about the same cost at every step, however many episodes start.

        With the state it returns where an episode still has to begin, bool[num_envs]: a loop on an accelerator calls
        `begin_episode` for these before it acts.
        """
        return self.begin_episode(key, state, policy, starts, step), jnp.zeros_like(starts)

    def act(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        """Chooses the action to execute for each environment's observation, [num_envs, ...]."""
        values = jax.vmap(policy)(obs)
        return state, policy.random(key, values) if isinstance(policy, DRAWN) else jax.vmap(policy.greedy)(values)

    def adapt(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> Any:
        """Adapts the strategy on a batch of observations: replayed ones, or those of an on-policy batch."""
        return state

    def offsets(self, state: Any) -> Array | None:
        """What each environment's behaviour adds to the policy's flat parameters, [num_envs, parameters].

        On-policy learners need it to see through the noise. None: the strategy adds nothing.
        """
        return None

    def report(self, state: Any, step: Array) -> dict[str, Array]:
        """What a log should show."""
        return {}

    def applying(self, actions: int, is_discrete: bool) -> dict[str, Any]:
        """The settings that matter, by name, with the values that they come to; for people.

        Args:
            actions: the number of discrete actions, or the dimensions of continuous ones.
            is_discrete: whether actions are discrete.
        """
        return dataclasses.asdict(self)

    # For a small network a compiled call costs several times what the network computes, so a strategy may have a twin
    # of `act` in NumPy. Loops use the twin only if the class that defines `act` defines it too (`has_twin`): a subclass
    # that overrides `act` alone is never bypassed.

    @property
    def can_act_on_host(self) -> bool:
        """Whether, with these settings, `act_on_host` does what `act` does; `act` must then keep the state as it is."""
        return True

    def acting_policy(self, state: Any, policy: Any) -> tuple[Any, bool]:
        """The policy that acts, and whether its arrays have a leading axis of environments; all in NumPy."""
        return policy, False

    def act_on_host(self, noise: HostNoise, state: Any, policy: HostPolicy, obs: np.ndarray, step: int) -> np.ndarray:
        """As `act`, in NumPy: random numbers come from `noise`, and `policy` is what `acting_policy` returned."""
        values = policy(obs)
        return policy.random(values, noise) if policy.is_stochastic else policy.greedy(values)


def has_twin(exploration: Exploration) -> bool:
    """Whether `act_on_host` may stand for `act`: one class defines both, and the settings allow it."""
    cls = type(exploration)
    return _definer(cls, "act") is _definer(cls, "act_on_host") and exploration.can_act_on_host


def is_fixed_by_episode(exploration: Exploration) -> bool:
    """Whether `fixes_episodes` is true of the `act` that the exploration has: a subclass may override `act` alone."""
    cls = type(exploration)
    return exploration.fixes_episodes and issubclass(_definer(cls, "fixes_episodes"), _definer(cls, "act"))


def acts_by_clean_policy(exploration: Exploration) -> bool:
    """Whether what acts on the host is the clean policy, whatever the state: there is no `acting_policy` of its own."""
    return _definer(type(exploration), "acting_policy") is Exploration


def _definer(cls: type, name: str) -> type:
    """The class whose method an object of `cls` uses."""
    return next(base for base in cls.__mro__ if name in vars(base))


_REGISTERED: dict[str, list[type[Exploration]]] = {}
Strategy = TypeVar("Strategy", bound=type[Exploration])


def register_exploration(name: str) -> Callable[[Strategy], Strategy]:
    """Makes an exploration known by name to the command line, the API, run directories and figures.

    Several classes may share a name if they act on different types of policy: an agent finds the one that fits its own.
    A class that is defined anew, as a notebook's cell does that runs twice, takes the place of the one before.

    Raises:
        UsageError: if another class has the name already for one of these types of policy.
    """

    def register(cls: Strategy) -> Strategy:
        others = [other for other in _REGISTERED.get(name, []) if definition(other) != definition(cls)]
        for other in others:
            shared = [policy.__name__ for policy in cls.policies if policy in other.policies]
            if shared:
                taken = f"exploration {name!r} is registered already for {', '.join(shared)}"
                raise UsageError(f"{taken}, by {definition(other)}: choose another name")
        _REGISTERED[name] = [*others, cls]
        cls.kind = name
        return cls

    return register


def is_registered(cls: type[Exploration]) -> bool:
    """Whether the class itself can be found by its name."""
    return cls in _REGISTERED.get(cls.kind, [])


def definition(what: Any) -> str:
    """Where a class or a function is defined: module and name."""
    return f"{what.__module__}.{what.__qualname__}"


def explorations_for(policy: type) -> list[str]:
    """The names of the explorations that can act on a type of policy."""
    return [name for name, classes in _REGISTERED.items() if any(policy in cls.policies for cls in classes)]


def is_known(name: str) -> bool:
    """Whether there is an exploration of that name, for any type of policy."""
    return name in _REGISTERED


def find_exploration(name: str, policy: type) -> type[Exploration]:
    """The exploration of that name for a type of policy.

    If none of that name fits the policy, it is one that does not: `AgentEntry.check_exploration` says what does.

    Raises:
        UsageError: if there is none of that name.
    """
    classes = lookup("exploration", name, _REGISTERED)
    return next((cls for cls in classes if policy in cls.policies), classes[0])


@register_exploration("none")
class NoNoise(Exploration):
    """The policy alone: its noise-free action, or a draw from it if it is stochastic."""

    policies: ClassVar[tuple[type, ...]] = (*Exploration.policies, SquashedGaussianPolicy, StochasticPolicy)
