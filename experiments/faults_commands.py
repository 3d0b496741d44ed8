"""The trial of command lines: whatever words are given, they work or are refused with one line."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

from faults_cases import BROKEN, ONE_LINE, WORKS, Case, Group, called, is_one_line
from faults_runs import MADE, VECTORS

from paramnoise.cli import main

COMMANDS = (
    f"train dqn --env CartPole-v1 {VECTORS} --num-envs 2 --steps 20 --exploration parameter delta:0.1 --run-dir RUN",
    f"train ddpg --env Pendulum-v1 {VECTORS} --steps 20 --exploration ou sigma:0.2 --run-dir RUN --seed 3",
    "train trpo --env CartPole-v1 --hidden-sizes 8 --batch-size 10 --steps 20 --eval-episodes 1 --run-dir RUN",
    "train es --env CartPole-v1 --hidden-sizes 4 --pairs 1 --table-size 500 --steps 20 --eval-episodes 1 --run-dir RUN",
    "resume MADE --steps 220",
    "evaluate MADE --episodes 2 --seed 1",
    "delta MADE --sigmas 0.1 0.2 --states 10",
    "plot MADE --out RUN.png",
    "envs --search chain",
    "claims --results MADE",
    "plot chain --out MADE",
)
"""Command lines that are sound until they are fuzzed; MADE is a run, RUN is nothing yet."""
NONSENSE = (
    *("", "-1", "0", "1.5", "nan", "inf", "1e309", "1e20", "99999999999999999", "x", "None", "true", "0x10", "--", "-"),
    *("--help", "--seed", "--unknown", "--env", "é", "\udcff", "a" * 300, "../..", "a:b", ":", "\n", "MADE", "-h"),
    *("delta:", "delta:[1,2", "parameter", "module:Env-v0", "[[[[", "{}", "1 2", "*", "--steps="),
)
"""Words that mean nothing where they are put; no device is among them, lest a fault of ours destroys one."""


def fuzz_commands(count: int, draw: random.Random, folder: Path) -> Iterator[Group]:
    """Gives commands with words that are exchanged, left out, doubled or made up."""
    made = folder / "made"
    assert main([*MADE[0].split(), str(made)]) == 0
    cases: dict[str, list[Case]] = {}
    before = Path.cwd()
    (folder / "here").mkdir()
    os.chdir(folder / "here")
    try:
        for number in range(count):
            sound = draw.choice(COMMANDS).split()
            words = _fuzzed(sound, draw)
            paths = {"MADE": str(made), "RUN": str(folder / f"run-{number}")}
            words = [paths.get(word, word).replace("RUN.png", f"{paths['RUN']}.png") for word in words]
            cases.setdefault(f"command lines: {sound[0]}", []).append(_fuzz_case(words))
    finally:
        os.chdir(before)
    yield from sorted(cases.items())


def _fuzz_case(words: list[str]) -> Case:
    status, _, error, raised = called(words, seconds=20)
    if raised:
        return Case(repr(words), BROKEN, raised)
    if status in (0, None):  # help, or work that goes on: the words are sound
        return Case(repr(words), WORKS)
    return Case(repr(words), ONE_LINE if is_one_line(status, error) else BROKEN, f"status {status}: {error[-300:]}")


def _fuzzed(words: list[str], draw: random.Random) -> list[str]:
    words = list(words)
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(1, len(words) + 1)
        kind = draw.randrange(4)
        if kind == 0:
            words.insert(place, draw.choice(NONSENSE))
        elif kind == 1 and len(words) > 2:
            words.pop(place - 1)
        elif kind == 2:
            words[place - 1] = draw.choice(NONSENSE)
        else:
            words.insert(place, words[place - 1])
    return words
