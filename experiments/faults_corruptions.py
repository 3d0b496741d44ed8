"""The trial of corruptions: a run with a damaged file does what the sound one does, or one line says why not."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from faults_cases import BROKEN, IDENTICAL, ONE_LINE, Case, Group, called, is_one_line
from faults_runs import MADE, difference_of_runs

from paramnoise.cli import main
from paramnoise.validation import UsageError


def corrupt_runs(corruptions: int, draw: random.Random, folder: Path) -> Iterator[Group]:
    """Damages a file of a finished run, then loads it and goes on with it."""
    wholes = []
    for number, words in enumerate(MADE):
        whole = folder / f"whole-{number}"
        assert main([*words.split(), str(whole), "--checkpoint-seconds", "0"]) == 0
        longer = Path(shutil.copytree(whole, folder / f"longer-{number}"))
        assert main(["resume", str(longer), "--steps", "600"]) == 0
        wholes.append((whole, longer, called(["evaluate", str(whole), "--episodes", "2"])))
    cases: dict[str, list[Case]] = {}
    for number in range(corruptions):
        whole, longer, evaluated = draw.choice(wholes)
        name, damage = draw.choice(list(DAMAGES.items()))
        broken = Path(shutil.copytree(whole, folder / f"broken-{number}"))
        files = sorted(file for file in broken.rglob("*") if file.is_file() and file.name != ".lock")
        file = draw.choice(files)
        damage(file, draw)
        what = f"{name} in {file.relative_to(broken)}"
        cases.setdefault(f"corruptions: {name}", []).append(_corrupted(what, broken, longer, evaluated))
        shutil.rmtree(broken, ignore_errors=True)
    yield from sorted(cases.items())


def _corrupted(what: str, broken: Path, longer: Path, evaluated: tuple[int | None, str, str, str]) -> Case:
    """Evaluates and resumes a damaged run: each must do what the sound one does, or say in one line why not."""
    outcomes = []
    for words in (["evaluate", str(broken), "--episodes", "2"], ["resume", str(broken), "--steps", "600"]):
        status, out, error, raised = called(words)
        if raised or status is None:
            return Case(what, BROKEN, f"{words[0]}: {raised or 'it did not end'}")
        if status != 0:
            outcomes.append(ONE_LINE)
            if not is_one_line(status, error):
                return Case(what, BROKEN, f"{words[0]}, status {status}: {error[-300:]}")
        elif words[0] == "evaluate" and out != evaluated[1]:
            return Case(what, BROKEN, f"evaluate says {out!r}")
        elif words[0] == "resume" and (problem := _differ(longer, broken)):
            return Case(what, BROKEN, f"resume went on, and {problem}")
        else:
            outcomes.append(IDENTICAL)
    return Case(what, ONE_LINE if ONE_LINE in outcomes else IDENTICAL)


def _differ(one: Path, other: Path) -> str:
    try:
        return difference_of_runs(one, other)
    except (UsageError, OSError, ValueError) as error:
        return f"cannot be read: {error}"


def _flip_a_bit(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def _cut(file: Path, draw: random.Random) -> None:
    os.truncate(file, draw.randrange(file.stat().st_size))


def _delete(file: Path, draw: random.Random) -> None:
    file.unlink()


def _scramble(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    begin = draw.randrange(len(content))
    content[begin : begin + 20] = draw.randbytes(20)
    file.write_bytes(content)


def _double_a_line(file: Path, draw: random.Random) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    lines.insert(draw.randrange(len(lines)), draw.choice(lines))
    file.write_bytes(b"".join(lines))


def _pipe(file: Path, draw: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


def _folder(file: Path, draw: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _link(file: Path, draw: random.Random) -> None:
    file.unlink()
    file.symlink_to(draw.choice(["/dev/zero", "/dev/null", "/nowhere", str(file.parent), str(file)]))


def _other_json(file: Path, draw: random.Random) -> None:
    """Puts another value in the place of one in a JSON file; any other file is cut."""
    try:
        value = json.loads(file.read_bytes())
    except ValueError:
        _cut(file, draw)
        return
    place: Any = value
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = draw.choice(list(keys))
        if not (isinstance(place[key], dict | list) and place[key] and draw.random() < 0.8):
            break
        place = place[key]
    place[key] = draw.choice([None, True, -1, 10**30, 0.5, float("nan"), "x", "", [], {}, [[1]], {"given": 1}])
    file.write_text(json.dumps(value))


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "a bit": _flip_a_bit,
    "cut": _cut,
    "deleted": _delete,
    "20 bytes": _scramble,
    "a line twice": _double_a_line,
    "a pipe": _pipe,
    "a folder": _folder,
    "a link": _link,
    "another value": _other_json,
}
