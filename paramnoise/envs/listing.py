"""The environments that there are, as lines for people: ours, families of others, and Gymnasium's."""

import importlib.util
from collections.abc import Iterable

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version

from paramnoise.envs.base import ENVS, FAMILIES, EnvEntry, short_name
from paramnoise.validation import UsageError, did_you_mean


def env_lines() -> list[str]:
    """All environments: ours by group, then the families, then Gymnasium's by kind."""
    lines = []
    groups: dict[str, list[EnvEntry]] = {}
    for entry in ENVS.values():
        groups.setdefault(entry.group, []).append(entry)
    for group, entries in groups.items():
        helped = [f"  {entry.id:<36} {entry.help}" for entry in entries if entry.help]
        others = _joined(entry.id for entry in entries if not entry.help)
        lines += [f"{group[0].upper()}{group[1:]}:", *helped, *others, ""]
    for family in FAMILIES.values():
        note = _install_note(*family.needs) if family.needs else ""
        lines += [f"{family.group}{note}:", *_joined(family.members), ""]
    return [*lines, *_gymnasium_lines()]


def found_lines(word: str) -> list[str]:
    """The environments that have a word in their id or help, a line each.

    Raises:
        UsageError: if there is none.
    """
    helps = {entry.id: entry.help for entry in ENVS.values()}
    for family in FAMILIES.values():
        helps |= dict.fromkeys(family.members, family.name)
    for kind, newest in _gymnasium_ids().items():
        helps |= {env: f"Gymnasium's {kind}" for env in newest if env not in helps}
    found = {env: help for env, help in helps.items() if word.lower() in f"{env} {help}".lower()}
    if not found:
        near = did_you_mean(word, [*dict.fromkeys(map(short_name, helps))]).partition("choose from")[0].strip()
        raise UsageError(f"no environment has {word!r} in its id or help{': ' if near else ''}{near}")
    return [f"{env:<36} {help or ENVS[env].group}" for env, help in found.items()]


def _gymnasium_lines() -> list[str]:
    lines = [
        "Gymnasium's (any registered id works where the action space fits; other names mean the newest, as listed):"
    ]
    needs = {"box2d": "Box2D", "mujoco": "mujoco"}
    for kind, newest in _gymnasium_ids().items():
        note = _install_note(needs[kind], kind) if kind in needs else ""
        lines.append(f"  {kind}{note}: {', '.join(newest)}")
    return lines


def _gymnasium_ids() -> dict[str, list[str]]:
    """The newest version of each of Gymnasium's environments, by kind."""
    kinds: dict[str, list[str]] = {}
    for spec in gym.registry.values():
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith("gymnasium.envs."):
            newest = kinds.setdefault(spec.entry_point.split(".")[2].split(":")[0], [])
            if spec.version == find_highest_version(spec.namespace, spec.name):
                newest.append(spec.id)
    return kinds


def _joined(names: Iterable[str]) -> list[str]:
    """A line of names, if there are any."""
    line = ", ".join(names)
    return [f"  {line}"] if line else []


def _install_note(module: str, extra: str) -> str:
    """How to install an extra, if its module is missing."""
    return "" if importlib.util.find_spec(module) else f" (needs: pip install 'paramnoise[{extra}]')"
