"""Reports that several tests look at."""

from pathlib import Path

import pytest

from paramnoise.runs.config import make_config
from paramnoise.runs.directory import RunDirectory

RESULTS = Path(__file__).parent.parent.parent / "results"


def leave_run(path: Path, exploration: str, seed: int, returns: list[float]) -> None:
    """Leaves a run directory with an evaluation every 100 steps."""
    directory = RunDirectory(path)
    directory.write_config(make_config("dqn", "CartPole-v1", exploration=exploration, seed=seed, steps=1_000))
    noise = {"sigma": 0.1, "distance": 0.02, "delta": 0.03} if exploration == "parameter" else {}
    directory.write_rows(
        [
            {"step": 100 * (place + 1), "eval_return_mean": value, "loss": 1 / (place + 1), **noise}
            for place, value in enumerate(returns)
        ]
    )
    directory.write_summary({"status": "finished", "steps": 100 * len(returns)})


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four run directories: two explorations, two seeds each."""
    path = tmp_path_factory.mktemp("own") / "runs"
    for exploration, base in (("parameter", 20.0), ("epsilon-greedy", 10.0)):
        for seed in range(2):
            leave_run(
                path / exploration / f"seed-{seed}", exploration, seed, [base + seed, 2 * base + seed, 33.25 + seed]
            )
    return path


@pytest.fixture(scope="session")
def site(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the committed results and of these runs."""
    pytest.importorskip("jinja2")
    from paramnoise.report.site import write_report

    out = tmp_path_factory.mktemp("site") / "report"
    write_report(out, RESULTS, [runs])
    return out
