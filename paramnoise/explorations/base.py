"""What an exploration is: how a policy becomes behaviour, per environment and per episode; and the registry of them.

An exploration is a frozen config with pure functions over a state of its own. It knows no learner, and no learner
knows it. A subclass overrides what it needs; the class itself is the simplest case, the policy alone.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

import jax
import numpy as np
from jax import Array

from paramnoise.networks.policies import DeterministicPolicy, GreedyPolicy, Policy, StochasticPolicy, VotingPolicy
from paramnoise.validation import UsageError, did_you_mean


class HostPolicy(Protocol):
    """A policy with its arrays in NumPy, as `Exploration.act_on_host` gets it: one for all environments or one for each."""

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
    """The name on the command line and in results; registration sets it."""
    policies: ClassVar[tuple[type, ...]] = (GreedyPolicy, VotingPolicy, DeterministicPolicy)
    """The types of policy that the strategy can act on."""
    adapt_every: ClassVar[int] = 0
    """Environment steps between two calls of `adapt`; 0: never. Some strategies have it as a field."""
    fixes_episodes: ClassVar[bool] = False
    """Whether an episode's behaviour is decided when it begins, whatever is learned meanwhile."""

    def init(self, policy: Policy, obs: Array) -> Any:
        """The state before the first `begin_episode`; only the shape of `obs`, [num_envs, ...], matters."""
        return ()

    def begin_episode(self, key: Array, state: Any, policy: Policy, starts: Array, step: Array) -> Any:
        """Prepares the environments in which an episode starts (bool[num_envs]) and leaves the others alone."""
        return state

    def act(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> tuple[Any, Array]:
        """Chooses the action to execute for each environment's observation, [num_envs, ...]."""
        values = jax.vmap(policy)(obs)
        is_stochastic = isinstance(policy, StochasticPolicy)
        return state, policy.random(key, values) if is_stochastic else jax.vmap(policy.greedy)(values)

    def adapt(self, key: Array, state: Any, policy: Policy, obs: Array, step: Array) -> Any:
        """Adapts the strategy on a batch of observations: replayed ones, or those of an on-policy batch."""
        return state

    def offsets(self, state: Any) -> Array | None:
        """On-policy: what each environment's behaviour adds to the flat parameters, [num_envs, parameters], if any."""
        return None

    def report(self, state: Any, step: Array) -> dict[str, Array]:
        """What a log should show."""
        return {}

    # The twin of `act` in NumPy, for small networks: a compiled call costs several times what they compute. It is used
    # where the class that defines `act` defines it too (`has_twin`), so that who overrides `act` is never ignored.

    @property
    def can_act_on_host(self) -> bool:
        """Whether, with these settings, `act_on_host` does what `act` does; the state must then stay as it is."""
        return True

    def acting_policy(self, state: Any, policy: Any) -> tuple[Any, bool]:
        """On the host: the policy that acts, arrays in NumPy, and whether these have an axis of environments."""
        return policy, False

    def act_on_host(self, policy: HostPolicy, obs: np.ndarray, noise: HostNoise) -> np.ndarray:
        """As `act`, of the acting policy, in NumPy; draws come from `noise`."""
        values = policy(obs)
        return policy.random(values, noise) if policy.is_stochastic else policy.greedy(values)


def has_twin(exploration: Exploration) -> bool:
    """Whether `act_on_host` may stand for `act`: one class defines both, and the settings allow it."""
    cls = type(exploration)
    return _definer(cls, "act") is _definer(cls, "act_on_host") and exploration.can_act_on_host


def _definer(cls: type, name: str) -> type:
    return next(base for base in cls.__mro__ if name in vars(base))


_REGISTERED: dict[str, list[type[Exploration]]] = {}
Strategy = TypeVar("Strategy", bound=type[Exploration])


def register_exploration(name: str) -> Callable[[Strategy], Strategy]:
    """Makes an exploration known by name to the command line, the API, run directories and figures.

    Several classes may share a name if they act on different types of policy: an agent finds the one that fits its own.
    """

    def register(cls: Strategy) -> Strategy:
        same = _REGISTERED.setdefault(name, [])
        for other in same:
            shared = {policy.__name__ for policy in cls.policies} & {policy.__name__ for policy in other.policies}
            if shared and other.__qualname__ != cls.__qualname__:
                raise UsageError(
                    f"exploration {name!r} is registered already for {', '.join(shared)}: by {other.__name__}"
                )
        same[:] = [other for other in same if other.__qualname__ != cls.__qualname__] + [cls]
        cls.kind = name
        return cls

    return register


def explorations_for(policy: type) -> list[str]:
    """The names of the explorations that can act on a type of policy."""
    return [name for name, classes in _REGISTERED.items() if any(policy in cls.policies for cls in classes)]


def find_exploration(name: str, policy: type) -> type[Exploration]:
    """The exploration of a name that acts on a type of policy, else any of that name.

    Raises:
        UsageError: if there is none of that name.
    """
    if name not in _REGISTERED:
        raise UsageError(f"unknown exploration {name!r}: {did_you_mean(name, _REGISTERED)}")
    classes = _REGISTERED[name]
    return next((cls for cls in classes if policy in cls.policies), classes[0])


@register_exploration("none")
class NoNoise(Exploration):
    """The policy alone: its noise-free action, or a draw from it if it is stochastic."""

    policies: ClassVar[tuple[type, ...]] = (*Exploration.policies, StochasticPolicy)
