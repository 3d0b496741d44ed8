"""Exploration by parameter space noise (Plappert et al., ICLR 2018).

What is public here is imported when it is first used, and JAX with it; `gymnasium.make` knows our ids at once.
"""

import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

_NAME = os.path.splitext(os.path.basename(next(iter(sys.argv), "")))[0]
_IS_COMMAND = _NAME == "paramnoise" or (_NAME == "-m" and "paramnoise" in sys.orig_argv)
if _IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C ends the command at once, from here on: no traceback from the midst of an import or of a computation.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from paramnoise.gymnasium_ids import register_ids  # noqa: E402
from paramnoise.plugins import load_known_plugins  # noqa: E402
from paramnoise.version import __version__ as __version__  # noqa: E402

if TYPE_CHECKING:
    from paramnoise import noise, schedules
    from paramnoise.agents.base import Learner, Spaces, register_agent
    from paramnoise.api import (
        DDPG,
        DQN,
        ES,
        PPO,
        PQN,
        SAC,
        TD3,
        TRPO,
        Agent,
        BootstrappedDQN,
        Evaluation,
        agent_class,
        load,
    )
    from paramnoise.callbacks import Callback
    from paramnoise.envs.base import AgentPreset, Preset, ReturnBounds, register_env
    from paramnoise.explorations import (
        BootstrapHead,
        ColouredDraws,
        ColouredNoise,
        EpsilonGreedy,
        Exploration,
        Gaussian,
        NoisyNet,
        NoNoise,
        OnPolicyParameterNoise,
        OrnsteinUhlenbeck,
        ParameterNoise,
        StateDraws,
        StateNoise,
    )
    from paramnoise.explorations.base import register_exploration
    from paramnoise.figures.base import register_figure
    from paramnoise.loops.frames import FrameStack
    from paramnoise.networks.own import register_network, register_optimizer
    from paramnoise.validation import UsageError

__all__ = [
    "DDPG",
    "DQN",
    "ES",
    "PPO",
    "PQN",
    "SAC",
    "TD3",
    "TRPO",
    "Agent",
    "AgentPreset",
    "BootstrapHead",
    "BootstrappedDQN",
    "Callback",
    "ColouredDraws",
    "ColouredNoise",
    "EpsilonGreedy",
    "Evaluation",
    "Exploration",
    "FrameStack",
    "Gaussian",
    "Learner",
    "NoNoise",
    "NoisyNet",
    "OnPolicyParameterNoise",
    "OrnsteinUhlenbeck",
    "ParameterNoise",
    "Preset",
    "ReturnBounds",
    "Spaces",
    "StateDraws",
    "StateNoise",
    "UsageError",
    "agent_class",
    "load",
    "noise",
    "register_agent",
    "register_env",
    "register_exploration",
    "register_figure",
    "register_network",
    "register_optimizer",
    "schedules",
]

_HOMES = (
    *("validation", "explorations", "explorations.base", "networks.own", "agents.base", "loops.frames", "envs.base"),
    *("callbacks", "api", "figures.base"),
)
"""The modules that hold the names above, in the order in which they are asked: each imports those before it."""


if not TYPE_CHECKING:  # for a type checker such a function would make any name good

    def __getattr__(name: str) -> Any:
        """Imports a public name when it is first used."""
        if name in ("noise", "schedules"):
            return importlib.import_module(f"paramnoise.{name}")
        if name in __all__:
            for home in _HOMES:
                held = vars(importlib.import_module(f"paramnoise.{home}"))
                if name in held:
                    globals()[name] = held[name]
                    return held[name]
        raise AttributeError(f"module 'paramnoise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_ids()
load_known_plugins()  # last, so that a plug-in can use all of the above
