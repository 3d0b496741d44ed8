"""Memory stays flat over a long run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paramnoise.agents import DDPGConfig
from paramnoise.explorations import ParameterNoise
from paramnoise.runs import run as runs
from paramnoise.runs.config import RunConfig

CONFIG = RunConfig(
    algorithm="ddpg",
    env="paramnoise/SparseMountainCar-v0",
    agent=DDPGConfig(buffer_size=20_000),  # full after 20,000 steps: what it holds is touched before we measure
    exploration=ParameterNoise(),
    steps=200_000,
    eval_every=10_000,
    eval_episodes=5,
)
SETTLED = 50_000
MOST_GROWTH = 4 * 2**20
"""Bytes over 150,000 steps; an array of 32 bytes kept per step would be more."""


class Meter:
    """Watches a run from within its process: prints the resident memory after each evaluation."""

    signal = None

    def on_step(self, step: int) -> None:
        pass

    def on_row(self, row: dict[str, float]) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(int(row["step"]), pages * os.sysconf("SC_PAGE_SIZE"), flush=True)

    def should_stop(self) -> bool:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from Linux's /proc")
def test_resident_memory_stays_flat_over_200_000_steps(tmp_path):
    command = [sys.executable, __file__, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1_200)
    resident = {int(step): int(size) for step, size in (line.split() for line in done.stdout.splitlines())}
    print(*(f"{step} steps: {size / 2**20:.1f} MiB" for step, size in resident.items()), sep="\n")
    assert len(resident) == 20
    assert resident[200_000] - resident[SETTLED] < MOST_GROWTH


if __name__ == "__main__":
    runs.run(CONFIG, Path(sys.argv[1]), checkpoint_seconds=0, tensorboard=True, watcher=Meter())
