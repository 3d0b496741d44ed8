"""The paper's learning curves on continuous control: DDPG and TRPO, with dense and with sparse rewards (sec. 4)."""

import dataclasses
from typing import Any

from paramnoise.envs.continuous import DENSE, SPARSE
from paramnoise.figures.base import Method, register_figure
from paramnoise.figures.curves import CurveFigure, CurveScale


def scales(
    *,
    paper: tuple[str, ...],
    small: tuple[str, ...],
    smoke: tuple[str, ...],
    smoke_steps: int,
    seeds: int = 5,
    steps: int = 1_000_000,
    **evaluation: Any,
) -> dict[str, CurveScale]:
    """Runs of `small` are the beginnings of those of `paper`, which goes on with them.

    Args:
        paper: the tasks at the scale paper.
        small: those at the scale small.
        smoke: those at the scale smoke.
        smoke_steps: environment steps of a run at the scale smoke.
        seeds: seeds at the scale paper.
        steps: environment steps of a run at the scale paper.
        evaluation: `eval_every` and `eval_episodes` of small and paper, in place of the defaults.
    """
    return {
        "smoke": CurveScale(envs=smoke, seeds=1, steps=smoke_steps, eval_every=smoke_steps // 2, eval_episodes=2),
        "small": CurveScale(envs=small, seeds=3, steps=200_000, **evaluation),
        "paper": CurveScale(envs=paper, seeds=seeds, steps=steps, **evaluation),
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
TRPO_EVALUATION = {"eval_every": 20_000, "eval_episodes": 10}
"""Every four epochs: TRPO learns so fast that more evaluations would take most of the time."""
PAPER_L2 = 1e-2
"""The L2 of the paper's critic, which the preset of the sparse tasks does not have."""

register_figure(
    CurveFigure(
        name="ddpg-dense",
        paper="Figures 2 and 8",
        methods=DDPG,
        scales=scales(paper=DENSE, small=DENSE[:3], smoke=(DENSE[0], DENSE[-1]), smoke_steps=2_000),
    )
)
register_figure(
    CurveFigure(
        name="ddpg-sparse",
        paper="Figure 5",
        methods=DDPG,
        scales=scales(paper=SPARSE, small=SPARSE[2:], smoke=(SPARSE[2], SPARSE[4]), smoke_steps=2_000),
    )
)
register_figure(
    CurveFigure(
        name="ddpg-sparse-l2",
        paper="Figure 5, with the paper's L2",
        methods=tuple(dataclasses.replace(method, agent={"critic_l2": PAPER_L2}) for method in DDPG),
        scales=scales(paper=SPARSE[2::2], small=SPARSE[4:], smoke=SPARSE[4:], smoke_steps=2_000),
    )
)
register_figure(
    CurveFigure(
        name="trpo-dense",
        paper="Figure 3",
        methods=TRPO,
        scales=scales(
            paper=DENSE[:3],
            small=DENSE[:3],
            smoke=(DENSE[0], DENSE[-1]),
            smoke_steps=10_000,
            steps=2_000_000,
            **TRPO_EVALUATION,
        ),
        steps_per_epoch=5_000,
    )
)
register_figure(
    CurveFigure(
        name="trpo-sparse",
        paper="Figure 9",
        methods=(
            TRPO[0],
            *(
                Method(
                    "trpo",
                    "parameter",
                    f"Parameter noise, KL bound {delta}",
                    variant=f"delta-{delta}",
                    exploration_settings={"delta": delta},
                )
                for delta in (0.01, 0.1, 1.0)
            ),
        ),
        scales=scales(
            paper=SPARSE[2:],
            small=SPARSE[2:],
            smoke=(SPARSE[2], SPARSE[4]),
            smoke_steps=10_000,
            steps=4_000_000,
            **TRPO_EVALUATION,
        ),
        steps_per_epoch=5_000,
        subjects=("parameter-delta-0.1",),
    )
)
