"""Atari's frames: against a lone emulator, ends, streams, restore."""

import numpy as np
import pytest
from ale_py import ALEInterface, LoggerMode, roms

from paramnoise.envs import atari_frames
from paramnoise.envs.atari_frames import AtariFrames, frames_of
from paramnoise.loops.environments import EnvStep
from paramnoise.validation import UsageError

FIRE = 1


def played(envs: AtariFrames, actions: np.ndarray) -> list[EnvStep]:
    return [envs.step(action) for action in actions]


def assert_same(one: EnvStep, other: EnvStep) -> None:
    for name, field, same in zip(EnvStep._fields, one, other, strict=True):
        np.testing.assert_array_equal(field, same, err_msg=name)


def area_weights(before: int, after: int) -> np.ndarray:
    """The share of each old pixel in each new one."""
    edges = np.arange(after + 1) * before / after
    pixels = np.arange(before)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return overlap.clip(0) * after / before


def by_hand(rom: str, actions: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Frames and rewards of a game on one emulator without no-ops, preprocessed here."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.loadROM(roms.get_rom_path(rom))
    emulator.reset_game()
    rows, columns = area_weights(210, 84), area_weights(160, 84)
    pictures, rewards = [emulator.getScreenGrayscale()], []
    for action in actions:
        seen, reward = [], 0
        for _ in range(4):
            reward += emulator.act(emulator.getMinimalActionSet()[action])
            seen.append(emulator.getScreenGrayscale())
        pictures.append(np.maximum(seen[-2], seen[-1]))
        rewards.append(reward)
    return np.stack([rows @ picture @ columns.T for picture in pictures]), rewards


def test_frames_and_scores_are_those_of_a_lone_emulator():
    actions = np.random.default_rng(0).integers(3, size=75)  # long enough for Pong's first point
    envs = AtariFrames("Pong", 1, [0], noop_max=0)
    frames, steps = [envs.restart()], played(envs, actions[:, None])
    frames = np.concatenate(frames + [step.obs for step in steps])
    expected, rewards = by_hand("pong", actions)
    assert np.abs(frames - expected).max() <= 0.5 + 1e-6  # rounded
    assert [step.reward.item() for step in steps] == rewards
    assert -1 in rewards
    assert frames.dtype == np.uint8
    assert steps[0].reward.dtype == np.float32


def test_scores_are_not_clipped():
    envs = AtariFrames("Alien", 1, [0])
    envs.restart()
    actions = np.random.default_rng(0).integers(envs.action_space.n, size=(100, 1))
    assert {step.reward.item() for step in played(envs, actions)} >= {0.0, 10.0}


def test_a_step_is_four_frames_and_no_ops_are_not_counted():
    assert frames_of(250_000) == 1_000_000
    envs = AtariFrames("Pong", 2, [0], max_frames=20)
    envs.restart()
    cuts = [step.truncated.tolist() for step in played(envs, np.zeros((10, 2), int))]
    assert cuts == [[i % 5 == 4] * 2 for i in range(10)]


def test_a_time_limit_truncates_and_keeps_the_true_last_frame():
    actions = np.random.default_rng(1).integers(3, size=(7, 2))
    cut, twin = (AtariFrames("Freeway", 2, [4], max_frames=limit) for limit in (24, 400))
    for envs in (cut, twin):
        envs.restart()
    limited, free = played(cut, actions), played(twin, actions)
    end = limited[5]
    assert (end.terminated.any(), end.truncated.all(), end.starts.all(), end.resets.all()) == (False, True, True, True)
    np.testing.assert_array_equal(end.next_obs, free[5].obs)
    assert (end.obs != end.next_obs).any()
    assert not limited[4].starts.any()
    assert not limited[6].starts.any()
    assert limited[4].next_obs is limited[6].next_obs is None


def breakout(life_loss_ends: bool) -> list[EnvStep]:
    """A game of Breakout whose ball is served at every step and never hit, next to one that is not served."""
    envs = AtariFrames("Breakout", 2, [1], life_loss_ends=life_loss_ends)
    envs.restart()
    return played(envs, np.tile([FIRE, 0], (140, 1)))


def test_a_lost_life_ends_an_episode_and_only_the_last_one_the_game():
    steps = breakout(life_loss_ends=True)
    ends = [i for i, step in enumerate(steps) if step.terminated[0]]
    assert len(ends) >= 5
    assert [bool(steps[i].resets[0]) for i in ends[:5]] == [False] * 4 + [True]
    for step in steps:
        np.testing.assert_array_equal(step.starts, step.terminated)
        assert not step.terminated[1]
        assert not step.truncated.any()
        assert step.next_obs is None


def test_a_game_that_stays_at_no_lives_before_it_is_over_ends_once(monkeypatch):
    envs = AtariFrames("Pong", 1, [0])
    envs.restart()
    script = iter([(3, False), (2, False), (1, False), (1, False), (0, False), (0, False), (3, True), (3, False)])
    receive = envs._emulators.recv

    def scripted():
        lives, over = next(script)
        return *receive()[:2], np.array([over]), np.array([False]), {"lives": np.array([lives], np.int32)}

    monkeypatch.setattr(envs._emulators, "recv", scripted)
    steps = played(envs, np.zeros((8, 1), int))
    assert [i for i, step in enumerate(steps) if step.terminated[0]] == [1, 2, 6]
    assert [i for i, step in enumerate(steps) if step.resets[0]] == [6]


def test_where_lives_do_not_end_episodes_all_else_is_the_same():
    for training, evaluation in zip(breakout(life_loss_ends=True), breakout(life_loss_ends=False), strict=True):
        np.testing.assert_array_equal(evaluation.terminated, training.resets)
        np.testing.assert_array_equal(evaluation.starts, training.resets)
        np.testing.assert_array_equal(evaluation.obs, training.obs)


def test_an_environment_s_stream_depends_on_its_seed_and_place_alone():
    actions = np.random.default_rng(2).integers(3, size=(8, 4))
    together, alone = AtariFrames("Pong", 2, [5, 9], max_frames=12), AtariFrames("Pong", 3, [9], max_frames=12)
    assert together.num_envs == 4
    first, other = together.restart(), alone.restart()
    np.testing.assert_array_equal(first[2:], other[:2])
    for action in actions:
        one, two = together.step(action), alone.step(action[[2, 3, 0]])
        np.testing.assert_array_equal(one.obs[2:], two.obs[:2])


def test_seeds_and_places_start_differently_and_a_restart_repeats():
    envs = AtariFrames("Freeway", 3, [0])
    first = envs.restart()
    assert len({frame.tobytes() for frame in first}) > 1
    envs.step(np.zeros(3, int))
    np.testing.assert_array_equal(envs.restart(), first)
    assert (AtariFrames("Freeway", 3, [1]).restart() != first).any()


@pytest.mark.parametrize("noop_max", [0, 1])
def test_no_ops_are_drawn_from_none_to_the_most(noop_max):
    frames = AtariFrames("Freeway", 6, [0], noop_max=noop_max).restart()
    assert len({frame.tobytes() for frame in frames}) == noop_max + 1


@pytest.mark.parametrize("sticky", [0.0, 0.5])
def test_a_restored_vector_shows_its_newest_frames_and_goes_on_as_its_twin(sticky, monkeypatch):
    monkeypatch.setattr(atari_frames, "GAMES_PER_SEED", 3)
    make = lambda: AtariFrames("Breakout", 3, [2], max_frames=600, repeat_action_probability=sticky)  # noqa: E731
    served = np.random.default_rng(3).integers(4, size=(330, 3))
    served[:, 0] = FIRE  # a short game; the others are cut now and then, at the limit of 150 steps
    served[:, 1] = 0
    twin, restored = make(), make()
    restored.restart()
    played(restored, served[:5])  # of no matter
    twin.restart()
    newest = played(twin, served[:300])[-1].obs
    snapshot = twin.snapshot()
    assert len(set(snapshot["lengths"].tolist())) > 1
    assert snapshot["games"].max() >= 2
    np.testing.assert_array_equal(restored.restore(snapshot), newest)
    for name, array in restored.snapshot().items():
        np.testing.assert_array_equal(array, snapshot[name])
    lost = 0
    for action in served[300:]:
        one, two = twin.step(action), restored.step(action)
        assert_same(one, two)
        lost += int((one.starts & ~one.resets).sum())
    assert lost >= 1


def test_an_environment_is_seeded_anew_after_some_games_and_restored_from_there(monkeypatch):
    monkeypatch.setattr(atari_frames, "GAMES_PER_SEED", 2)
    twin, restored = (AtariFrames("Freeway", 2, [6], max_frames=8) for _ in range(2))
    twin.restart()
    steps = played(twin, np.zeros((11, 2), int))
    assert len({step.obs.tobytes() for step in steps if step.resets.all()}) > 2
    np.testing.assert_array_equal(restored.restore(twin.snapshot()), steps[-1].obs)


def test_what_was_sent_is_received_later():
    envs, twin = AtariFrames("Pong", 2, [0]), AtariFrames("Pong", 2, [0])
    for each in (envs, twin):
        each.restart()
    for action in np.array([[2, 3], [0, 1], [5, 4]]):
        envs.send(action)
        assert_same(envs.recv(), twin.step(action))


@pytest.mark.parametrize("action", [-1, 6])
def test_an_action_that_the_game_does_not_have_is_refused(action):
    envs = AtariFrames("Pong", 2, [0])
    envs.restart()
    assert envs.action_space.n == 6
    with pytest.raises(UsageError, match="actions must be from 0 to 5"):
        envs.send(np.array([0, action]))


def test_fire_can_start_a_game():
    frames = [AtariFrames("Breakout", 1, [0], noop_max=0, fire_reset=fire) for fire in (False, True)]
    for envs in frames:
        envs.restart()
    unserved, served = (played(envs, np.zeros((10, 1), int)) for envs in frames)
    assert len({step.obs.tobytes() for step in unserved[5:]}) < len({step.obs.tobytes() for step in served[5:]})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, not 0"),
        ({"max_frames": 0}, "max_frames must be at least 1, not 0"),
        ({"seeds": []}, "seeds must be at least 0"),
        ({"seeds": [3, -1]}, "seeds must be at least 0"),
        ({"noop_max": -1}, "noop_max must be at least 0, not -1"),
        ({"repeat_action_probability": 1.0}, "repeat_action_probability must be"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, named):
    with pytest.raises(UsageError, match=named):
        AtariFrames("Pong", **{"num_envs": 1, "seeds": [0], **settings})
