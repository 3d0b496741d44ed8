"""Parameter noise and what came after it, learner by learner: every exploration that fits, on the same tasks.

Networks are small, 64-64, batches are of 128 transitions, and the other settings are each task's preset. Each figure is
one learner, so that each can be run alone; `figures/rivals.py` puts them together.
"""

import dataclasses

from paramnoise.envs.continuous import DENSE, SPARSE
from paramnoise.figures.atari_figure import SMOKE, AtariFigure, AtariScale
from paramnoise.figures.base import Method, register_figure
from paramnoise.figures.chain_figure import ChainFigure, ChainScale
from paramnoise.figures.continuous_figures import scales
from paramnoise.figures.curves import CurveFigure

RUNNERS = DENSE[:3]
"""HalfCheetah, Walker2d and Hopper."""
LABELS = {
    "none": "The policy alone",
    "gaussian": "Gaussian noise",
    "ou": "Ornstein-Uhlenbeck noise",
    "pink": "Pink noise",
    "gsde": "gSDE",
    "parameter": "Parameter noise",
    "epsilon-greedy": "Epsilon-greedy",
    "bootstrap": "Bootstrapped heads",
    "noisy": "Noisy layers",
}
SMALL = {"hidden_sizes": (64, 64)}
REPLAYED = {**SMALL, "batch_size": 128}
EVALUATION = {"eval_every": 25_000, "eval_episodes": 10}
LEARNERS = {
    "ddpg": ("none", "gaussian", "ou", "pink", "gsde", "parameter"),
    "td3": ("none", "gaussian", "ou", "pink", "gsde", "parameter"),
    "sac": ("none", "pink", "gsde", "parameter"),
    "ppo": ("none", "gsde", "parameter"),
    "trpo": ("none", "parameter"),
}
"""The explorations of each continuous learner: all that fit."""
ON_POLICY = ("ppo", "trpo")
"""The learners that are compared on the sparse tasks alone."""
RESAMPLED = {"ddpg": 8, "td3": 8, "sac": 8, "ppo": 4}
"""Steps after which gSDE draws its weights anew. Drawing within an episode is what sets it apart from SDE; these are
the numbers that its authors' RL Zoo has for SAC and PPO."""
MATCHED = {"epsilon_end": 0.05, "anneal_steps": 50_000}
"""Of epsilon-greedy, and of the epsilon that delta follows: one schedule, over a tenth of the steps."""
Q_LEARNING = {
    **REPLAYED,
    "learning_rate": 5e-4,
    "buffer_size": 100_000,
    "train_every": 4,
    "target_every": 1_000,
}
"""Of DQN and bootstrapped DQN alike, in place of their presets, which have extensions that the latter has not."""
PLAIN = {"double_q": False, "dueling": False, "prioritized": False, "n_step": 1}
EXTENDED = {"double_q": True, "dueling": True, "prioritized": True}
DISCRETE = {"parameter": "dqn", "epsilon-greedy": "dqn", "noisy": "dqn", "bootstrap": "bootstrapped-dqn"}
"""The explorations of discrete actions, and the agent of each."""
LENGTHS = (20, 40, 60, 80, 100)
GAMES = ("Freeway", "Enduro")

CONTINUOUS_FIGURES = tuple(
    register_figure(
        CurveFigure(
            name=f"rivals-{learner}",
            methods=tuple(
                Method(
                    learner,
                    kind,
                    LABELS[kind],
                    agent=SMALL if learner in ON_POLICY else REPLAYED,
                    exploration_settings={"resample_every": RESAMPLED[learner]} if kind == "gsde" else {},
                )
                for kind in kinds
            ),
            scales=scales(
                paper=SPARSE if learner in ON_POLICY else (*RUNNERS, *SPARSE),
                small=SPARSE[2:],
                smoke=SPARSE[4:],
                smoke_steps=10_000 if learner in ON_POLICY else 2_000,
                steps=500_000,
                **EVALUATION,
            ),
        )
    )
    for learner, kinds in LEARNERS.items()
)
DQN_FIGURE = register_figure(
    CurveFigure(
        name="rivals-dqn",
        methods=tuple(
            Method(
                agent,
                kind,
                LABELS[kind],
                agent={**Q_LEARNING, **(PLAIN if agent == "dqn" else {})},
                exploration_settings=MATCHED if kind in ("parameter", "epsilon-greedy") else {},
            )
            for kind, agent in DISCRETE.items()
        ),
        scales=scales(
            paper=("LunarLander-v3", "CartPole-v1"),
            small=("CartPole-v1",),
            smoke=("CartPole-v1",),
            smoke_steps=2_000,
            steps=500_000,
            **EVALUATION,
        ),
    )
)
CHAIN_FIGURE = register_figure(
    ChainFigure(
        name="rivals-chain",
        methods=tuple(Method(agent, kind, LABELS[kind]) for kind, agent in DISCRETE.items()),
        scales={
            "smoke": ChainScale(lengths=(5,), seeds=1, episodes=200),
            "small": ChainScale(lengths=LENGTHS[:2], seeds=3, episodes=2_000),
            "paper": ChainScale(lengths=LENGTHS, seeds=5, episodes=2_000),
        },
    )
)
ATARI_FIGURE = register_figure(
    AtariFigure(
        name="rivals-atari",
        methods=(
            *(
                Method("dqn", kind, LABELS[kind], agent={"policy_head": kind == "parameter"})
                for kind, agent in DISCRETE.items()
                if agent == "dqn"  # bootstrapped DQN takes no frames
            ),
            *(
                Method(
                    "dqn",
                    kind,
                    f"{LABELS[kind]}, double, dueling, prioritized",
                    variant="double-dueling-prioritized",
                    agent={"policy_head": kind == "parameter", **EXTENDED},
                )
                for kind in ("parameter", "epsilon-greedy")
            ),
        ),
        scales={
            "smoke": dataclasses.replace(SMOKE, envs=GAMES[:1]),
            "small": AtariScale(envs=GAMES[:1], seeds=3, steps=1_000_000),
            "paper": AtariScale(envs=GAMES, seeds=5, steps=1_000_000),
        },
    )
)
