"""Atari's frames as the paper has them (app. A.1), from ale-py's vector of emulators.

84x84 and grey, each the maximum of the last two of four emulated ones, the action repeated on all four; up to 30 no-ops
at a game's start; no sticky actions; true rewards.
"""

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from paramnoise.envs.atari_games import game_rom, game_title
from paramnoise.experience.frames import STACK
from paramnoise.loops.environments import ALL, Environments, EnvStep
from paramnoise.loops.frames import stack_space
from paramnoise.validation import UsageError, require

FRAME_SKIP = 4
"""Emulated frames of one step; budgets and axes of the paper are in frames."""
MAX_FRAMES = 108_000
"""Frames after which a game is cut: half an hour of play."""
GAMES_PER_SEED = 100
"""Games after which an environment is seeded anew, which takes 0.1 s; a restore repeats at most as many game starts."""
_FRAME_SHAPE = (84, 84)
_NEVER = 2**30


def frames_of(steps: int) -> int:
    """Emulated frames of a number of steps; the no-ops of game starts are not counted."""
    return FRAME_SKIP * steps


class AtariFrames(Environments):
    """A vector of emulators of one game, each with a random stream of its own.

    What an environment shows is a function of its seed, the number of games it has finished and the actions since:
    these three are the snapshot. The emulator's own time limit is not used, as its last frame there is not the true
    one.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        seeds: Sequence[int],
        *,
        life_loss_ends: bool = True,
        max_frames: int = MAX_FRAMES,
        noop_max: int = 30,
        fire_reset: bool = False,
        repeat_action_probability: float = 0.0,
        num_threads: int = 0,
    ):
        """Makes the emulators; `restart` starts their first games.

        Args:
            game: its name or any of its ids.
            num_envs: environments of each seed.
            seeds: those of the training seeds side by side. An environment's stream depends on its own seed and its
                place among that seed's environments alone.
            life_loss_ends: whether a lost life ends an episode (and not the game); for training, not for scores.
            max_frames: frames after which a game is truncated.
            noop_max: no-ops at a game's start are drawn from 0 to this.
            fire_reset: presses FIRE at a game's start where a game has it.
            repeat_action_probability: of sticky actions; above 0 every game's start costs 0.1 s more.
            num_threads: of the emulators together; 0 means one per core.
        """
        self.name = game_title(rom := game_rom(game))
        require(num_envs >= 1, "num_envs", num_envs, "at least 1")
        require(max_frames >= 1, "max_frames", max_frames, "at least 1")
        require(noop_max >= 0, "noop_max", noop_max, "at least 0")
        require(0 <= repeat_action_probability < 1, "repeat_action_probability", repeat_action_probability, "in [0, 1)")
        require(bool(seeds) and min(seeds) >= 0, "seeds", seeds, "at least 0, one or several")
        self._places = [(int(seed), i) for seed in seeds for i in range(num_envs)]
        self.num_envs = len(self._places)
        self._emulators = _emulators(rom, self.num_envs, num_threads, noop_max, fire_reset, repeat_action_probability)
        self.observation_space = stack_space(_FRAME_SHAPE)
        self._num_actions = int(self._emulators.single_action_space.n)
        self.action_space = gym.spaces.Discrete(self._num_actions)
        self._life_loss_ends, self._max_steps = life_loss_ends, -(-max_frames // FRAME_SKIP)
        # Sticky actions draw from a stream that every step moves on: only a seed brings a game's start back.
        self._games_per_seed = 1 if repeat_action_probability > 0 else GAMES_PER_SEED
        self._all = np.arange(self.num_envs)
        self._games = np.zeros(self.num_envs, np.int64)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._actions = np.zeros((self.num_envs, self._max_steps), np.uint8)
        self._lives = np.zeros(self.num_envs, np.int32)

    def restart(self, seeds: Sequence[int] | None = None) -> np.ndarray:
        """Starts the first game of every environment, with other seeds if any are given; returns the frames."""
        if seeds is not None:
            num_envs = self.num_envs // len(seeds)
            self._places = [(seed, i) for seed in seeds for i in range(num_envs)]
        self._games[:] = 0
        self._lengths[:] = 0
        return self._reset(np.ones(self.num_envs, bool), self._seeds())[:, -1].copy()

    def send(self, actions: np.ndarray, where: np.ndarray | None = None) -> None:
        """Sets the emulators to work on their actions, in threads of their own; all of them, whatever the mask."""
        actions = np.asarray(actions, np.int64)
        if actions.min() < 0 or actions.max() >= self._num_actions:  # the emulators would wait for ever
            raise UsageError(f"actions must be from 0 to {self._num_actions - 1}, not {actions.tolist()}")
        self._actions[self._all, self._lengths] = actions
        self._lengths += 1
        self._emulators.send(actions)

    def recv(self) -> EnvStep:
        """Waits for the emulators; a game that ended or was cut is followed by the next one."""
        stack, reward, over, _, info = self._emulators.recv()
        frame, final_frame = stack[:, -1].copy(), None
        # Some games stay at 0 lives for a while before they end: that is one end, not two.
        lost = (info["lives"] < self._lives) & (info["lives"] > 0) & ~over
        self._lives = info["lives"]
        terminated = over | lost if self._life_loss_ends else over.copy()
        cut = (self._lengths >= self._max_steps) & ~over
        truncated = cut & ~terminated
        resets = over | cut
        if resets.any():
            final_frame = frame if truncated.any() else None
            frame = self._next_games(frame, resets, cut)
        starts = terminated | resets
        return EnvStep(frame, reward.astype(np.float32), terminated, truncated, starts, resets, final_frame)

    def snapshot(self, part: slice = ALL) -> dict[str, np.ndarray]:
        """The finished games, and the actions of the current one, of every environment or of those of one seed."""
        lengths = self._lengths[part].copy()
        played = np.arange(self._max_steps) < lengths[:, None]
        return {"games": self._games[part].copy(), "lengths": lengths, "actions": self._actions[part][played]}

    def joined(self, parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """One snapshot of those of every seed."""
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def restore(self, snapshot: dict[str, np.ndarray]) -> np.ndarray:
        """Brings every environment back to a snapshot by replaying its game; returns the newest frames.

        Emulators cannot be stepped one by one: those with a shorter game idle first and start theirs later, so that
        all arrive together.
        """
        if (snapshot["actions"] >= self._num_actions).any() or len(snapshot["lengths"]) != self.num_envs:
            raise UsageError(f"the checkpoint's actions are not those of {self.num_envs} games of {self.name}")
        self._games, self._lengths = snapshot["games"].copy(), snapshot["lengths"].copy()
        self._actions[np.arange(self._max_steps) < self._lengths[:, None]] = snapshot["actions"]
        longest = int(self._lengths.max())
        stack = self._reset(np.ones(self.num_envs, bool), np.full(self.num_envs, -1))  # before it, no others work
        for time in range(longest + 1):
            begins = self._lengths == longest - time
            if begins.any():
                stack = self._begin(begins)
            if time < longest:
                turn = time - longest + self._lengths
                action = np.where(turn >= 0, self._actions[self._all, turn.clip(0)], 0)
                stack, *_, info = self._emulators.step(action.astype(np.int64))
                self._lives = info["lives"]
        return stack[:, -1].copy()

    def close(self) -> None:
        """Closes the emulators."""
        self._emulators.close()

    def _next_games(self, frame: np.ndarray, ended: np.ndarray, cut: np.ndarray) -> np.ndarray:
        """The frames after the next games have started, where the emulators have not done so by themselves."""
        self._games[ended] += 1
        self._lengths[ended] = 0
        seeded = ended & (self._games % self._games_per_seed == 0)
        if not (where := cut | seeded).any():
            return frame
        return self._reset(where, np.where(seeded, self._seeds(), -1))[:, -1].copy()

    def _begin(self, where: np.ndarray) -> np.ndarray:
        """Starts the current game of some environments: a seed, then as many game starts as came after it."""
        starts = np.where(where, self._games % self._games_per_seed, 0)
        stack = self._reset(where, self._seeds())
        for done in range(int(starts.max())):
            stack = self._reset(starts > done, np.full(self.num_envs, -1))
        return stack

    def _reset(self, where: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Starts games, where a seed is not -1 with that seed; returns the stacks of all environments."""
        stack, info = self._emulators.reset(seed=seeds[where], options={"reset_mask": where})
        self._lives = info["lives"]
        return stack

    def _seeds(self) -> np.ndarray:
        blocks = self._games // self._games_per_seed
        return np.array([_stream_seed(*place, int(block)) for place, block in zip(self._places, blocks, strict=True)])


def _emulators(
    rom: str, num_envs: int, num_threads: int, noop_max: int, fire_reset: bool, repeat_action_probability: float
) -> Any:
    from ale_py.vector_env import AtariVectorEnv  # an extra

    return AtariVectorEnv(
        rom,
        num_envs,
        num_threads=num_threads,
        max_num_frames_per_episode=_NEVER,
        repeat_action_probability=repeat_action_probability,
        autoreset_mode="SameStep",
        stack_num=STACK,
        frameskip=FRAME_SKIP,
        noop_max=noop_max + 1,  # the emulator draws from 0 to one less
        reward_clipping=False,
        use_fire_reset=fire_reset,
    )


@functools.lru_cache(maxsize=4096)
def _stream_seed(seed: int, env_index: int, block: int) -> int:
    """The seed of one environment for a block of its games; the emulator takes 31 bits."""
    return int(np.random.SeedSequence((seed, env_index, block)).generate_state(1)[0]) >> 1
