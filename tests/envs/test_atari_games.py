"""The names of Atari games: every usual one, unknown ones, and those known without the extra."""

import importlib.util

import pytest

from paramnoise.envs import atari_games
from paramnoise.envs.atari_frames import AtariFrames
from paramnoise.envs.atari_games import GAMES, game_rom, game_title, is_atari
from paramnoise.validation import UsageError


@pytest.mark.parametrize(
    "name", ["Pong", "pong", "ALE/Pong-v5", "PongNoFrameskip-v4", "PongDeterministic-v4", "Pong-v4"]
)
def test_every_usual_name_of_a_game_means_it(name):
    assert is_atari(name)
    assert game_rom(name) == "pong"


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Hopper-v4", "Pong-ram-v4", "paramnoise/Chain-v0", "Blackjack-v1", "a b"]
)
def test_other_environments_are_no_atari_games(env_id):
    assert not is_atari(env_id)


def test_the_paper_s_21_games_exist_and_others_work():
    assert len(set(GAMES)) == 21
    assert [game_title(game_rom(game)) for game in GAMES] == list(GAMES)
    assert is_atari("KungFuMaster")
    assert game_rom("ALE/KungFuMaster-v5") == "kung_fu_master"


@pytest.mark.parametrize(("name", "hint"), [("ALE/Pnog-v5", "Pong"), ("BankHiest", "BankHeist"), ("xyzzy", "envs")])
def test_an_unknown_game_is_named_with_its_neighbours(name, hint):
    with pytest.raises(UsageError, match=f"unknown Atari game '{name}'.*{hint}") as caught:
        AtariFrames(name, 1, [0])
    assert "\n" not in str(caught.value)


def test_without_the_extra_names_are_known_and_games_name_the_command(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ale_py" else find(name))
    atari_games._installed_roms.cache_clear()
    try:
        assert is_atari("Pong")
        assert is_atari("ALE/Assault-v5")
        with pytest.raises(UsageError, match=r"pip install 'paramnoise\[atari\]'"):
            AtariFrames("Pong", 1, [0])
    finally:
        atari_games._installed_roms.cache_clear()
