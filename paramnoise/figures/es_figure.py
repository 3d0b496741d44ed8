"""Evolution strategies against DDPG and TRPO with parameter noise: steps until a return is reached (sec. 4.3)."""

from paramnoise.envs.continuous import DENSE, SPARSE
from paramnoise.figures.base import Method, register_figure
from paramnoise.figures.curves import CurveFigure, CurveScale

REACHED: dict[str, tuple[float, ...]] = {
    "HalfCheetah-v4": (1_000.0, 2_000.0),
    "Hopper-v4": (1_000.0,),
    "InvertedPendulum-v4": (950.0,),
    SPARSE[2]: (100.0, 400.0),
    SPARSE[4]: (0.9,),
}
"""The returns that `reproduce es` waits for, each at some way to what its task allows; docs/experiments.md says why."""

register_figure(
    CurveFigure(
        name="es",
        paper="Section 4.3",
        methods=(
            Method("es", "none", "Evolution strategies"),
            Method("ddpg", "parameter", "DDPG, parameter noise"),
            Method("trpo", "parameter", "TRPO, parameter noise"),
        ),
        scales={
            "smoke": CurveScale(envs=(DENSE[-1],), seeds=1, steps=2_000, eval_every=1_000, eval_episodes=2),
            "small": CurveScale(envs=tuple(REACHED), seeds=3, steps=200_000, eval_every=5_000, eval_episodes=10),
            "paper": CurveScale(envs=tuple(REACHED), seeds=5, steps=1_000_000, eval_every=5_000, eval_episodes=10),
        },
        times={"es": 25},  # as much more as it had in the paper's comparison
        thresholds=REACHED,
    )
)
