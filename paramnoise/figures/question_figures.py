"""Figures of our own, for questions that the paper leaves open: what decides a result, and what the noise needs."""

from typing import Any

from paramnoise.envs.continuous import DENSE
from paramnoise.figures.atari_figure import SMOKE, AtariFigure, AtariScale
from paramnoise.figures.base import Method, register_figure
from paramnoise.figures.chain_figure import ChainFigure, ChainScale
from paramnoise.figures.continuous_figures import scales
from paramnoise.figures.curves import CurveFigure

CHEETAH = DENSE[:1]
NUM_ENVS = 32
"""Environments of the runs that share perturbed policies, or do not."""
FIXED_SIGMAS = (0.01, 0.03, 0.1)
"""Adapted to delta 0.2, sigma starts at 0.2 and is near 0.02 after 50,000 steps of HalfCheetah."""
BEHIND = ("Pong", "Breakout", "Seaquest")
"""The games on which parameter noise starts later than epsilon-greedy, or is behind it after 4M frames."""
OLDEST = 1_000
"""Steps that a policy acts at most, on games where some get stuck: longer than most lives of Seaquest's first games."""
NO_LAYER_NORM: dict[str, Any] = {"variant": "no-layer-norm", "agent": {"layer_norm": False}}

register_figure(
    CurveFigure(
        name="time-limits",
        methods=tuple(
            Method("ddpg", exploration, f"{label}, {limit} time limits", variant=variant, run=run)
            for limit, variant, run in (
                ("bootstrapped", "", {}),
                ("terminal", "terminal", {"terminal_time_limits": True}),
            )
            for exploration, label in (("none", "No noise"), ("parameter", "Parameter noise"))
        ),
        scales=scales(paper=CHEETAH, small=CHEETAH, smoke=CHEETAH, smoke_steps=2_000, seeds=10),
        subjects=("parameter", "parameter-terminal"),
    )
)
register_figure(
    CurveFigure(
        name="ablations",
        methods=(
            Method("ddpg", "parameter", "Adaptive parameter noise"),
            Method("ddpg", "parameter", "Without layer norm", **NO_LAYER_NORM),
            *(
                Method(
                    "ddpg",
                    "parameter",
                    f"Fixed sigma {sigma}",
                    variant=f"sigma-{sigma}",
                    exploration_settings={"sigma": sigma, "alpha": 1.0},
                )
                for sigma in FIXED_SIGMAS
            ),
            *(
                Method(
                    "ddpg",
                    "parameter",
                    f"{NUM_ENVS} environments, {number} perturbed {'policy' if number == 1 else 'policies'}",
                    variant=f"policies-{number}",
                    exploration_settings={"num_policies": number},
                    run={"num_envs": NUM_ENVS},
                )
                for number in (1, 8, NUM_ENVS)
            ),
            Method("ddpg", "none", "No noise"),
            Method("ddpg", "none", "No noise, without layer norm", **NO_LAYER_NORM),
        ),
        # All steps are multiples of 32: runs with so many environments are evaluated at the same steps as the others.
        scales=scales(paper=CHEETAH, small=CHEETAH, smoke=CHEETAH, smoke_steps=3_200),
    )
)
register_figure(
    ChainFigure(
        name="ablations-chain",
        methods=(
            Method("dqn", "parameter", "Parameter space noise DQN"),
            Method("dqn", "parameter", "Without layer norm", **NO_LAYER_NORM),
        ),
        scales={
            "smoke": ChainScale(lengths=(5,), seeds=1, episodes=200),
            "small": ChainScale(lengths=(20, 50), seeds=3, episodes=2_000),
            "paper": ChainScale(lengths=(20, 50, 100), seeds=10, episodes=2_000),
        },
    )
)
register_figure(
    AtariFigure(
        name="ablations-atari",
        methods=(
            Method("dqn", "parameter", "Delta follows epsilon from 1 to 0.1", agent={"policy_head": True}),
            Method(
                "dqn",
                "parameter",
                "Delta of epsilon 0.1 throughout",
                variant="small-delta",
                agent={"policy_head": True},
                exploration_settings={"epsilon_start": 0.1},
            ),
            Method(
                "dqn",
                "parameter",
                f"As the first, no policy older than {OLDEST:,} steps",
                variant="renewed",
                agent={"policy_head": True},
                exploration_settings={"max_age": OLDEST},
            ),
        ),
        scales={
            "smoke": SMOKE,
            "small": AtariScale(envs=BEHIND[:1], seeds=3, steps=500_000),
            "paper": AtariScale(envs=BEHIND, seeds=3, steps=1_000_000),
        },
    )
)
