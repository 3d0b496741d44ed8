"""The tutorial of docs/sb3.md runs, block after block, as a reader would type it in."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.append(str(ROOT / "experiments"))

import sb3 as experiment  # noqa: E402

pytestmark = pytest.mark.sb3

PAGE = ROOT / "docs" / "sb3.md"
BLOCK = re.compile(r"^```python\n# not run in [^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_code_of_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == 4
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "__main__"})


def test_the_table_of_results_is_that_of_the_committed_results():
    text = PAGE.read_text()
    assert experiment.page(text, experiment.read_results(experiment.MEASURED)) == text


def test_a_run_is_written_down_and_never_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["run", "--out", str(tmp_path), "--tasks", "dqn-Chain30", "--seeds", "1", "--steps", "250"]
    assert experiment.main(words) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert experiment.main(words) == 0
    assert capsys.readouterr().out == ""
    rows = experiment.read_results(tmp_path / "sb3" / "results.csv")
    assert [row["exploration"] for row in rows] == ["epsilon-greedy", "parameter"]
    assert "not measured yet" in experiment.table(rows)
    assert "| `dqn-Chain30` | 78,000 | parameter | 0.00 | 0 of 1 |  |" in experiment.table(rows)


def test_a_task_that_does_not_exist_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert experiment.main(["run", "--out", str(tmp_path), "--tasks", "dqn-Chain31"]) == 2
    assert "did you mean dqn-Chain30?" in capsys.readouterr().err
