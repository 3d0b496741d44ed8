"""Progress of long work: a live bar on a terminal, plain lines elsewhere."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from types import FrameType
from typing import Any, Protocol

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from paramnoise.agents.base import Spaces, applying
from paramnoise.envs.base import preset
from paramnoise.experience.frames import resolved_place
from paramnoise.networks.own import described
from paramnoise.runs.config import RunConfig, as_tuples


class Bar(Protocol):
    """What long work tells its display."""

    def advance_to(self, done: int) -> None:
        """So much is done."""

    def line(self, text: str) -> None:
        """A lasting line."""


class _LiveBar:
    def __init__(self, progress: Progress, total: int, label: str):
        self._progress = progress
        self._task = progress.add_task(label, total=total)

    def advance_to(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def line(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)


class _PlainLines:
    def advance_to(self, done: int) -> None:
        pass

    def line(self, text: str) -> None:
        print(text, flush=True)


@contextlib.contextmanager
def bar(total: int, label: str, unit: str, show: bool = True) -> Iterator[Bar]:
    """Shows progress toward `total`: a live bar on a terminal or in a notebook with widgets, elsewhere lines alone."""
    console = Console()
    is_live = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal
    if not (show and is_live):
        yield _PlainLines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as progress:
        yield _LiveBar(progress, total, label)


def settings_lines(config: RunConfig, spaces: Spaces) -> list[str]:
    """A run's settings for people: those that matter to this agent here, with the values that they come to."""
    agent = {name: value for name, value in described(applying(config.agent, spaces)).items() if value is not None}
    exploration = config.exploration.applying(spaces.actions, spaces.is_discrete)
    run: dict[str, Any] = {name: getattr(config, name) for name in ("steps", "num_envs", "eval_every", "eval_episodes")}
    if config.devices > 1:
        run["devices"] = config.devices
    if config.log_every is not None:
        run["log_every"] = config.log_every
    if config.terminal_time_limits:
        run["terminal_time_limits"] = True
    if config.made_by.experience == "replay":
        run["overlap"] = config.overlap
        if spaces.shows_frames:
            run.update(replay_on=resolved_place(config.replay_on), save_replay=config.save_replay)
    env = ", ".join((config.env, *(f"{name} {value}" for name, value in config.env_kwargs.items())))
    lines = [f"{config.algorithm} on {env}, exploration {config.exploration.kind}, seed {config.seed}"]
    for part, values in (("agent", agent), ("exploration", exploration), ("run", run)):
        if values:
            lines.append(f"  {part}: " + ", ".join(f"{name} {_shown(value)}" for name, value in values.items()))
    known = preset(config.env, config.env_kwargs)
    own = known.for_agent(config.algorithm)
    sides = (
        (own.with_exploration(config.exploration.kind), config.agent, agent),
        (own.explorations.get(config.exploration.kind, {}), config.exploration, exploration),
        ({**known.run, **own.run}, config, run),
    )
    kept = [
        name
        for settings, of, shown in sides
        for name, value in settings.items()
        if name in shown and getattr(of, name) == as_tuples(value)
    ]
    if kept:
        lines.append(f"  from the preset of {config.env}: {', '.join(kept)}")
    return [*lines, f"  device: {jax.default_backend()}"]


def _shown(value: Any) -> str:
    return str([*value]) if isinstance(value, tuple) else str(value)


def describe(row: dict[str, float]) -> str:
    """A row of progress as a line for people."""
    parts = [
        f"step {int(row['step']):>9,}",
        f"episodes {int(row['episodes']):>6,}",
        f"eval {row['eval_return_mean']:>8.1f}",
        f"train {row['train_return_mean']:>8.1f}",
    ]
    if "sigma" in row:
        parts.append(f"sigma {row['sigma']:.4f}")
    if "epsilon" in row:
        parts.append(f"epsilon {row['epsilon']:.2f}")
    parts.append(f"{row['steps_per_second']:,.0f} steps/s")
    return "  ".join(parts)


SHOW_CURSOR = b"\x1b[?25h"


class StopFlag:
    """Whether someone asked the work to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopFlag]:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a flag, so that work can end at a clean place.

    The second one does what it did before: it kills a command, whose checkpoint of before is whole. SIGHUP, which comes
    when a terminal is closed, is left alone where it is ignored, as under nohup.
    """
    hang_up = getattr(signal, "SIGHUP", None)  # not on every system
    hangs_up = hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN
    with _first_of((signal.SIGINT, signal.SIGTERM, *((hang_up,) if hangs_up else ()))) as flag:
        yield flag


@contextlib.contextmanager
def interrupt_when_clean() -> Iterator[StopFlag]:
    """Turns the first Ctrl-C into a flag, and raises KeyboardInterrupt when the work inside has ended at a clean place.

    The second one interrupts at once. A program with a handler of its own keeps it; threads hear no signal.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield StopFlag()
        return
    with _first_of((signal.SIGINT,)) as flag:
        yield flag
    if flag:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _first_of(signals: Sequence[int]) -> Iterator[StopFlag]:
    """Turns the first of these signals into a flag; after it they do what they did before."""
    flag = StopFlag()
    before = {number: signal.getsignal(number) for number in signals}

    def raise_flag(number: int, frame: FrameType | None) -> None:
        flag.signal = number
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)  # a live bar hides it, and after a second signal nobody would show it
        for each in signals:
            signal.signal(each, before[each])

    for number in signals:
        signal.signal(number, raise_flag)
    try:
        yield flag
    finally:
        for number in signals:
            signal.signal(number, before[number])
