"""The names of Atari games: which ids mean one, and what the emulator and the paper call it."""

import difflib
import functools
import importlib.util
import re

import gymnasium as gym

from paramnoise.validation import UsageError, require_extra

GAMES = (
    *("Alien", "Amidar", "BankHeist", "BeamRider", "Breakout", "Enduro", "Freeway", "Frostbite", "Gravitar"),
    *("MontezumaRevenge", "Pitfall", "Pong", "PrivateEye", "Qbert", "Seaquest", "Solaris", "SpaceInvaders"),
    *("Tutankham", "Venture", "WizardOfWor", "Zaxxon"),
)
"""The paper's games."""
_ID = re.compile(r"(ALE/)?(\w+?)(NoFrameskip|Deterministic)?(-v[045])?")


def is_atari(env_id: str) -> bool:
    """Whether an id means an Atari game seen as pixels; needs no extra.

    `Pong`, `pong`, `ALE/Pong-v5` and `PongNoFrameskip-v4` all do; an id that is registered for something else does not.
    """
    found = _ID.fullmatch(env_id)
    if found is None or not _is_free(env_id):
        return False
    alias = bool(found[1] or found[3])
    return alias or _bare(found[2]) in {_bare(game) for game in (*GAMES, *_installed_roms())}


def game_rom(env_id: str) -> str:
    """The emulator's name of a game, such as `bank_heist`.

    Raises:
        UsageError: if there is no such game, with those of a similar name, or if the extra is missing.
    """
    require_extra("ale_py", "atari", "Atari games")
    found = _ID.fullmatch(env_id)
    roms = {_bare(rom): rom for rom in _installed_roms()}
    name = _bare(found[2] if found else env_id)
    if name in roms:
        return roms[name]
    near = [game_title(roms[close]) for close in difflib.get_close_matches(name, roms, cutoff=0.5)]
    remedy = f"did you mean {' or '.join(near)}?" if near else "`paramnoise envs` lists the paper's"
    raise UsageError(f"unknown Atari game {env_id!r}: {remedy}")


def game_title(rom: str) -> str:
    """A game's name as the paper writes it, such as `BankHeist`."""
    return rom.title().replace("_", "")


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def _is_free(env_id: str) -> bool:
    """Whether an id is not registered for anything but ale-py's own environments."""
    return env_id not in gym.registry or str(gym.registry[env_id].entry_point).startswith("ale_py")


@functools.cache
def _installed_roms() -> tuple[str, ...]:
    if importlib.util.find_spec("ale_py") is None:
        return ()
    from ale_py import roms

    return tuple(roms.get_all_rom_ids())
