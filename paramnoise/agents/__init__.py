"""The agents: each a frozen config and a `make` that returns pure functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym

from paramnoise.agents import bootstrapped_dqn, ddpg, dqn
from paramnoise.agents.bootstrapped_dqn import BootstrappedDQNConfig
from paramnoise.agents.ddpg import DDPGConfig
from paramnoise.agents.dqn import DQNConfig
from paramnoise.agents.learner import Learner, Transition
from paramnoise.exploration import EXPLORATIONS, Exploration
from paramnoise.policies import DeterministicPolicy, GreedyPolicy, VotingPolicy
from paramnoise.validation import UsageError


class Algorithm(NamedTuple):
    """An agent by its name on the command line."""

    name: str
    title: str
    config: type
    make: Callable[[Any, int, int], Learner]
    """config, observation size, number (or dimensions) of actions -> Learner."""
    policy: type
    """The type of its policy, which decides the explorations that fit."""
    default_exploration: str

    @property
    def is_continuous(self) -> bool:
        """Whether its actions are continuous."""
        return self.policy is DeterministicPolicy

    @property
    def explorations(self) -> list[str]:
        """The names of the explorations that fit."""
        return [kind for kind, cls in EXPLORATIONS.items() if self.policy in cls.policies]

    def check_exploration(self, exploration: Exploration) -> None:
        """Raises UsageError if the exploration cannot act on this agent's policy."""
        if self.policy not in exploration.policies:
            raise UsageError(
                f"exploration {exploration.kind!r} does not fit {self.name}, "
                f"whose actions are {'continuous' if self.is_continuous else 'discrete'}: "
                f"choose from {', '.join(self.explorations)}"
            )

    def build(self, config: Any, env: str, observation_space: gym.Space, action_space: gym.Space) -> Learner:
        """Makes the learner for an environment, or raises UsageError if the action space does not fit."""
        assert isinstance(observation_space, gym.spaces.Box)
        return self.make(config, observation_space.shape[0], self._action_size(env, action_space))

    def _action_size(self, env: str, space: gym.Space) -> int:
        if self.is_continuous:
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
    "Transition",
]
