"""A class for each agent of this package, which names its algorithm and the keywords that it takes."""

from typing import Any

from paramnoise import keywords
from paramnoise.api.agent import Agent
from paramnoise.envs import EnvLike


class DQN(Agent):
    """DQN, plain or with a policy head (`policy_head=True`); explores by `EpsilonGreedy` unless told otherwise."""

    algorithm = "dqn"

    @keywords.takes(keywords.DQNKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class BootstrappedDQN(Agent):
    """Bootstrapped DQN; explores by `BootstrapHead` unless told otherwise."""

    algorithm = "bootstrapped-dqn"

    @keywords.takes(keywords.BootstrappedDQNKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class DDPG(Agent):
    """DDPG for continuous actions; explores by `ParameterNoise` unless told otherwise."""

    algorithm = "ddpg"

    @keywords.takes(keywords.DDPGKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class TD3(Agent):
    """TD3 for continuous actions; explores by `ParameterNoise` unless told otherwise."""

    algorithm = "td3"

    @keywords.takes(keywords.TD3Keywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class SAC(Agent):
    """SAC for continuous actions; explores by its own stochastic policy (`NoNoise`) unless told otherwise."""

    algorithm = "sac"

    @keywords.takes(keywords.SACKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class TRPO(Agent):
    """TRPO for continuous or discrete actions; explores by `OnPolicyParameterNoise` unless told otherwise."""

    algorithm = "trpo"

    @keywords.takes(keywords.TRPOKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class PPO(Agent):
    """PPO for continuous or discrete actions; explores by `OnPolicyParameterNoise` unless told otherwise."""

    algorithm = "ppo"

    @keywords.takes(keywords.PPOKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class PQN(Agent):
    """PQN for discrete actions; explores by `EpsilonGreedy` unless told otherwise."""

    algorithm = "pqn"

    @keywords.takes(keywords.PQNKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)


class ES(Agent):
    """Evolution strategies for continuous or discrete actions; it learns by perturbing, so nothing else explores."""

    algorithm = "es"

    @keywords.takes(keywords.ESKeywords)
    def __init__(self, env: EnvLike, **settings: Any):
        super().__init__(env, **settings)
