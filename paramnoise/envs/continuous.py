"""The paper's continuous tasks, with dense and with sparse rewards: their ids and presets (app. A.2)."""

from paramnoise.envs.base import NAMESPACE, AgentPreset, Preset, ReturnBounds, register_env

DENSE = (
    "HalfCheetah-v4",
    "Walker2d-v4",
    "Hopper-v4",
    "Swimmer-v4",
    "InvertedDoublePendulum-v4",
    "Reacher-v4",
    "InvertedPendulum-v4",
)
"""The paper's tasks with dense rewards, in the versions that have its sizes."""
SPARSE = (
    f"{NAMESPACE}SwimmerGather-v0",
    f"{NAMESPACE}SparseHalfCheetah-v0",
    f"{NAMESPACE}SparseCartpoleSwingup-v0",
    f"{NAMESPACE}SparseDoublePendulum-v0",
    f"{NAMESPACE}SparseMountainCar-v0",
)
"""The paper's tasks with sparse rewards."""
SPARSE_HORIZON = 500
"""Steps of an episode of the sparse tasks (sec. 4.2)."""

_TD3 = "random actions to TD3, 1M steps"
BOUNDS = {
    "HalfCheetah-v4": ReturnBounds(-282, 9_637, _TD3),
    "Walker2d-v4": ReturnBounds(2.6, 4_683, _TD3),
    "Hopper-v4": ReturnBounds(17.7, 3_564, _TD3),
    "Swimmer-v4": ReturnBounds(0.8, 360, "random actions to Gymnasium's threshold"),
    "InvertedDoublePendulum-v4": ReturnBounds(59.1, 9_360, "random actions to upright in each of 1,000 steps"),
    "Reacher-v4": ReturnBounds(-43.4, 0, "random actions to no cost at all"),
    "InvertedPendulum-v4": ReturnBounds(6.2, 1_000, "random actions to 1 in each of 1,000 steps"),
    SPARSE[0]: ReturnBounds(0, 8, "nothing to all apples and no bomb"),
    SPARSE[1]: ReturnBounds(0, SPARSE_HORIZON, "nothing to a reward in every step"),
    SPARSE[2]: ReturnBounds(0, SPARSE_HORIZON, "nothing to a reward in every step"),
    SPARSE[3]: ReturnBounds(0, SPARSE_HORIZON, "nothing to a reward in every step"),
    SPARSE[4]: ReturnBounds(0, 1, "nothing to the goal"),
}
"""The scale of each task's return.

Dense tasks begin at the return of random actions: the mean of 100 episodes, `env.reset(seed=i)` for i from 0 to 99,
actions from `env.action_space.sample()` after `env.action_space.seed(0)` (gymnasium 1.4.0, mujoco 4.0.0; standard
errors 7.2, 0.7, 1.8, 0.9, 1.8, 0.4 and 0.4 in the order above). They end at the most that the reward's rule allows, if
there is such a thing: an InvertedDoublePendulum whose tip is at its highest, 1.2, gets 10 - (1.2 - 2)^2 a step. Else
they end at a published reference: TD3's in table 1 of Fujimoto et al. 2018 (arXiv 1802.09477), or for Swimmer, which is
not in it, the return at which Gymnasium takes the task for solved. A return beyond a reference is beyond 1.

Sparse tasks begin at 0, which random actions get (25 on SparseDoublePendulum), and end at the most that their rule
allows within the time limit, though no episode starts where it is paid at once.
"""

_LOCOMOTION = ("HalfCheetah-v4", "Hopper-v4", "Swimmer-v4", "Walker2d-v4", *SPARSE[:2])
_SPARSE_TASKS = {
    SPARSE[2]: ("sparse_box2d:SparseCartpoleSwingupEnv", "reward while the pole is up; needs the extra box2d"),
    SPARSE[3]: (
        "sparse_box2d:SparseDoublePendulumEnv",
        "reward while the tip is near the top; vime_rule:true has VIME's tip; needs the extra box2d",
    ),
    SPARSE[4]: (
        "sparse_box2d:SparseMountainCarEnv",
        "reward at the goal; vime_rule:true pays the left exit; needs the extra box2d",
    ),
    SPARSE[1]: (
        "sparse_mujoco:SparseHalfCheetahEnv",
        "reward 5 units ahead; frame_skip:5 has longer steps; needs the extra mujoco",
    ),
    SPARSE[0]: (
        "swimmer_gather:SwimmerGatherEnv",
        "apples and bombs; solid_walls:false lets the swimmer pass; needs the extra mujoco",
    ),
}


def _preset(env: str, noise: float, critic_l2: float | None = None) -> Preset:
    """The paper's settings with a level of noise; the defaults of DDPG and TRPO are its agents.

    TD3 and SAC, which are younger than the paper, explore at the same level.
    """
    horizon = {"horizon": SPARSE_HORIZON if env in SPARSE else 50 if env == "Reacher-v4" else 1_000}
    explorations = {
        "gaussian": {"sigma": noise},
        "ou": {"sigma": noise},
        "pink": {"sigma": noise, **horizon},
        "gsde": {"sigma": round(noise * 2**0.5, 2)},  # layer norm and ReLU leave features of root mean square sqrt(1/2)
        "parameter": {"delta": noise, "adapt_every": 50},
    }
    return Preset(
        agents={
            "ddpg": AgentPreset(
                settings={} if critic_l2 is None else {"critic_l2": critic_l2}, explorations=explorations
            ),
            "td3": AgentPreset(explorations=explorations),
            "sac": AgentPreset(explorations={"parameter": explorations["parameter"], "pink": horizon}),
            "trpo": AgentPreset(settings={"hidden_sizes": (64, 64)} if env in _LOCOMOTION else {}),
        },
        run={"steps": 1_000_000, "eval_every": 10_000, "eval_episodes": 20},
    )


for _env in DENSE:
    register_env(
        _env,
        preset=_preset(_env, 0.2),
        group="The paper's dense tasks (by name: HalfCheetah is HalfCheetah-v4)",
        bounds=BOUNDS[_env],
    )
for _env, (_place, _help) in _SPARSE_TASKS.items():
    register_env(
        _env,
        entry_point=f"paramnoise.envs.{_place}",
        max_episode_steps=SPARSE_HORIZON,
        help=_help,
        preset=_preset(_env, 0.6, critic_l2=0.0),  # with L2 the rare reward is found and not learned from
        group="Ours (names without namespace and version work too)",
        bounds=BOUNDS[_env],
    )
