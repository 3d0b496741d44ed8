"""A user's script is checked by mypy and pyright, down to the keywords of an agent; run with `make test-types`."""

import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import BLOCK

ROOT = Path(__file__).parent.parent
CHECKERS = {
    "mypy": ["mypy", "--strict"],
    "pyright": ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
}
WRONG = """
import paramnoise as pn

pn.DQN("CartPole-v1", learning_rte=1e-3)
pn.DDPG("Pendulum-v1", hidden_sizes="wide")
pn.TRPO("CartPole-v1").learn(steps="many")
pn.Gauss(sigma=0.1)
"""

pytestmark = pytest.mark.types


def check(checker: str, code: str, path: Path) -> str:
    script = path / "script.py"
    script.write_text(code)
    (path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [str(Path(sys.executable).parent / CHECKERS[checker][0]), *CHECKERS[checker][1:], str(script)]
    return subprocess.run(command, cwd=path, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_readme_s_code_has_no_error(checker, tmp_path):
    blocks = [match[1] for match in BLOCK.finditer((ROOT / "README.md").read_text())]
    code = "\n".join(
        block for block in blocks if "stable_baselines3" not in block
    )  # which has no place among the checkers
    assert "import paramnoise as pn" in code
    found = check(checker, code, tmp_path)
    assert "no issues found" in found or "0 errors" in found, found


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_typed_example_has_no_error(checker, tmp_path):
    found = check(checker, (ROOT / "examples" / "typed.py").read_text(), tmp_path)
    assert "no issues found" in found or "0 errors" in found, found


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_mistake_of_a_script_is_found(checker, tmp_path):
    found = check(checker, WRONG, tmp_path)
    for line in (4, 5, 6, 7):
        assert f"script.py:{line}" in found, found
