"""Words on a command line: groups of commands by name, tyro for the options of one command, errors of one line."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

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


class Group:
    """Commands by name, and groups of them, each made when its name is said."""

    def __init__(self, what: str):
        """Makes an empty group; `what` is the kind of thing that its names stand for, such as "agent"."""
        self._what = what
        self._make: dict[str, Callable[[], Words | Group]] = {}
        self._help: dict[str, str | None] = {}

    def add(self, name: str, make: "Callable[[], Words | Group]", *, help: str | None = None) -> None:
        """Adds what makes a command or a group; the help of a command is its docstring if none is given."""
        self._make[name], self._help[name] = make, help

    def parse(self, prog: str, description: str, words: Sequence[str]) -> Command:
        """The command that the words stand for.

        Raises:
            UsageError: if they do not stand for one.
            SystemExit: if they ask for help, which is printed.
        """
        first = words[0] if words else ""
        if first in ("-h", "--help") or first.startswith("--tyro-"):
            return self._app().cli(prog=prog, description=description, args=words)
        if not first or first.startswith("-"):
            raise UsageError(f"{prog} needs the name of {_a(self._what)}: choose from {', '.join(self._make)}")
        name = first.replace("_", "-")
        member = lookup(self._what, name, self._make)()
        if isinstance(member, Group):
            return member.parse(f"{prog} {name}", self._help[name] or "", words[1:])
        return _read(member, f"{prog} {name}", words[1:])

    def _app(self) -> tyro.extras.SubcommandApp:
        """The group as tyro has it."""
        app = tyro.extras.SubcommandApp()
        for name, make in self._make.items():
            member = make()
            if isinstance(member, Group):
                app.command(member._app(), name=name, help=self._help[name])
            else:
                app.command(name=name, help=self._help[name])(member)
        return app


def _read(command: Words, prog: str, words: Sequence[str]) -> Command:
    """Gives a command its options."""

    def refuse(event: Any) -> None:
        problem = _problem(command, event)
        if problem:
            _refuse(prog, problem)

    with tyro_errors.on_parse_error(refuse) if tyro_errors is not None else contextlib.nullcontext():
        read: Command
        read, unknown = tyro.cli(command, prog=prog, args=words, return_unknown_args=True)
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
        return f"missing {', '.join(each.arg.display_name() for each in event.missing_arguments)}"
    if isinstance(event, tyro_errors.InvalidChoice):
        return f"{event.argument.display_name()} cannot be {event.value!r}: {did_you_mean(event.value, event.choices)}"
    if isinstance(event, tyro_errors.BadValue):
        return f"{event.argument.display_name()} needs a value"
    if isinstance(event, tyro_errors.InstantiationFailure):
        taken = f"{event.argument.display_name()} takes {event.argument.lowered.metavar}: " if event.argument else ""
        return f"{taken}{event.message}"
    return ""


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


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
