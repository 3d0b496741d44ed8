"""What becomes of an Atari game when one action is held, as a perturbed policy may do for as long as a game lasts.

    python experiments/held_actions.py --games Seaquest

Every action is held in a game of its own, but for a share of random actions as parameter noise has them, until the game
is over or cut. A game that pays nothing and lasts to its limit keeps its policy, and its frames come into replay.
"""

import argparse
from collections.abc import Iterator

import ale_py
import numpy as np

from paramnoise.envs.atari_frames import MAX_FRAMES, AtariFrames
from paramnoise.envs.atari_games import game_rom
from paramnoise.markdown import table_lines


def action_names(game: str) -> list[str]:
    """The actions of a game, in the order of their numbers."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    emulator = ale_py.ALEInterface()
    path = ale_py.roms.get_rom_path(game_rom(game))
    assert path is not None  # game_rom finds only what is installed
    emulator.loadROM(path)
    return [action.name for action in emulator.getMinimalActionSet()]


def held_games(
    game: str, epsilon: float, seed: int, max_frames: int = MAX_FRAMES
) -> list[tuple[str, int, float, bool]]:
    """For each action: its name, the steps that its game lasts, the score, and whether the game was cut."""
    names = action_names(game)
    held = np.arange(len(names))
    emulators = AtariFrames(game, len(names), [seed], life_loss_ends=False, max_frames=max_frames)
    rng = np.random.default_rng(seed)
    emulators.restart()
    score, length = np.zeros(len(names)), np.zeros(len(names), int)
    going, cut = np.ones(len(names), bool), np.zeros(len(names), bool)
    while going.any():
        random = rng.random(len(names)) < epsilon
        after = emulators.step(np.where(random, rng.integers(len(names), size=len(names)), held))
        score += after.reward * going
        length += going
        cut |= after.truncated & going
        going &= ~after.resets
    emulators.close()
    return list(zip(names, length.tolist(), score.tolist(), cut.tolist(), strict=True))


def main() -> None:
    """Plays, and prints a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=["Seaquest", "Breakout", "Pong"])
    parser.add_argument("--epsilon", type=float, default=0.01, help="share of random actions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    def rows() -> Iterator[tuple[str, str, str, str, str]]:
        for game in options.games:
            for name, length, score, cut in held_games(game, options.epsilon, options.seed):
                yield game, name, f"{length:,}", f"{score:g}", "yes" if cut else ""

    for line in table_lines(("game", "held", "steps", "score", "cut at the limit"), rows()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
