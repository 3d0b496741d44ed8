"""The trial of kills: a run that is killed at random moments, and goes on, ends as the one that was not."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from faults_cases import BROKEN, IDENTICAL, Case, Group
from faults_runs import SUBJECTS, Subject, difference_of_runs, difference_of_sweeps

HERE = Path(__file__).parent
KILLS_IN_A_ROW = 4
"""Kills of one run before it may end and is compared."""


def kill_runs(kills: int, draw: random.Random, folder: Path, only: str = "") -> Iterator[Group]:
    """Kills runs of every subject at random moments; each must end as the one that was not killed."""
    asked = [subject for subject in SUBJECTS if only in subject.name]
    subjects = [subject for subject in asked if find_spec(subject.needs) is not None]
    for missing in (subject for subject in asked if subject not in subjects):
        print(f"not tried: {missing.name}, which needs {missing.needs}", file=sys.stderr)
    shares = Counter(number % len(subjects) for number in range(kills))
    for number, subject in enumerate(subjects):
        yield f"kills: {subject.name}", _killed(subject, shares[number], draw, folder / subject.name)


def _killed(subject: Subject, kills: int, draw: random.Random, folder: Path) -> list[Case]:
    """So many kills, a few of each run, which then goes on to its end; a case for each kill."""
    cases: list[Case] = []
    differ = difference_of_sweeps if subject.is_sweep else difference_of_runs
    began, problem = time.monotonic(), _finish(subject.command(folder / "whole"))
    duration = time.monotonic() - began
    if problem:
        return [Case("the run that is not killed", BROKEN, problem)]
    left = kills
    while left > 0:
        path, here = folder / f"killed-{left}", min(KILLS_IN_A_ROW, left)
        moments = [draw.uniform(0.0, duration) for _ in range(here)]
        for moment in moments:
            _start_and_kill(subject.command(path), moment)
        left -= here
        problem = _finish(subject.command(path)) or differ(folder / "whole", path)
        cases += [Case("kill", BROKEN if problem else IDENTICAL, f"{path}, killed after {moments} s: {problem}")] * here
    return cases


def _start(words: Sequence[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    return subprocess.Popen(
        [sys.executable, "-m", "paramnoise", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _start_and_kill(words: Sequence[str], moment: float) -> None:
    with _start(words) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=moment)
        process.kill()
        process.communicate()


def _finish(words: Sequence[str]) -> str:
    """Runs a command to its end; returns what went wrong, if anything."""
    with _start(words) as process:
        _, error = process.communicate()
    return "" if process.returncode == 0 else f"status {process.returncode}: {error.strip()[-500:]}"
