"""The agents: each a frozen config and a `make` that returns pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym

from paramnoise.agents import bootstrapped_dqn, ddpg, dqn, es, trpo
from paramnoise.agents.bootstrapped_dqn import BootstrappedDQNConfig
from paramnoise.agents.ddpg import DDPGConfig
from paramnoise.agents.dqn import DQNConfig
from paramnoise.agents.es import ESConfig, ESLearner
from paramnoise.agents.learner import Learner, Transition
from paramnoise.agents.trpo import OnPolicyLearner, TRPOConfig
from paramnoise.exploration import EXPLORATIONS, Exploration
from paramnoise.on_policy_noise import ON_POLICY_EXPLORATIONS
from paramnoise.policies import DeterministicPolicy, GreedyPolicy, StochasticPolicy, VotingPolicy
from paramnoise.strategy import NoNoise
from paramnoise.validation import UsageError, choose


class Algorithm(NamedTuple):
    """An agent by its name on the command line."""

    name: str
    title: str
    config: type
    make: Callable[..., Learner | OnPolicyLearner | ESLearner]
    """config, observation size (pixels: shape), number or dimensions of actions -> learner; one that takes both kinds
    of actions also wants to know whether they are discrete."""
    policy: type | None
    """The type of its policy, which decides the explorations that fit; None: its learning is exploration, none fits."""
    default_exploration: str

    @property
    def is_continuous(self) -> bool:
        """Whether its actions are continuous."""
        return self.policy is DeterministicPolicy

    @property
    def is_on_policy(self) -> bool:
        """Whether it learns from what its own, stochastic policy does; it takes both kinds of actions."""
        return self.policy is StochasticPolicy

    @property
    def is_population(self) -> bool:
        """Whether it learns by perturbing its policy, and so needs no exploration; it takes both kinds of actions."""
        return self.policy is None

    @property
    def explorations(self) -> list[str]:
        """The names of the explorations that fit."""
        known = ON_POLICY_EXPLORATIONS if self.is_on_policy else EXPLORATIONS
        return [kind for kind, cls in known.items() if self._fits(cls)]

    def exploration_type(self, kind: str) -> type[Exploration]:
        """The exploration of that name, or UsageError if there is none; what a name means is the agent's to say."""
        on_policy = ON_POLICY_EXPLORATIONS if self.is_on_policy else {}
        return choose("exploration", kind, {**EXPLORATIONS, **on_policy})

    def check_exploration(self, exploration: Exploration) -> None:
        """Raises UsageError if the exploration cannot act on this agent's policy."""
        if self._fits(type(exploration)):
            return
        nature = f"actions are {'continuous' if self.is_continuous else 'discrete'}"
        if self.is_on_policy:
            nature = "policy is stochastic"
        if self.is_population:
            nature = "own perturbations explore"
        if exploration.kind in self.explorations:
            fits = self.exploration_type(exploration.kind).__name__
            remedy = f"its {exploration.kind!r} is {fits}, not {type(exploration).__name__}"
        else:
            remedy = f"choose from {', '.join(self.explorations)}"
        raise UsageError(f"exploration {exploration.kind!r} does not fit {self.name}, whose {nature}: {remedy}")

    def build(self, config: Any, env: str, observation_space: gym.Space, action_space: gym.Space) -> Any:
        """Makes the learner for an environment, or raises UsageError if the action space does not fit.

        It is a `Learner`, an `OnPolicyLearner` if the agent is on-policy, or an `ESLearner`.
        """
        assert isinstance(observation_space, gym.spaces.Box)
        is_discrete = isinstance(action_space, gym.spaces.Discrete)
        takes_both = self.is_on_policy or self.is_population
        kind = {"is_discrete": is_discrete} if takes_both else {}
        wants_discrete = is_discrete if takes_both else not self.is_continuous
        shape = observation_space.shape
        observation = shape[0] if len(shape) == 1 else shape  # a vector's size, or the shape of a stack of frames
        return self.make(config, observation, self._action_size(env, action_space, wants_discrete), **kind)

    def _fits(self, exploration: type[Exploration]) -> bool:
        return issubclass(exploration, NoNoise) if self.is_population else self.policy in exploration.policies

    def _action_size(self, env: str, space: gym.Space, wants_discrete: bool) -> int:
        if not wants_discrete:
            if not (isinstance(space, gym.spaces.Box) and len(space.shape) == 1):
                raise UsageError(f"{self.name} needs continuous actions, but the action space of {env} is {space}")
            return space.shape[0]
        if not isinstance(space, gym.spaces.Discrete):
            raise UsageError(f"{self.name} needs discrete actions, but the action space of {env} is {space}")
        if space.start != 0:
            raise UsageError(f"{self.name} needs actions from 0, but those of {env} are {space}: wrap it")
        return int(space.n)


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("dqn", "DQN", DQNConfig, dqn.make, GreedyPolicy, "epsilon-greedy"),
        Algorithm(
            "bootstrapped-dqn",
            "bootstrapped DQN",
            BootstrappedDQNConfig,
            bootstrapped_dqn.make,
            VotingPolicy,
            "bootstrap",
        ),
        Algorithm("ddpg", "DDPG", DDPGConfig, ddpg.make, DeterministicPolicy, "parameter"),
        Algorithm("trpo", "TRPO", TRPOConfig, trpo.make, StochasticPolicy, "parameter"),
        Algorithm("es", "evolution strategies", ESConfig, es.make, None, "none"),
    )
}
"""Every agent by its name on the command line."""

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "BootstrappedDQNConfig",
    "DDPGConfig",
    "DQNConfig",
    "ESConfig",
    "ESLearner",
    "Learner",
    "OnPolicyLearner",
    "TRPOConfig",
    "Transition",
]
