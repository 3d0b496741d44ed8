"""Atari games as a family of environments: any of them by its name, with the paper's settings (app. A.1)."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from paramnoise.envs.atari_frames import FRAME_SKIP, MAX_FRAMES, AtariFrames
from paramnoise.envs.atari_games import GAMES, is_atari
from paramnoise.envs.base import AgentPreset, Preset, register_family
from paramnoise.loops.environments import EnvSource
from paramnoise.loops.frames import picture
from paramnoise.validation import UsageError


class AtariStacks(gym.Env):
    """One Atari game by the rules of scores: a lost life ends nothing. A seeded reset takes some 0.1 s."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15.0}  # noqa: RUF012  # every fourth frame of 60 a second
    render_mode = "rgb_array"

    def __init__(self, games: AtariFrames):
        """Takes a vector of one environment, of whose games only the first after each restart is played."""
        self._games = games
        self.observation_space, self.action_space = games.observation_space, games.action_space
        self._stack = np.zeros(self.observation_space.shape or (), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts the game of a seed; without one, of a seed drawn from the last."""
        super().reset(seed=seed)
        self._stack[:] = 0
        own = int(self.np_random.integers(2**31)) if seed is None else seed
        self._stack[-1] = self._games.restart([own])[0]
        return self._stack.copy(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Steps the game; the frame that ends it is not known, and the one before is shown once more."""
        after = self._games.step(np.array([action]))
        shown = after.next_obs if after.resets[0] else after.obs
        if shown is not None:
            self._stack[:-1] = self._stack[1:]
            self._stack[-1] = shown[0]
        return self._stack.copy(), float(after.reward[0]), bool(after.terminated[0]), bool(after.truncated[0]), {}

    def render(self) -> Any:
        """The newest frame, as a picture."""
        return picture(self._stack[-1])

    def close(self) -> None:
        """Closes the emulator."""
        self._games.close()


def atari_emulators(
    game: str, settings: Mapping[str, Any], seeds: Sequence[int], num_envs: int, *, trains: bool
) -> AtariFrames:
    """The emulators of a game with a user's settings, for training or for scores, which are of whole games."""
    ends = trains and settings.get("life_loss_ends", True)
    try:
        return AtariFrames(game, num_envs, seeds, **{**settings, "life_loss_ends": ends})
    except TypeError as error:
        raise UsageError(f"cannot make {game} with {dict(settings)}: {error}") from None


def atari_game(game: str, env_kwargs: Mapping[str, Any]) -> gym.Env:
    """One game that shows stacks of frames."""
    return AtariStacks(atari_emulators(game, {"num_threads": 1, **env_kwargs}, [0], 1, trains=False))


def atari_source(game: str, env_kwargs: Mapping[str, Any]) -> EnvSource:
    """How a loop makes a game's emulators."""
    probe = atari_game(game, env_kwargs)
    probe.close()
    return EnvSource(
        functools.partial(atari_game, game, dict(env_kwargs)),
        functools.partial(atari_emulators, game, dict(env_kwargs)),
        probe.observation_space,
        probe.action_space,
    )


PRESET = Preset(
    agents={
        "dqn": AgentPreset(
            settings={
                "hidden_sizes": (512,),
                "learning_rate": 1e-4,
                "adam_epsilon": 1e-4,
                "batch_size": 32,
                "buffer_size": 1_000_000,
                "learning_starts": 50_000,
                "train_every": 4,
                "target_every": 10_000,
                "clip_rewards": True,
            },
            settings_with={"parameter": {"policy_head": True}},
            explorations={
                "parameter": {"epsilon": 0.01, "adapt_every": 50, "anneal_steps": 1_000_000},
                "epsilon-greedy": {"anneal_steps": 1_000_000},
            },
        ),
        "es": AgentPreset(settings={"hidden_sizes": (512,), "layer_norm": True}),
    },
    run={
        "steps": 10_000_000,
        "num_envs": 16,
        "eval_every": 500_000,
        "eval_episodes": 10,
        "eval_max_steps": MAX_FRAMES // FRAME_SKIP,
        "log_every": 50_000,
    },
)
"""The paper's settings for its games (app. A.1); the number of environments is ours."""

register_family(
    "atari",
    matches=is_atari,
    source=atari_source,
    preset=PRESET,
    group="Atari, the paper's 21 games; any other of ale-py's works too",
    members=GAMES,
    needs=("ale_py", "atari"),
)
