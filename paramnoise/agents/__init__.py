"""The agents: each a frozen config and a `make` that returns pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym

from paramnoise.agents import bootstrapped_dqn, ddpg, dqn, trpo
from paramnoise.agents.bootstrapped_dqn import BootstrappedDQNConfig
from paramnoise.agents.ddpg import DDPGConfig
from paramnoise.agents.dqn import DQNConfig
from paramnoise.agents.learner import Learner, Transition
from paramnoise.agents.trpo import OnPolicyLearner, TRPOConfig
from paramnoise.exploration import EXPLORATIONS, Exploration
from paramnoise.on_policy_noise import ON_POLICY_EXPLORATIONS
from paramnoise.policies import DeterministicPolicy, GreedyPolicy, StochasticPolicy, VotingPolicy
from paramnoise.validation import UsageError, choose


class Algorithm(NamedTuple):
    """An agent by its name on the command line."""

    name: str
    title: str
    config: type
    make: Callable[..., Learner | OnPolicyLearner]
    """config, observation size, number (or dimensions) of actions -> learner; on-policy also whether discrete."""
    policy: type
    """The type of its policy, which decides the explorations that fit."""
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
    def explorations(self) -> list[str]:
        """The names of the explorations that fit."""
        known = ON_POLICY_EXPLORATIONS if self.is_on_policy else EXPLORATIONS
        return [kind for kind, cls in known.items() if self.policy in cls.policies]

    def exploration_type(self, kind: str) -> type[Exploration]:
        """The exploration of that name, or UsageError if there is none; what a name means is the agent's to say."""
        on_policy = ON_POLICY_EXPLORATIONS if self.is_on_policy else {}
        return choose("exploration", kind, {**EXPLORATIONS, **on_policy})

    def check_exploration(self, exploration: Exploration) -> None:
        """Raises UsageError if the exploration cannot act on this agent's policy."""
        if self.policy in exploration.policies:
            return
        actions = "continuous" if self.is_continuous else "discrete"
        nature = "policy is stochastic" if self.is_on_policy else f"actions are {actions}"
        if exploration.kind in self.explorations:
            fits = self.exploration_type(exploration.kind).__name__
            remedy = f"its {exploration.kind!r} is {fits}, not {type(exploration).__name__}"
        else:
            remedy = f"choose from {', '.join(self.explorations)}"
        raise UsageError(f"exploration {exploration.kind!r} does not fit {self.name}, whose {nature}: {remedy}")

    def build(self, config: Any, env: str, observation_space: gym.Space, action_space: gym.Space) -> Any:
        """Makes the learner for an environment, or raises UsageError if the action space does not fit.

        It is a `Learner`, or an `OnPolicyLearner` if the agent is on-policy.
        """
        assert isinstance(observation_space, gym.spaces.Box)
        is_discrete = isinstance(action_space, gym.spaces.Discrete)
        kind = {"is_discrete": is_discrete} if self.is_on_policy else {}
        wants_discrete = is_discrete if self.is_on_policy else not self.is_continuous
        return self.make(
            config, observation_space.shape[0], self._action_size(env, action_space, wants_discrete), **kind
        )

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
    )
}
"""Every agent by its name on the command line."""

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "BootstrappedDQNConfig",
    "DDPGConfig",
    "DQNConfig",
    "Learner",
    "OnPolicyLearner",
    "TRPOConfig",
    "Transition",
]
