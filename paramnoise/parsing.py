"""Words on a command line: groups of commands by name, tyro for the options of one command, errors of one line."""

import ast
import contextlib
import dataclasses
import inspect
import itertools
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import tyro

from paramnoise.validation import UsageError, did_you_mean, lookup

try:
    from tyro import _errors as tyro_errors  # private: where it is missing, tyro prints its errors itself
except ImportError:
    tyro_errors = None  # type: ignore[assignment]

Command = Callable[[], int]
"""What is left to run once the words are understood; it returns an exit status."""
Words = Callable[..., Command]
"""A function whose parameters are the options of a command."""
HELP = frozenset(("-h", "--help"))
"""The words that ask for help."""
NO_INT = re.compile(r"invalid literal for int\(\) with base 10: (\S+)")
"""What Python says of a word that is no whole number."""
NONE_OF = re.compile(r"no type matching .*? could be instantiated from \[(.*?)\]\. Got errors: .*")
"""What tyro says of words that are nothing of what an option may be."""


class Group:
    """Commands by name, and groups of them, each made when its name is said: help needs names and lines alone."""

    def __init__(self, what: str):
        """Makes an empty group; `what` is the kind of thing that its names stand for, such as "agent"."""
        self._what = what
        self._make: dict[str, Callable[[], Words | Group]] = {}
        self._help: dict[str, str] = {}
        self._notes: dict[str, Callable[[], str]] = {}
        self._other: Other | None = None

    def add(
        self, name: str, make: "Callable[[], Words | Group]", help: str, notes: Callable[[], str] = lambda: ""
    ) -> None:
        """Adds what makes a command or a group; `notes` are what its own help says after the line `help`."""
        self._make[name], self._help[name], self._notes[name] = make, help, notes

    def add_other(self, other: "Other") -> None:
        """Adds what a first word stands for that is no name of a member, such as a path."""
        self._other = other

    def parse(self, prog: str, description: str, words: Sequence[str]) -> Command:
        """The command that the words stand for.

        Raises:
            UsageError: if they do not stand for one.
            SystemExit: if they ask for help, which is printed.
        """
        first = words[0] if words else ""
        if first in HELP or first.startswith("--tyro-"):
            return self._app().cli(prog=prog, description=description, args=words)
        if not first or first.startswith("-"):
            raise UsageError(f"{prog} needs the name of {_a(self._what)}{self._or()}: choose from {self._names()}")
        name = first.replace("_", "-")
        if name not in self._make and self._other is not None:
            if not self._other.accepts(first):
                near = did_you_mean(name, self._make)
                raise UsageError(f"{first!r} is neither {_a(self._what)} nor {_a(self._other.what)}: {near}")
            return _read(self._other.make(), prog, self._other.help, words)
        member = lookup(self._what, name, self._make)()
        if isinstance(member, Group):
            return member.parse(f"{prog} {name}", self._help[name], words[1:])
        asks = not HELP.isdisjoint(words)
        description = "\n\n".join(filter(None, (self._help[name], self._notes[name]() if asks else "")))
        return _read(member, f"{prog} {name}", description, words[1:])

    def _names(self) -> str:
        return ", ".join(self._make)

    def _or(self) -> str:
        return f", or {_a(self._other.what)}" if self._other else ""

    def _app(self) -> tyro.extras.SubcommandApp:
        """The group as tyro has it, with nothing behind its names: for help."""
        app = tyro.extras.SubcommandApp()
        for name, help in self._help.items():
            app.command(name=name, help=help)(_nothing)
        return app


def _nothing() -> Command:
    return lambda: 0


class Other(NamedTuple):
    """A command that is not called by a name of its own."""

    what: str
    """What its first word is, such as "run directory"."""
    accepts: Callable[[str], bool]
    """Whether a first word is one."""
    make: Callable[[], Words]
    help: str
    """A line on it."""


def _read(command: Words, prog: str, description: str, words: Sequence[str]) -> Command:
    """Gives a command its options."""

    def refuse(event: Any) -> None:
        problem = _problem(command, event)
        if problem:
            _refuse(prog, problem)

    with tyro_errors.on_parse_error(refuse) if tyro_errors is not None else contextlib.nullcontext():
        read: Command
        read, unknown = tyro.cli(command, prog=prog, description=description, args=words, return_unknown_args=True)
    if unknown:
        _refuse(prog, _unknown(command, unknown))
    return read


def _refuse(prog: str, problem: str) -> NoReturn:
    line = " ".join(problem.split()).rstrip(".")
    raise UsageError(f"{line}{'' if line.endswith('?') else ';'} see {prog} --help")


def _problem(command: Words, event: Any) -> str:
    """Why tyro refuses words; empty for what is not known here, which is left to tyro's own words."""
    if isinstance(event, tyro_errors.MissingArgs):
        if event.unrecognized_tokens:
            return _unknown(command, event.unrecognized_tokens)
        return f"missing {', '.join(_name(each.arg) for each in event.missing_arguments)}"
    if isinstance(event, tyro_errors.InvalidChoice):
        return f"{event.argument.display_name()} cannot be {event.value!r}: {did_you_mean(event.value, event.choices)}"
    if isinstance(event, tyro_errors.BadValue):
        return f"{event.argument.display_name()} needs a value"
    if isinstance(event, tyro_errors.InstantiationFailure):
        taken = f"{event.argument.display_name()} takes {event.argument.lowered.metavar}: " if event.argument else ""
        message = NONE_OF.sub(r"\1 is none of these", " ".join(event.message.split()))
        return taken + NO_INT.sub(r"\1 is no whole number", message)
    return ""


def _name(argument: Any) -> str:
    """What help calls an argument."""
    return argument.lowered.metavar if argument.is_positional() else argument.display_name()


def _unknown(command: Words, words: Sequence[str]) -> str:
    """What is wrong with words that tyro did not understand: the first of them is named."""
    first = words[0].partition("=")[0]
    if first == "--plugin":
        return "--plugin comes before the command"
    if not first.startswith("--"):
        return f"unexpected word {first!r}"
    near = did_you_mean(first, _options(command)).partition("choose from")[0].strip()
    return f"unknown option {first}{': ' if near else ''}{near}"


def _options(command: Words) -> list[str]:
    parameters = inspect.signature(command).parameters.values()
    return [f"--{name.replace('_', '-')}" for each in parameters for name in _field_names(each.name, each.default)]


def _field_names(name: str, value: Any) -> Iterator[str]:
    """The name, or those of the fields if the value has fields, at any depth."""
    if not dataclasses.is_dataclass(value):
        yield name
        return
    for field in dataclasses.fields(value):
        yield from _field_names(field.name, getattr(value, field.name))


def field_notes(cls: type) -> dict[str, str]:
    """The docstring under each field of a dataclass, as one line; where its source cannot be read, it has none."""
    notes: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(each):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0].body  # type: ignore[attr-defined]
        except (OSError, SyntaxError):  # a class of an interactive session
            continue
        for node, after in itertools.pairwise(body):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_text(after):
                notes[node.target.id] = " ".join(after.value.value.split())
    return {field.name: notes.get(field.name, "") for field in dataclasses.fields(cls)}


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def indented(text: str, first: str, rest: str) -> str:
    """Text wrapped to the terminal's width, its first line after `first`, the others after `rest`."""
    width = max(60, min(shutil.get_terminal_size().columns, 120))
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False)


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
