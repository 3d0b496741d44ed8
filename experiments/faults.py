"""The trial of faults: kills, corruptions and nonsense; after each, a run is identical or one line says why not.

    python experiments/faults.py            # the short form, with the tests of faults (make test-faults)
    python experiments/faults.py --long     # 200 kills, 500 corruptions, 500 command lines (make test-faults-long)

It prints a table of what was tried and what held, then each case that did not, and ends with status 1 if there is any.
"""

import argparse
import functools
import random
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from faults_cases import BROKEN, IDENTICAL, ONE_LINE, WORKS, Case, Group
from faults_commands import fuzz_commands
from faults_corruptions import corrupt_runs
from faults_kills import kill_runs

REPOSITORY = Path(__file__).parent.parent
TESTS = {
    "hostile and damaged directories, two writers": ("runs/test_faults.py",),
    "errors of the system and of environments": ("runs/test_system_errors.py",),
    "crafted files": ("runs/test_crafted_files.py",),
    "what environments return, and whether they repeat": ("envs/test_checked.py", "loops/test_vector.py"),
    "signals": ("runs/test_signals.py",),
    "infinities and absurd sizes": ("runs/test_sizes.py",),
}
"""What each file of tests below tests/ shows; the trials below draw what nobody thought of."""


def run_tests() -> Iterator[Group]:
    """The tests of faults, by what they show."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        files = [str(REPOSITORY / "tests" / name) for names in TESTS.values() for name in names]
        command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", f"--junitxml={report}", *files]
        subprocess.run(command, check=False, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
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


def print_table(groups: Sequence[Group]) -> int:
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
    groups: list[Group] = []

    def take(found: Iterator[Group]) -> None:
        for name, cases in found:
            held = sum(case.outcome != BROKEN for case in cases)
            print(f"{name}: {held} of {len(cases)} held", file=sys.stderr, flush=True)
            groups.append((name, cases))

    if not asked.no_tests:
        take(run_tests())
    trials: tuple[tuple[Callable[..., Iterator[Group]], int], ...] = (
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
