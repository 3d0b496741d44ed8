"""The runs of the trial of faults: those that are killed, those that are damaged, and in what two of them differ."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paramnoise.runs.directory import WALL_CLOCK_COLUMNS, RunDirectory


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
MADE = (
    f"train dqn --env CartPole-v1 {VECTORS} --num-envs 2 --steps 200 --exploration parameter --run-dir",
    "train trpo --env CartPole-v1 --hidden-sizes 8 --batch-size 50 --steps 200 --eval-every 100 "
    "--eval-episodes 2 --run-dir",
    "train es --env CartPole-v1 --hidden-sizes 4 --pairs 3 --table-size 500 --steps 400 --eval-every 200 "
    "--eval-episodes 2 --run-dir",
)
"""The runs whose files are damaged."""


def difference_of_runs(one: Path, other: Path) -> str:
    """In what the rows and the arrays of two runs differ; empty: in nothing."""
    if _rows(one) != _rows(other):
        return "progress.csv differs"
    ours, theirs = _arrays(one), _arrays(other)
    if ours.keys() != theirs.keys():
        return "the checkpoint has other arrays"
    return ", ".join(name for name in ours if ours[name] != theirs[name])


def difference_of_sweeps(one: Path, other: Path) -> str:
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
