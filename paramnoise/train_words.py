"""The options of `paramnoise train`: a command for each agent that is registered, with the preset's defaults."""

import argparse
import ast
import contextlib
import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import tyro

from paramnoise import commands
from paramnoise.agents.base import AGENTS, AgentEntry
from paramnoise.envs import env_id
from paramnoise.envs.base import Preset, preset
from paramnoise.parallel.process import Device
from paramnoise.parsing import Command, Group, Words, field_notes, indented
from paramnoise.runs.config import RunConfig, RunSettings, make_config
from paramnoise.runs.directory import RunDirectory
from paramnoise.runs.files import CHECKPOINT_SECONDS
from paramnoise.validation import UsageError, check_types

Settings = TypeVar("Settings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be learned, and how it is explored."""

    env: str
    """An id or a name; `paramnoise envs` lists them."""
    env_kwargs: tuple[str, ...] = ()
    """Keywords of the environment, as key:value."""
    exploration: tuple[str, ...] = ()
    """KIND [field:value ...], for example: parameter delta:0.05 adapt_every:50."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(RunSettings, Task, Generic[Settings]):
    """What `paramnoise train` takes, whatever the agent."""

    run_dir: Path | None = None
    """Where the run is kept; by default a new directory below runs/."""
    resume: bool = False
    """Go on with the run that the directory holds."""
    resume_or_start: bool = False
    """Go on with the run if the directory holds one, and start it if not: for jobs that are stopped and put back."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    """Seconds after which an evaluation is followed by a checkpoint; one is written at the end in any case."""
    tensorboard: bool = False
    """Write event files for TensorBoard too, in the run directory."""
    device: Device | None = None
    """What to compute on; None: what JAX chooses, a GPU if it finds one."""
    agent: Annotated[Settings, tyro.conf.arg(name="")]
    """The agent's settings."""


def train_group(arguments: list[str]) -> Group:
    """`paramnoise train`: a command for each agent, whose defaults are those of the environment's preset."""
    ahead = _read_ahead(arguments)
    known = preset(env_id(ahead.env), _key_values("--env-kwargs", ahead.env_kwargs))
    group = Group("agent")
    for agent in AGENTS.values():
        group.add(
            agent.name,
            partial(_train_command, agent, known, next(iter(ahead.exploration), None)),
            f"Train {agent.title}. Explorations: {', '.join(agent.explorations)}; "
            f"by default {agent.default_exploration}.",
            partial(exploration_notes, agent, known),
        )
    return group


def naming_plugins(arguments: list[str]) -> contextlib.AbstractContextManager[None]:
    """Adds to an error the plug-ins that the run of `--run-dir` was made with and that are not loaded."""
    run_dir = _read_ahead(arguments).run_dir
    return RunDirectory(Path(run_dir)).naming_plugins() if run_dir else contextlib.nullcontext()


def exploration_notes(agent: AgentEntry, known: Preset) -> str:
    """What the help of an agent says of its explorations: their settings, with defaults after the preset."""
    lines = ["Explorations, as --exploration KIND field:value ..., with their defaults:"]
    for name in agent.explorations:
        cls = agent.exploration_type(name)
        summary = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        lines.append(indented(summary, f"  {name}: ", "    "))
        own = known.for_agent(agent.name).explorations.get(name, {})
        values = {**agent.exploration_settings.get(name, {}), **own}
        notes = field_notes(cls)
        for field in dataclasses.fields(cls):
            setting = f"{field.name}:{values.get(field.name, field.default)}"
            lines.append(indented(notes[field.name], f"    {setting:<22} ", " " * 27))
    return "\n".join(lines)


def _train_command(agent: AgentEntry, known: Preset, exploration: str | None) -> Words:
    """The train command of one agent; its defaults are those of a preset, with an exploration."""
    kind = exploration or agent.default_exploration
    asked = agent.settings_for(agent.exploration_type(kind))
    own = known.for_agent(agent.name)
    settings, run = {**asked, **own.with_exploration(kind)}, {**known.run, **own.run}
    check_types(agent.config, settings, f"{agent.name}, in the environment's preset,")
    check_types(RunSettings, run, "a run, in the environment's preset,")
    defaults = Train(env=tyro.MISSING, agent=agent.config(**settings), **run)
    config_type = agent.config

    def train(args: Annotated[Train[config_type], tyro.conf.arg(name="")] = defaults) -> Command:  # type: ignore[valid-type]
        return lambda: commands.train(
            _run_config(agent, args),
            args.run_dir,
            resume=args.resume,
            or_start=args.resume_or_start,
            checkpoint_seconds=args.checkpoint_seconds,
            tensorboard=args.tensorboard,
            device=args.device,
        )

    return train


def _run_config(agent: AgentEntry, args: Train[Any]) -> RunConfig:
    kind, *settings = args.exploration or (agent.default_exploration,)
    return make_config(
        agent.name,
        args.env,
        _key_values("--env-kwargs", args.env_kwargs),
        exploration=kind,
        exploration_settings=_key_values("--exploration", settings),
        agent={field.name: getattr(args.agent, field.name) for field in dataclasses.fields(args.agent)},
        **{field.name: getattr(args, field.name) for field in dataclasses.fields(RunSettings)},
    )


def _read_ahead(arguments: list[str]) -> argparse.Namespace:
    """The words of `train` that decide the defaults of the others, by the environment's preset; and the run's place."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--env", default="")
    parser.add_argument("--env-kwargs", nargs="*", default=[])
    parser.add_argument("--exploration", nargs="*", default=[])
    parser.add_argument("--run-dir", default="")
    try:
        return parser.parse_known_args([_with_dashes(word) for word in arguments])[0]
    except argparse.ArgumentError:  # an option without its value, which the command's own parser tells of
        return parser.parse_args([])


def _with_dashes(word: str) -> str:
    """An option as tyro reads it: underscores in its name are dashes."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if name.startswith("--") else word


def _key_values(option: str, words: Sequence[str]) -> dict[str, Any]:
    """Words of the form key:value as a dict; numbers, booleans, None and lists are read as such."""
    values: dict[str, Any] = {}
    for word in words:
        key, colon, text = word.partition(":")
        if not (key and colon):
            raise UsageError(f"{option} takes key:value, not {word!r}")
        if key in values:
            raise UsageError(f"{option} has {key} twice")
        try:
            values[key] = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        except (ValueError, SyntaxError, TypeError):
            values[key] = text
    return values
