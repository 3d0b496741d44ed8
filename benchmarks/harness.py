"""Contenders measured in turn within one run: each in a process of its own, asked for one window at a time.

The one that is asked works alone while the others wait, so a machine that slows down slows all of them, and the ratio
of two windows of the same round says more than either rate.
"""

import contextlib
import importlib.metadata
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from multiprocessing.connection import Connection
from typing import NamedTuple

import gymnasium as gym
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

Window = Callable[[int], int]
"""Trains for at least that many environment steps and returns how many they were."""
Contender = Callable[[], Window]
"""Makes a window; called in the contender's own process, where it imports what it needs."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS", "JAX_PLATFORMS")
PACKAGES = ("paramnoise", "jax", "jaxlib", "flax", "torch", "stable-baselines3", "sbx-rl", "sb3-contrib")
SIMULATION = ("gymnasium", "mujoco", "numpy")


class Plan(NamedTuple):
    """How much is measured."""

    steps: int
    """Environment steps of a window."""
    warm_up: int
    """Environment steps before the first window: compilation, and the steps before learning starts."""
    repeats: int
    """Windows of each contender."""


def measure(contenders: Mapping[str, Contender], plan: Plan, cores: set[int]) -> dict[str, list[float]]:
    """Environment steps per second of each contender on those cores, one value per round."""
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    with contextlib.ExitStack() as stack:
        processes = {name: stack.enter_context(_process(make, cores)) for name, make in contenders.items()}
        for name, contender in processes.items():
            started = time.perf_counter()
            _rate(name, contender, plan.warm_up)
            print(f"{name}: warm after {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        for _ in track(range(plan.repeats), f"{len(cores)} core(s)", transient=True):
            for name, contender in processes.items():
                rates[name].append(_rate(name, contender, plan.steps))
    return rates


def core_settings() -> dict[str, set[int]]:
    """The two ways to run: on all cores that this process may use, and on one, as the runs of a sweep do."""
    allowed = os.sched_getaffinity(0)
    settings = {f"all {len(allowed)} cores": allowed, "one core": {min(allowed)}}
    return settings if len(allowed) > 1 else {"one core": allowed}


def rate_table(rates: Mapping[str, Mapping[str, list[float]]]) -> Table:
    """Median rates: a row per contender, a column per setting of cores."""
    names = next(iter(rates.values()))
    cells = {name: [f"{statistics.median(by_name[name]):,.0f}" for by_name in rates.values()] for name in names}
    return _table("environment steps per second", list(rates), cells)


def ratio_table(rates: Mapping[str, Mapping[str, list[float]]], ratios: list[tuple[str, str]]) -> Table:
    """Ratios of two contenders, round by round: the median and the range."""
    cells = {f"{a} / {b}": [_ratio(by_name[a], by_name[b]) for by_name in rates.values()] for a, b in ratios}
    return _table("ratio, median (least to greatest)", list(rates), cells)


def show(title: str, tables: list[Table], plan: Plan) -> None:
    """Prints the tables, in Markdown, and what they depend on."""
    console = Console(width=140)
    console.print(f"{title}: {plan.repeats} windows of {plan.steps:,} steps each, in turn, {date.today()}\n")
    for table in tables:
        console.print(table)
    console.print(describe_machine(), soft_wrap=True)


def describe_machine() -> str:
    """Processor, thread settings and versions, on three lines."""
    threads = ", ".join(f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ)
    versions = []
    for package in (*PACKAGES, *SIMULATION):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    return (
        f"machine: {_processor()}, {len(os.sched_getaffinity(0))} cores\n"
        f"threads: {threads or 'the defaults of each library'}\n"
        f"versions: python {platform.python_version()}, {', '.join(versions)}"
    )


@contextlib.contextmanager
def _process(make: Contender, cores: set[int]) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(make, cores, theirs))  # it ends when `ours` is closed
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join()


def _serve(make: Contender, cores: set[int], asked: Connection) -> None:
    """Answers each number of steps with a rate, until nobody asks any more."""
    os.sched_setaffinity(0, cores)  # first: libraries size their thread pools by it when they are loaded
    gym.logger.min_level = gym.logger.ERROR  # no advice on old ids from every process
    window = make()
    with contextlib.suppress(EOFError):
        while True:
            steps = asked.recv()
            started = time.perf_counter()
            taken = window(steps)
            asked.send(taken / (time.perf_counter() - started))


def _rate(name: str, ask: Connection, steps: int) -> float:
    try:
        ask.send(steps)
        return ask.recv()
    except (EOFError, ConnectionError):
        raise SystemExit(f"{name} ended early: its error is above") from None


def _ratio(one: list[float], other: list[float]) -> str:
    ratios = [a / b for a, b in zip(one, other, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _table(title: str, settings: list[str], cells: Mapping[str, list[str]]) -> Table:
    table = Table(title, *settings, box=box.MARKDOWN)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in cells.items():
        table.add_row(name, *values)
    return table


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
