"""The paper's continuous tasks, with dense and with sparse rewards: their ids and presets (app. A.2)."""

from paramnoise.envs.base import NAMESPACE, AgentPreset, Preset, register_env

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

_LOCOMOTION = ("HalfCheetah-v4", "Hopper-v4", "Swimmer-v4", "Walker2d-v4", *SPARSE[:2])
_SPARSE_TASKS = {
    SPARSE[2]: ("sparse_box2d:SparseCartpoleSwingupEnv", "reward while the pole is up; needs the extra box2d"),
    SPARSE[3]: ("sparse_box2d:SparseDoublePendulumEnv", "reward while the tip is near the top; needs the extra box2d"),
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
    """The paper's settings with a level of noise; the defaults of DDPG and TRPO are its agents."""
    explorations = {
        "gaussian": {"sigma": noise},
        "ou": {"sigma": noise},
        "parameter": {"delta": noise, "adapt_every": 50},
    }
    return Preset(
        agents={
            "ddpg": AgentPreset(
                settings={} if critic_l2 is None else {"critic_l2": critic_l2}, explorations=explorations
            ),
            "trpo": AgentPreset(settings={"hidden_sizes": (64, 64)} if env in _LOCOMOTION else {}),
        },
        run={"steps": 1_000_000, "eval_every": 10_000, "eval_episodes": 20},
    )


for _env in DENSE:
    register_env(
        _env, preset=_preset(_env, 0.2), group="The paper's dense tasks (by name: HalfCheetah is HalfCheetah-v4)"
    )
for _env, (_place, _help) in _SPARSE_TASKS.items():
    register_env(
        _env,
        entry_point=f"paramnoise.envs.{_place}",
        max_episode_steps=SPARSE_HORIZON,
        help=_help,
        preset=_preset(_env, 0.6, critic_l2=0.0),  # with L2 the rare reward is found and not learned from
        group="Ours (names without namespace and version work too)",
    )
