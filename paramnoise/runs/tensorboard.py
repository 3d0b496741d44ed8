"""TensorBoard: the numbers of progress.csv as event files, for those who watch runs there."""

import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paramnoise.validation import require_extra


class TensorBoardLog:
    """A run's event file, made anew from the rows that are kept whenever the run starts or is resumed."""

    def __init__(self, directory: Path, rows: Iterable[dict[str, Any]], wall_time: float):
        """Replaces the event files that are in the directory.

        Args:
            directory: where the event file goes.
            rows: the rows of progress so far.
            wall_time: the seconds that the run has taken so far, so that a resumed run's clock has no gap.
        """
        require_extra("tensorboardX", "tensorboard", "TensorBoard logs")
        import tensorboardX

        for old in directory.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = tensorboardX.SummaryWriter(str(directory))
        self._began = time.time() - wall_time
        for row in rows:
            self._add(row)
        self._writer.flush()

    def add(self, row: dict[str, Any]) -> None:
        """Adds a row of progress: every number of it but the step, under its column's name."""
        self._add(row)
        self._writer.flush()

    def close(self) -> None:
        """Ends the event file."""
        self._writer.close()

    def _add(self, row: dict[str, Any]) -> None:
        step, at = int(row["step"]), self._began + float(row["wall_time"])
        for column, value in row.items():
            if column != "step" and _is_finite(value):
                self._writer.add_scalar(column, float(value), step, walltime=at)


def _is_finite(value: Any) -> bool:
    """Whether a field holds a number that can be drawn; an unknown one is empty or NaN."""
    return value != "" and math.isfinite(float(value))
