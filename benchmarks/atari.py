"""DQN on pixels: environment steps per second of ours and of Stable-Baselines3, training alike on an Atari game.

Run it with `make bench`. All have the Nature network, batches of 32, one train step for every four environment steps
and a replay of the same size. Stable-Baselines3 steps as many environments, in its own vector of them, and takes two
train steps after every eight environment steps; ours overlaps both. Ours with parameter noise has a second head, layer
norm, and a network of its own for every environment. Where ours multiplies bfloat16 it is measured with float32 as
well. Without Stable-Baselines3 the others are measured alone.
"""

import dataclasses
import importlib.util
import os
import statistics
import time
from functools import partial
from typing import Any

import numpy as np
import tyro
from contenders import peer, training
from harness import Contender, Plan, Window, core_settings, measure, rate_table, ratio_table, show
from rich import box
from rich.console import Console
from rich.table import Table

from paramnoise.networks.convolutions import product_dtype

LEARNING_STARTS = 1_024
HEADS = (16, 64, 256)
EVERY = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Measures DQN on pixels against its peer."""

    game: str = "Pong"
    """The Atari game."""
    num_envs: int = 8
    """Environments side by side; 64 is a better number with a GPU."""
    buffer_size: int = 20_000
    """Transitions in replay."""
    steps: int = 800
    """Environment steps of a window."""
    repeats: int = 5
    """Windows of each contender."""
    subprocesses: bool = False
    """Measure Stable-Baselines3 with a process for each environment too, which pays with many cores."""
    all_cores_only: bool = False
    """Do not measure on one core as well."""


def ours(settings: Settings, exploration: str, **agent: Any) -> Window:
    """Training by this package, without evaluations."""
    from paramnoise.runs.config import make_config
    from paramnoise.runs.loop import make_loop

    agent |= {"buffer_size": settings.buffer_size, "learning_starts": LEARNING_STARTS}
    config = make_config(
        "dqn", settings.game, exploration=exploration, agent=agent, num_envs=settings.num_envs, log_every=None
    )
    return training(make_loop([config], settings.game))


def stable_baselines3(settings: Settings, subprocesses: bool = False) -> Window:
    """DQN of Stable-Baselines3, on PyTorch; its environments all in this process, or in one each."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    kind: Any = SubprocVecEnv if subprocesses else DummyVecEnv
    game = f"ale_py:{settings.game}NoFrameskip-v4"  # imported by each process: that registers it
    start: Any = {"start_method": "fork"} if subprocesses else None  # else each of them loads PyTorch
    envs = make_atari_env(game, settings.num_envs, seed=0, vec_env_cls=kind, vec_env_kwargs=start)
    model = DQN(
        "CnnPolicy",
        VecFrameStack(envs, 4),
        learning_rate=1e-4,
        buffer_size=settings.buffer_size,
        learning_starts=LEARNING_STARTS,
        batch_size=32,
        train_freq=1,
        gradient_steps=settings.num_envs // EVERY,
        target_update_interval=10_000,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
        seed=0,
    )
    return peer(model)


def emulator(settings: Settings) -> Window:
    """Random actions and no agent: what an agent that costs nothing would reach."""
    from paramnoise.envs.atari_frames import AtariFrames

    envs = AtariFrames(settings.game, settings.num_envs, [0])
    envs.restart()
    space: Any = envs.action_space
    random, actions = np.random.default_rng(0), int(space.n)

    def window(steps: int) -> int:
        rounds = -(-steps // settings.num_envs)
        for _ in range(rounds):
            envs.step(random.integers(0, actions, settings.num_envs))
        return rounds * settings.num_envs

    return window


def acting_table(repeats: int = 30) -> Table:
    """Milliseconds to choose the actions of several environments, with one head for all and with a head for each."""
    import jax
    import jax.numpy as jnp

    from paramnoise.agents import DQNConfig, Spaces, dqn
    from paramnoise.explorations import EpsilonGreedy, ParameterNoise

    learner = dqn.make(DQNConfig(hidden_sizes=(512,), policy_head=True), Spaces((4, 84, 84), 6, is_discrete=True))
    policy = learner.policy(jax.jit(learner.init)(jax.random.key(0)))
    table = Table("environments", "one head, ms", "own heads, ms", "ratio", box=box.MARKDOWN)
    for num_envs in HEADS:
        obs = jnp.asarray(np.random.default_rng(0).integers(0, 255, (num_envs, 4, 84, 84), np.uint8))
        acts = [_act(exploration, policy, obs) for exploration in (EpsilonGreedy(), ParameterNoise(epsilon=0.01))]
        times: list[list[float]] = [[], []]
        for _ in range(repeats):
            for act, taken in zip(acts, times, strict=True):
                started = time.perf_counter()
                act()
                taken.append(1_000 * (time.perf_counter() - started))
        one, own = map(statistics.median, times)
        table.add_row(str(num_envs), f"{one:.2f}", f"{own:.2f}", f"{own / one:.2f}")
    return table


def _act(exploration: Any, policy: Any, obs: Any) -> Any:
    """A compiled call that chooses actions, warmed up."""
    import jax

    leaves, structure = jax.tree.flatten((jax.jit(exploration.init)(policy, obs), policy))

    @jax.jit
    def choose(leaves: Any, key: Any, obs: Any, step: Any) -> Any:
        return exploration.act(key, *jax.tree.unflatten(structure, leaves), obs, step)[1]

    key = jax.random.key(1)
    act = lambda: np.asarray(choose(leaves, key, obs, np.int32(5)))  # noqa: E731
    act()
    return act


def main(settings: Settings) -> None:
    """Measures all contenders in turn and prints rates and ratios, then the cost of own heads."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    contenders: dict[str, Contender] = {
        "ours, parameter noise, two heads": partial(ours, settings, "parameter", policy_head=True),
        "ours, epsilon-greedy": partial(ours, settings, "epsilon-greedy"),
        "emulator alone": partial(emulator, settings),
    }
    if product_dtype("auto") != "float32":
        contenders["ours, epsilon-greedy, float32"] = partial(ours, settings, "epsilon-greedy", precision="float32")
    other_library = "Stable-Baselines3, epsilon-greedy"
    if importlib.util.find_spec("stable_baselines3"):
        contenders[other_library] = partial(stable_baselines3, settings)
        if settings.subprocesses:
            contenders[f"{other_library}, subprocesses"] = partial(stable_baselines3, settings, subprocesses=True)
    warm_up = LEARNING_STARTS + 20 * settings.num_envs
    plan = Plan(settings.steps, warm_up, settings.repeats)
    cores = dict(list(core_settings().items())[: 1 if settings.all_cores_only else None])
    rates = {name: measure(contenders, plan, chosen) for name, chosen in cores.items()}
    mine = [name for name in contenders if name.startswith("ours")]
    noisy, plain, *_ = mine
    ratios = [(one, other) for other in contenders if other not in mine for one in mine] + [(noisy, plain)]
    show(f"DQN on {settings.game}", [rate_table(rates), ratio_table(rates, ratios)], plan)
    Console(width=140).print(acting_table())


if __name__ == "__main__":
    main(tyro.cli(Settings))
