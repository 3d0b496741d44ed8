"""A case of the trial of faults: how it ended, and how a command of it did."""

import contextlib
import io
import signal
from collections.abc import Sequence
from typing import NamedTuple

from paramnoise.cli import main

IDENTICAL, WORKS, ONE_LINE, BROKEN = "identical", "works", "one line", "BROKEN"
"""How a case ended: as if nothing had happened, as a sound command does, with one line that says why not; or else."""


class Case(NamedTuple):
    """One thing that was tried."""

    what: str
    outcome: str
    story: str = ""
    """What happened, if it did not hold."""


Group = tuple[str, list[Case]]
"""A row of the table: its name and its cases."""


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
