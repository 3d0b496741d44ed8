"""The run directory: config.json, progress.csv, summary.json, checkpoint/, best/, and tensorboard/ if asked for."""

import contextlib
import csv
import hashlib
import importlib.metadata
import io
import itertools
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paramnoise.plugins import loaded_plugins, missing_plugins_hint
from paramnoise.runs import lock
from paramnoise.runs.checkpoint import NO_FOLLOW, naming, temporary_of, write_atomically
from paramnoise.runs.config import MAY_DIFFER, RunConfig
from paramnoise.runs.reading import read_json, read_text
from paramnoise.validation import UsageError
from paramnoise.version import __version__

FIRST_COLUMNS = (
    "step",
    "episodes",
    "eval_return_mean",
    "eval_return_median",
    "train_return_mean",
    "sigma",
    "distance",
    "delta",
)
TRACEBACK = "traceback.txt"
"""Where a run that an environment's exception ended keeps its traceback."""
WALL_CLOCK_COLUMNS = ("steps_per_second", "wall_time")
"""The only columns in which two runs of one seed may differ."""


class RunDirectory:
    """One run's files."""

    def __init__(self, path: Path):
        """Names the directory; nothing is read or written yet."""
        self.path = path
        self.checkpoint = path / "checkpoint"
        self.tensorboard = path / "tensorboard"
        self._progress = path / "progress.csv"

    def claim(self, config: RunConfig, resume: bool) -> None:
        """Makes the directory this run's, or raises UsageError and changes nothing."""
        self.check(config, resume)
        self.write_config(config)

    def check(self, config: RunConfig, resume: bool) -> None:
        """Raises UsageError if the run cannot have the directory.

        A directory with another config is never taken; one with the same config only with `resume`, and then `steps`
        may differ, to go on for longer, as may the number and place of ES's workers, which change no result.
        """
        self.check_links()
        if self.exists():
            held = self.config()
            differing = {name: values for name, values in differences(held, config).items() if values[0] != values[1]}
            if differing:
                raise UsageError(f"{self.path} holds a run with another config: {_described(differing)}")
            if not resume:
                raise UsageError(f"{self.path} holds this run already: pass --resume to go on, or another --run-dir")
            if config.steps < held.steps:
                raise UsageError(f"{self.path} holds a run of {held.steps} steps: give --steps {held.steps} or more")
        elif self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is a file, not a run directory")
        elif self.path.exists() and any(file not in self._left_by_a_kill() for file in self.path.iterdir()):
            raise UsageError(f"{self.path} exists, is not empty and is not a run directory")
        elif resume:
            raise UsageError(f"nothing to resume: {self.path} holds no run")

    def check_links(self) -> None:
        """Raises UsageError if a folder in which a run writes is a link, which would lead it elsewhere."""
        best = self.path / "best"
        for folder in (self.checkpoint, best, best / self.checkpoint.name, self.tensorboard):
            if folder.is_symlink():
                raise UsageError(f"{folder} is a link, and a run writes in its own directory alone: remove it")

    def write_config(self, config: RunConfig) -> None:
        """Writes config.json, making the directory if it is missing."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_json("config.json", {"config": config.to_json(), "plugins": loaded_plugins(), **provenance()})

    def config(self, parts: Mapping[str, Any] | None = None) -> RunConfig:
        """The config of the run that the directory holds, with `parts` of the user's that are not registered."""
        with self.naming_plugins():
            return RunConfig.from_json(self._read_json("config.json").get("config", {}), parts)

    def check_env(self, config: RunConfig) -> None:
        """Raises UsageError if making the stored environment would import a module that its id names."""
        if ":" in config.env:
            raise UsageError(
                f"{self.path} names an environment of a module, {config.env!r}, and importing that would run its code: "
                "if you trust it, name it yourself (env= in Python, --trust-env on the command line)"
            )

    def settings(self) -> dict[str, Any]:
        """The config's fields as `flat` names them, in JSON: those of plug-ins that are not loaded, too."""
        config = self._read_json("config.json").get("config", {})
        try:
            return flat(config)
        except (KeyError, TypeError, AttributeError):
            raise UsageError(f"{self.path / 'config.json'} is damaged: it holds no run's config") from None

    @contextlib.contextmanager
    def naming_plugins(self) -> Iterator[None]:
        """Adds to an error the plug-ins that the run was made with and that are not loaded; imports nothing."""
        try:
            yield
        except UsageError as error:
            hint = missing_plugins_hint(self._plugins()) if self.exists() else ""
            if hint and hint not in str(error):
                raise UsageError(f"{error}{hint}") from error
            raise

    def best(self) -> "RunDirectory":
        """The directory of the agent with the best evaluation, which is made if it is missing."""
        best = RunDirectory(self.path / "best")
        if not best.exists():
            best.path.mkdir(exist_ok=True)
            best._write_json("config.json", self._read_json("config.json"))
        return best

    def exists(self) -> bool:
        """Whether the directory holds a run."""
        return (self.path / "config.json").exists()

    def append(self, row: dict[str, Any]) -> None:
        """Adds a row of progress, on disk before the checkpoint that counts on it."""
        text = csv_text(_columns(row), [row])
        if self._progress.exists():
            text = text.split("\n", 1)[1]
        with naming(self._progress):
            descriptor = os.open(self._progress, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_FOLLOW, 0o644)
            with os.fdopen(descriptor, "a", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        """Replaces all rows of progress."""
        text = csv_text(_columns(rows[0]), rows)
        write_atomically(self._progress, lambda file: file.write(text.encode()))

    def rows(self) -> list[dict[str, str]]:
        """The rows of progress so far, as text; a last line without an end, of a run that was killed, is none."""
        if not self._progress.exists():
            return []
        whole, _, _ = read_text(self._progress).rpartition("\n")
        try:
            rows = list(csv.DictReader(whole.splitlines()))
            steps = [int(row["step"]) for row in rows]
        except (KeyError, TypeError, ValueError, csv.Error):
            raise UsageError(f"{self._progress} is damaged: a row has no step") from None
        if not all(map(_is_row, rows)):
            raise UsageError(f"{self._progress} is damaged: a row is not a number for each column")
        if any(later <= earlier for earlier, later in itertools.pairwise(steps)):
            raise UsageError(f"{self._progress} is damaged: its steps do not increase")
        return rows

    def digests(self, config: RunConfig, step: int) -> dict[str, str]:
        """What a checkpoint knows of the files beside it: digests of the config, and of the rows up to its step."""
        rows = [row for row in self.rows() if int(row["step"]) <= step]
        return {"config": config.digest(), "rows": hashlib.sha256(json.dumps(rows).encode()).hexdigest()}

    def check_digests(self, digests: Mapping[str, str], config: RunConfig, step: int) -> None:
        """Raises UsageError if config.json or progress.csv is not what the checkpoint was written with."""
        found = self.digests(config, step)
        for part, name in (("config", "config.json"), ("rows", "progress.csv")):
            if part in digests and digests[part] != found[part]:
                raise UsageError(f"{self.path / name} is damaged: it is not the one that the checkpoint belongs to")

    def forget_after(self, step: int) -> None:
        """Drops what was written after the checkpoint which a resumed run goes on from: rows, and how it ended."""
        for name in ("summary.json", TRACEBACK):
            (self.path / name).unlink(missing_ok=True)
        rows = [row for row in self.rows() if int(row["step"]) <= step]
        if rows:
            self.write_rows(rows)
        else:
            self._progress.unlink(missing_ok=True)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Writes summary.json."""
        self._write_json("summary.json", summary)

    def write_traceback(self, text: str) -> Path:
        """Writes the traceback of code that is not ours; returns the file."""
        path = self.path / TRACEBACK
        write_atomically(path, lambda file: file.write(text.encode(errors="replace")))
        return path

    def summary(self) -> dict[str, Any] | None:
        """What summary.json holds; None if the run never ended."""
        return self._read_json("summary.json") if (self.path / "summary.json").exists() else None

    def _plugins(self) -> list[str]:
        """The plug-ins that were loaded when the run was made, where they can be names of modules."""
        names = self._read_json("config.json").get("plugins", [])
        is_name = lambda name: isinstance(name, str) and name.replace(".", "_").isidentifier()  # noqa: E731
        return [name for name in names if is_name(name)] if isinstance(names, list) else []

    def _left_by_a_kill(self) -> tuple[Path, ...]:
        """What a run that was killed at its very start leaves."""
        return temporary_of(self.path / "config.json"), self.path / lock.NAME

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        text = json.dumps(value, indent=2) + "\n"
        write_atomically(self.path / name, lambda file: file.write(text.encode()))

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            raise UsageError(f"{self.path} is not a run directory: it has no {name}")
        return read_json(path)


def _is_row(row: dict[Any, Any]) -> bool:
    """Whether a row has a number, or nothing, in each of its columns, and no further fields."""
    try:
        for text in row.values():
            float("nan" if text == "" else text)
    except (TypeError, ValueError):
        return False
    return None not in row


def csv_text(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """Rows as CSV, with a header; a missing value is an empty field."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def differences(held: RunConfig, wanted: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The fields of two configs side by side, nested ones by name, but for `steps` and the workers of ES."""
    ours, theirs = flat(held.to_json()), flat(wanted.to_json())
    names = dict.fromkeys([*ours, *theirs])
    return {name: (ours.get(name), theirs.get(name)) for name in names if name not in MAY_DIFFER}


def flat(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config in JSON, those of its agent and its exploration by names such as `agent.gamma`."""
    parts = {part: config[part] for part in ("agent", "exploration")}
    nested = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
    return {**{name: value for name, value in config.items() if name not in parts}, **nested}


def _described(differing: dict[str, tuple[Any, Any]]) -> str:
    """Fields that differ, as the options that set them, with both values."""
    kind = "exploration.kind"
    names = [name for name in differing if kind not in differing or name == kind or not name.startswith("exploration.")]
    return ", ".join(f"{_option(name)} is {differing[name][0]} there and {differing[name][1]} here" for name in names)


def _option(name: str) -> str:
    """What sets a field on the command line."""
    part, _, field = name.rpartition(".")
    if part == "exploration":
        return "--exploration" if field == "kind" else f"{field} of --exploration"
    return f"--{field.replace('_', '-')}"


def provenance() -> dict[str, Any]:
    """The versions that a result depends on."""
    packages = ("jax", "jaxlib", "equinox", "optax", "gymnasium", "numpy", "mujoco", "Box2D", "ale-py")
    versions = {"python": platform.python_version(), "paramnoise": __version__}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"versions": versions, "git_commit": _git_commit()}


def _columns(row: dict[str, Any]) -> list[str]:
    others = sorted(set(row) - set(FIRST_COLUMNS) - set(WALL_CLOCK_COLUMNS))
    return [*FIRST_COLUMNS, *others, *WALL_CLOCK_COLUMNS]


def _git_commit() -> str | None:
    """The commit of the sources, if they are a checkout of this package's repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    tracked = ["git", "-C", str(Path(__file__).parent), "ls-files", "--error-unmatch", Path(__file__).name]
    try:
        if subprocess.run(tracked, capture_output=True, check=False).returncode != 0:
            return None
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
