"""Every code block of the tutorials runs, for a few steps: Python and commands, in the order of the page."""

import re
import shlex
from pathlib import Path

import pytest

from paramnoise.cli import main
from paramnoise.envs import base as envs
from paramnoise.networks import own

TUTORIALS = sorted((Path(__file__).parent.parent / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
STEPS = 120


def shortened(code: str) -> str:
    """The code with few steps, where a page says how many it takes."""
    code = re.sub(r"^steps = [\d_]+", f"steps = {STEPS}", code, flags=re.MULTILINE)
    return re.sub(r"--steps \d+", f"--steps {STEPS}", code)


def run(text: str, name: str) -> dict[str, object]:
    """Executes the blocks in order: Python in one namespace, commands by the command line's own function."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for language, code in BLOCK.findall(text):
        if language == "python":
            exec(compile(shortened(code), name, "exec"), namespace)
        else:
            assert language == "sh", f"{name} has a block of {language or 'no language'}, which nothing runs"
            for line in shortened(code).splitlines():
                program, *words = shlex.split(line, comments=True)
                assert (program, main(words)) == ("paramnoise", 0), line
    return namespace


def test_there_are_tutorials():
    assert {path.stem for path in TUTORIALS} == {"first-agent", "own-environment", "own-learning-loop", "own-network"}


def test_only_numbers_of_steps_are_shortened():
    text = "steps = 20_000  # many\nother_steps = 7\nparamnoise train dqn --steps 20000 --seed 3\n"
    assert (
        shortened(text) == f"steps = {STEPS}  # many\nother_steps = 7\nparamnoise train dqn --steps {STEPS} --seed 3\n"
    )


def test_a_block_that_nothing_runs_and_a_command_that_fails_are_errors():
    with pytest.raises(AssertionError, match="a block of text"):
        run("```text\nwords\n```\n", "page")
    with pytest.raises(AssertionError, match="paramnoise evaluate nowhere"):
        run("```sh\nparamnoise evaluate nowhere\n```\n", "page")


@pytest.mark.examples
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for module, registry in ((own, "NETWORKS"), (own, "OPTIMIZERS"), (envs, "ENVS")):
        monkeypatch.setattr(module, registry, dict(getattr(module, registry)))  # what a page registers is forgotten
    run(path.read_text(), path.name)
