"""Every script in examples/ runs, for a few steps; the number of steps is its first argument."""

import runpy
import sys
from pathlib import Path

import pytest

from paramnoise.networks import own

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.examples
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    for parts in ("NETWORKS", "OPTIMIZERS"):  # what an example registers is forgotten with it
        monkeypatch.setattr(own, parts, dict(getattr(own, parts)))
    monkeypatch.setattr(sys, "argv", [str(path), "60"])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
