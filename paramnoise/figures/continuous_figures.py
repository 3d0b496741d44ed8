"""The paper's learning curves on continuous control: DDPG and TRPO, with dense and with sparse rewards (sec. 4)."""

from paramnoise.envs.continuous import DENSE, SPARSE
from paramnoise.figures.base import Method, register_figure
from paramnoise.figures.curves import CurveFigure, CurveScale


def _scales(
    *, paper: tuple[str, ...], small: tuple[str, ...], smoke: tuple[str, ...], smoke_steps: int
) -> dict[str, CurveScale]:
    """Runs of `small` are the beginnings of those of `paper`, which goes on with them."""
    return {
        "smoke": CurveScale(envs=smoke, seeds=1, steps=smoke_steps, eval_every=smoke_steps // 2, eval_episodes=2),
        "small": CurveScale(envs=small, seeds=3, steps=200_000),
        "paper": CurveScale(envs=paper, seeds=5, steps=1_000_000),
    }


DDPG = (
    Method("ddpg", "none", "No noise"),
    Method("ddpg", "gaussian", "Uncorrelated action noise"),
    Method("ddpg", "ou", "Correlated action noise (OU)"),
    Method("ddpg", "parameter", "Adaptive parameter noise"),
)
TRPO = (
    Method("trpo", "none", "Action noise of the policy alone"),
    Method("trpo", "parameter", "Parameter noise"),
)
register_figure(
    CurveFigure(
        name="ddpg-dense",
        paper="Figures 2 and 8",
        methods=DDPG,
        scales=_scales(paper=DENSE, small=DENSE[:3], smoke=(DENSE[0], DENSE[-1]), smoke_steps=2_000),
    )
)
register_figure(
    CurveFigure(
        name="ddpg-sparse",
        paper="Figure 5",
        methods=DDPG,
        scales=_scales(paper=SPARSE, small=SPARSE[2:], smoke=(SPARSE[2], SPARSE[4]), smoke_steps=2_000),
    )
)
register_figure(
    CurveFigure(
        name="trpo-dense",
        paper="Figure 3",
        methods=TRPO,
        scales=_scales(paper=DENSE[:3], small=DENSE[:3], smoke=(DENSE[0], DENSE[-1]), smoke_steps=10_000),
        steps_per_epoch=5_000,
    )
)
register_figure(
    CurveFigure(
        name="trpo-sparse",
        paper="Figure 9",
        methods=TRPO,
        scales=_scales(paper=SPARSE[2:], small=SPARSE[2:], smoke=(SPARSE[2], SPARSE[4]), smoke_steps=10_000),
        steps_per_epoch=5_000,
    )
)
