"""The experiment that holds one action for a game of Atari."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "experiments"))

from held_actions import held_games

from paramnoise.envs.atari_frames import AtariFrames


def test_each_action_is_held_in_a_game_of_its_own_until_that_is_over_or_cut():
    steps = 130  # without FIRE there is no ball in Breakout; with nothing else five are lost at once
    found = {name: rest for name, *rest in held_games("Breakout", epsilon=0.0, seed=0, max_frames=4 * steps)}
    assert list(found) == ["NOOP", "FIRE", "RIGHT", "LEFT"]
    assert found["NOOP"] == found["RIGHT"] == found["LEFT"] == [steps, 0.0, True]
    length, score, cut = found["FIRE"]
    assert length < steps
    assert not cut
    emulators = AtariFrames("Breakout", 4, [0], life_loss_ends=False)
    emulators.restart()
    after = [emulators.step([0, 1, 2, 3]) for _ in range(length)]
    emulators.close()
    assert [step.resets[1] for step in after] == [False] * (length - 1) + [True]
    assert score == sum(step.reward[1] for step in after)
