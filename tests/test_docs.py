import re
from pathlib import Path

import pytest

import paramnoise as pn
from paramnoise.explorations import base as explorations

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = ROOT / "docs" / "tutorials"
"""They train, so their code runs with the examples: see test_tutorials.py."""
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> list[str]:
    """The Python blocks to run, each after as many empty lines as put an error at its line of the page."""
    found = [(text.count("\n", 0, match.start(1)), match[1]) for match in BLOCK.finditer(text)]
    return ["\n" * line + code for line, code in found if not code.startswith("# not run")]


def run(text: str, name: str) -> dict[str, object]:
    """Executes the blocks in order, in one namespace, as a reader would who types them in."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(text):
        exec(compile(block, name, "exec"), namespace)
    return namespace


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent != TUTORIALS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    known = {name: list(classes) for name, classes in explorations._REGISTERED.items()}
    monkeypatch.setattr(explorations, "_REGISTERED", known)  # what a page registers is forgotten with it
    run(page.read_text(), str(page))


def test_blocks_of_a_page_share_a_namespace_and_run_in_order():
    assert run("```python\nx = 1\n```\nthen\n```python\ny = x + 1\n```\n", "page")["y"] == 2


def test_only_python_blocks_without_a_mark_run():
    page = "```python\n# not run\nraise SystemExit\n```\n```sh\nexit 1\n```\n```python\nz = 3\n```\n"
    assert [block.strip() for block in blocks(page)] == ["z = 3"]


def test_an_error_is_reported_at_its_line_of_the_page():
    with pytest.raises(ZeroDivisionError) as error:
        run("# Title\n\n```python\nx = 1\nx / 0\n```\n", "page.md")
    assert (str(error.traceback[-1].path), error.traceback[-1].lineno + 1) == ("page.md", 5)


LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors(text: str) -> set[str]:
    """What the headings of a page are linked by, as GitHub and the site of the documentation have it."""
    without_code = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ +(.+)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_and_headings_that_a_page_links_to_exist(page: Path):
    broken = []
    for path, anchor in LINK.findall(page.read_text()):
        target = page.parent / path if path else page
        if "://" in path:
            continue
        if not target.is_file() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def test_a_heading_s_anchor_has_no_punctuation_and_dashes_for_spaces():
    assert anchors("# The `noise` core\n```sh\n# no heading\n```\n## Which delta?\n") == {
        "the-noise-core",
        "which-delta",
    }


def test_what_is_cited_is_the_version_of_the_package():
    assert f"\nversion: {pn.__version__}\n" in (ROOT / "CITATION.cff").read_text()
