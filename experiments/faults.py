"""The trial of faults: kills, corruptions and nonsense; after each, a run is identical or one line says why not.

    python experiments/faults.py            # the short form, with the tests of faults (make test-faults)
    python experiments/faults.py --long     # 200 kills, 500 corruptions, 500 command lines (make test-faults-long)

It prints a table of what was tried and what held, then each case that did not, and ends with status 1 if there is any.
"""

import argparse
import contextlib
import functools
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paramnoise.cli import main
from paramnoise.runs.directory import WALL_CLOCK_COLUMNS, RunDirectory
from paramnoise.validation import UsageError

HERE = Path(__file__).parent
TESTS = {
    "hostile and damaged directories, two writers": ("runs/test_faults.py",),
    "errors of the system and of environments": ("runs/test_system_errors.py",),
    "crafted files": ("runs/test_crafted_files.py",),
    "what environments return, and whether they repeat": ("envs/test_checked.py", "loops/test_vector.py"),
    "signals": ("runs/test_signals.py",),
    "infinities and absurd sizes": ("runs/test_sizes.py",),
}
"""What each file of tests below tests/ shows; the trials below draw what nobody thought of."""
KILLS_IN_A_ROW = 4
"""Kills of one run before it may end and is compared."""
IDENTICAL, WORKS, ONE_LINE, BROKEN = "identical", "works", "one line", "BROKEN"
"""How a case ended: as if nothing had happened, as a sound command does, with one line that says why not; or else."""


class Case(NamedTuple):
    """One thing that was tried."""

    what: str
    outcome: str
    story: str = ""
    """What happened, if it did not hold."""


class Subject(NamedTuple):
    """A run that is killed."""

    name: str
    words: str
    needs: str = "paramnoise"
    """The module without which it cannot be tried."""
    is_sweep: bool = False
    """Whether it is a sweep, which goes on when its command is given again, and not a run directory."""

    def command(self, path: Path) -> list[str]:
        """What starts it in a directory, and goes on with it."""
        if self.is_sweep:
            return [*self.words.split(), "--out", str(path)]
        return [*self.words.split(), "--checkpoint-seconds", "0", "--resume-or-start", "--run-dir", str(path)]


VECTORS = "--hidden-sizes 8 8 --batch-size 4 --buffer-size 500 --learning-starts 8 --eval-every 100 --eval-episodes 2"
FRAMES = "--convolutions 4 4 2 4 3 1 --hidden-sizes 8 --eval-episodes 2"
ES = "train es --env CartPole-v1 --hidden-sizes 4 --pairs 3 --table-size 500 --steps 2000 --eval-every 200"
SUBJECTS = (
    Subject("dqn", f"train dqn --env CartPole-v1 {VECTORS} --num-envs 2 --steps 1000 --exploration parameter"),
    Subject("ddpg, overlap", f"train ddpg --env Pendulum-v1 {VECTORS} --overlap --steps 1000"),
    Subject(
        "trpo",
        "train trpo --env CartPole-v1 --hidden-sizes 8 --batch-size 50 --steps 1000 --eval-every 100 --eval-episodes 2",
    ),
    Subject("bootstrapped-dqn", f"train bootstrapped-dqn --env CartPole-v1 {VECTORS} --steps 500"),
    Subject("es", f"{ES} --eval-episodes 2"),
    Subject("es, 2 workers", f"{ES} --eval-episodes 2 --workers 2"),
    Subject(
        "dqn, pixels",
        f"--plugin faults_plugin train dqn --env faults/Sides-v0 {FRAMES} --batch-size 4 --buffer-size 60 "
        "--learning-starts 16 --train-every 4 --steps 300 --eval-every 50 --num-envs 2",
    ),
    Subject(
        "es, pixels",
        f"--plugin faults_plugin train es --env faults/Sides-v0 {FRAMES} --pairs 2 --table-size 5000 --steps 300 "
        "--eval-every 50",
    ),
    Subject("es, Ray", f"{ES} --eval-episodes 2 --workers 2 --engine ray", needs="ray"),
    Subject(
        "compiled loop",
        "reproduce chain --scale smoke --lengths 5 --episodes 40 --seeds 2 --workers 1",
        is_sweep=True,
    ),
)
"""Every agent and every loop."""


def run_tests() -> Iterator[tuple[str, list[Case]]]:
    """The tests of faults, by what they show."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        files = [str(HERE.parent / "tests" / name) for names in TESTS.values() for name in names]
        command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", f"--junitxml={report}", *files]
        subprocess.run(command, check=False, cwd=HERE.parent, stdout=subprocess.DEVNULL)
        tests = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    for what, names in TESTS.items():
        modules = {name.removesuffix(".py").replace("/", ".") for name in names}
        own = [test for test in tests if any(module in test.get("classname", "") for module in modules)]
        yield f"tests: {what}", [_test_case(test) for test in own]


def _test_case(test: xml.etree.ElementTree.Element) -> Case:
    problem = next((child for child in test if child.tag in ("failure", "error")), None)
    if problem is None:
        return Case(test.get("name", ""), WORKS)
    return Case(test.get("name", ""), BROKEN, problem.get("message", ""))


def kill_runs(kills: int, draw: random.Random, folder: Path, only: str = "") -> Iterator[tuple[str, list[Case]]]:
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
    differ = same_sweeps if subject.is_sweep else same_runs
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


def same_runs(one: Path, other: Path) -> str:
    """In what the rows and the arrays of two runs differ; empty: in nothing."""
    if _rows(one) != _rows(other):
        return "progress.csv differs"
    ours, theirs = _arrays(one), _arrays(other)
    if ours.keys() != theirs.keys():
        return "the checkpoint has other arrays"
    return ", ".join(name for name in ours if ours[name] != theirs[name])


def same_sweeps(one: Path, other: Path) -> str:
    """In what the results of two sweeps differ."""
    ours, theirs = (
        {file.relative_to(path): file.read_bytes() for file in path.rglob("results.csv")} for path in (one, other)
    )
    return "" if ours == theirs and ours else "results.csv differs"


def _rows(path: Path) -> list[dict[str, str]]:
    rows = RunDirectory(path).rows()
    return [{name: value for name, value in row.items() if name not in WALL_CLOCK_COLUMNS} for row in rows]


def _arrays(path: Path) -> dict[str, tuple[Any, ...]]:
    (file,) = (path / "checkpoint").glob("arrays-*.npz")
    with np.load(file) as arrays:
        return {name: (array.shape, array.dtype, array.tobytes()) for name, array in arrays.items()}


def called(words: Sequence[str], seconds: int = 60) -> tuple[int | None, str, str, str]:
    """Gives a command to this process: its status, what it printed, its errors, and what it raised, if it did.

    A command that works for longer than it may is stopped, and its status is None.
    """

    class TooLong(BaseException):
        pass

    def stop(*_: object) -> None:
        raise TooLong

    out, error, raised, status = io.StringIO(), io.StringIO(), "", None
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = main(list(words))
    except TooLong:
        pass
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException as end:
        raised = f"{type(end).__name__}: {end}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return status, out.getvalue(), error.getvalue(), raised


def is_one_line(status: int | None, error: str) -> bool:
    """Whether a command was refused, or stopped, with one line."""
    return status in (1, 2) and error.count("\n") == 1 and error.startswith("paramnoise: ")


MADE = (
    f"train dqn --env CartPole-v1 {VECTORS} --num-envs 2 --steps 200 --exploration parameter --run-dir",
    "train trpo --env CartPole-v1 --hidden-sizes 8 --batch-size 50 --steps 200 --eval-every 100 "
    "--eval-episodes 2 --run-dir",
    "train es --env CartPole-v1 --hidden-sizes 4 --pairs 3 --table-size 500 --steps 400 --eval-every 200 "
    "--eval-episodes 2 --run-dir",
)
"""The runs whose files are damaged."""


def corrupt_runs(corruptions: int, draw: random.Random, folder: Path) -> Iterator[tuple[str, list[Case]]]:
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
        return same_runs(one, other)
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


def fuzz_commands(count: int, draw: random.Random, folder: Path) -> Iterator[tuple[str, list[Case]]]:
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


def print_table(groups: Sequence[tuple[str, list[Case]]]) -> int:
    """Prints what was tried and what held, and each case that did not; returns how many these are."""
    width = max(len(name) for name, _ in groups)
    held = (IDENTICAL, WORKS, ONE_LINE)
    print(f"{'':{width}}  tried  held  {'  '.join(held)}")
    for name, cases in groups:
        found = Counter(case.outcome for case in cases)
        parts = "  ".join(f"{found[outcome] or '':>{len(outcome)}}" for outcome in held)
        print(f"{name:{width}}  {len(cases):>5}  {len(cases) - found[BROKEN]:>4}  {parts}")
    broken = [(name, case) for name, cases in groups for case in cases if case.outcome == BROKEN]
    for name, case in broken:
        print(f"BROKEN {name}: {case.what}: {' '.join(case.story.split())}")
    return len(broken)


def parsed() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="200 kills, 500 corruptions and 500 command lines")
    parser.add_argument("--kills", type=int, help="how many processes to kill")
    parser.add_argument("--corruptions", type=int, help="how many files to damage")
    parser.add_argument("--commands", type=int, help="how many command lines to fuzz")
    parser.add_argument("--only", default="", help="kill only runs whose name has this, such as pixels")
    parser.add_argument("--no-tests", action="store_true", help="leave out the tests of faults")
    parser.add_argument("--seed", type=int, default=0, help="decides what is drawn")
    asked = parser.parse_args()
    for name, short, long in (("kills", 9, 200), ("corruptions", 40, 500), ("commands", 60, 500)):
        if getattr(asked, name) is None:
            setattr(asked, name, long if asked.long else short)
    return asked


def try_all(asked: argparse.Namespace) -> int:
    """Does what was asked for; returns the exit status."""
    groups: list[tuple[str, list[Case]]] = []

    def take(found: Iterator[tuple[str, list[Case]]]) -> None:
        for name, cases in found:
            held = sum(case.outcome != BROKEN for case in cases)
            print(f"{name}: {held} of {len(cases)} held", file=sys.stderr, flush=True)
            groups.append((name, cases))

    if not asked.no_tests:
        take(run_tests())
    trials: tuple[tuple[Callable[..., Iterator[tuple[str, list[Case]]]], int], ...] = (
        (functools.partial(kill_runs, only=asked.only), asked.kills),
        (corrupt_runs, asked.corruptions),
        (fuzz_commands, asked.commands),
    )
    with tempfile.TemporaryDirectory() as folder:
        for number, (trial, count) in enumerate(trials):
            here = Path(folder) / str(number)
            here.mkdir()
            if count:
                take(trial(count, random.Random(asked.seed), here))
    return 1 if print_table(groups) else 0


if __name__ == "__main__":
    sys.exit(try_all(parsed()))
