"""The claims against results: scales, verdicts, the command, and the pages that it writes."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from paramnoise.claims import CLAIMS, Verdict, judge, report
from paramnoise.claims.base import Claim, Coverage, Decided, Scale
from paramnoise.claims.comparisons import Improves
from paramnoise.cli import main
from paramnoise.figures.base import FIGURES
from paramnoise.figures.curve_results import Point, read_results, write_results

ROOT = Path(__file__).parent.parent.parent
RESULTS, README, PAGE = ROOT / "results", ROOT / "README.md", ROOT / "docs" / "claims.md"
BY_NAME = {claim.name: claim for claim in CLAIMS}
LATER_METHODS = {"parameter-delta-0.01", "parameter-delta-0.1"}
"""Methods that are yet to come to figures that are there."""


def points(method: str, seeds: int, step: int, base: float, task: str = "Task-v0") -> list[Point]:
    return [Point(task, "ddpg", method, seed, step, base + seed) for seed in range(seeds)]


def claim_on(runs: list[Point], tasks: tuple[str, ...] = ("Task-v0",)) -> Claim:
    return Claim(
        name="made-up",
        sentence="Ours is better.",
        where="nowhere",
        figure="figure",
        read=lambda _: runs,
        rule=Improves(tasks=tasks, subject="ours", others=("theirs",)),
        asks=Scale(seeds=3, steps=100),
        decided=Decided("before the runs", "2026-11-16"),
    )


def swapped(path: Path, one: str, other: str) -> None:
    """Gives the runs of each of two methods to the other, in a results.csv of any figure."""
    places = {f",{one},": f",{other},", f",{other},": f",{one},"}
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{_swap(line, places)}\n" for line in lines))


def _swap(line: str, places: dict[str, str]) -> str:
    return next((line.replace(old, new) for old, new in places.items() if old in line), line)


@pytest.fixture
def results(tmp_path) -> Path:
    """A copy of the committed results that may be changed."""
    for path in RESULTS.glob("*/*.csv"):
        copy = tmp_path / "results" / path.relative_to(RESULTS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return tmp_path / "results"


def test_runs_of_the_scale_asked_for_are_judged():
    outcome = judge(
        claim_on(points("ours", 3, 100, 10.0) + points("theirs", 4, 200, 0.0) + points("theirs", 4, 100, 0.0)), Path()
    )
    assert (outcome.verdict, outcome.so_far) == (Verdict.REPRODUCED, None)
    assert outcome.coverage == Coverage(tasks=1, seeds=3, steps=100)
    assert outcome.evidence == "probability of improvement over theirs 1.00 (1.00 to 1.00); 3 seeds, 100 steps"


@pytest.mark.parametrize(
    ("seeds", "step", "tasks", "scale"),
    [
        (2, 100, 1, "2 of 3 seeds, 100 steps"),
        (3, 50, 1, "3 seeds, 50 of 100 steps"),
        (3, 100, 2, "3 seeds, 100 steps, 1 of 2 tasks"),
    ],
)
def test_runs_below_it_are_judged_so_far_and_not_tested(seeds, step, tasks, scale):
    runs = points("ours", seeds, step, 10.0) + points("theirs", 3, step, 0.0)
    outcome = judge(claim_on(runs, ("Task-v0", "Other-v0")[:tasks]), Path())
    assert (outcome.verdict, outcome.so_far) == (Verdict.NOT_TESTED, Verdict.REPRODUCED)
    assert outcome.evidence.endswith(f"; {scale}")


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([], "no results of figure"),
        (points("ours", 3, 100, 0.0, "Other-v0"), "the results of figure have none of these tasks and methods"),
        (points("ours", 3, 100, 0.0), "the results of figure lack theirs"),
        (points("ours", 3, 100, 0.0) + points("theirs", 3, 90, 0.0), "the results of figure cannot be compared yet"),
    ],
)
def test_what_cannot_be_judged_says_why(runs, why):
    outcome = judge(claim_on(runs), Path())
    assert (outcome.verdict, outcome.so_far, outcome.evidence, outcome.numbers) == (Verdict.NOT_TESTED, None, why, ())


def test_runs_of_other_methods_do_not_hold_a_comparison_back():
    runs = points("ours", 3, 100, 10.0) + points("theirs", 3, 100, 0.0) + points("other", 1, 10, 0.0)
    assert judge(claim_on(runs), Path()).verdict is Verdict.REPRODUCED


def test_names_are_unique_and_figures_are_known():
    assert len(BY_NAME) == len(CLAIMS)
    assert {claim.figure for claim in CLAIMS} <= FIGURES.keys()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_names_methods_of_its_figure(claim):
    assert set(claim.rule.methods) <= {*FIGURES[claim.figure].by_name, *LATER_METHODS}


def test_an_empty_directory_tests_nothing(tmp_path, capsys):
    assert main(["claims", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("not tested") == len(CLAIMS)
    entries = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert Counter(entry["verdict"] for entry in entries) == {"not tested": len(CLAIMS)}
    assert [entry["name"] for entry in entries] == list(BY_NAME)


def test_a_directory_that_does_not_exist_is_refused(tmp_path, capsys):
    assert main(["claims", "--results", str(tmp_path / "none")]) == 2
    assert "is not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "other", "verdict"),
    [
        ("chain-epsilon-greedy", "epsilon-greedy", Verdict.NOT_REPRODUCED),
        ("half-cheetah-gaussian", "gaussian", Verdict.NOT_REPRODUCED),
        ("atari-consistency", "epsilon-greedy", Verdict.NOT_REPRODUCED),
        ("sparse-only-parameter", "none", Verdict.NOT_REPRODUCED),
    ],
)
def test_two_methods_that_change_places_change_the_verdict(results, name, other, verdict):
    claim = BY_NAME[name]
    before = judge(claim, results)
    swapped(results / claim.figure / "results.csv", "parameter", other)
    after = judge(claim, results)
    assert (after.so_far or after.verdict) is verdict
    assert (before.so_far or before.verdict) is not verdict


def test_the_pages_say_what_the_committed_results_say():
    outcomes = [judge(claim, RESULTS) for claim in CLAIMS]
    for page in (README, PAGE):
        assert report.with_tables(page, outcomes) == page.read_text(), (
            "make the tables anew: paramnoise claims --readme README.md docs/claims.md"
        )


def test_the_pages_are_out_of_step_with_results_whose_methods_changed_places(results):
    swapped(results / "chain" / "results.csv", "parameter", "epsilon-greedy")
    outcomes = [judge(claim, results) for claim in CLAIMS]
    assert report.with_tables(README, outcomes) != README.read_text()


def test_the_committed_claims_json_is_what_the_command_writes(tmp_path):
    for name in ("first.json", "second.json"):
        assert main(["claims", "--results", str(RESULTS), "--out", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes() == (RESULTS / "claims.json").read_bytes()


def test_verdicts_do_not_depend_on_the_order_of_rows(results):
    path = results / "ddpg-dense" / "results.csv"
    before = judge(BY_NAME["half-cheetah-none"], results)
    write_results(reversed(read_results(path)), path)
    assert judge(BY_NAME["half-cheetah-none"], results) == before


def test_a_page_is_rewritten_between_its_marks_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Before\n<!-- claims -->\nstale words\n<!-- /claims -->\nAfter <!-- rules --> <!-- /rules -->\n")
    assert main(["claims", "--results", str(tmp_path), "--readme", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("Before\n<!-- claims -->\n| claim | where |")
    assert "stale words" not in text
    assert "<!-- /claims -->\nAfter <!-- rules -->\n| claim | figure |" in text
    assert main(["claims", "--results", str(tmp_path), "--readme", str(page)]) == 0
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--readme good.md bad.md", "bad.md has no place for a table"),
        ("--readme good.md unclosed.md", "unclosed.md has no place for a table"),
        ("--readme good.md none.md", "none.md does not exist"),
        ("--readme good.md --out none/claims.json", "none is not a directory"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(tmp_path, monkeypatch, capsys, words, complaint):
    monkeypatch.chdir(tmp_path)
    texts = {"good.md": "<!-- claims --><!-- /claims -->", "bad.md": "No place", "unclosed.md": "<!-- claims -->"}
    for name, text in texts.items():
        Path(name).write_text(text)
    assert main(["claims", "--results", ".", *words.split()]) == 2
    assert complaint in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts


def test_numbers_in_json_are_rounded_and_what_is_not_finite_is_null(tmp_path):
    claim = claim_on(points("ours", 3, 100, 0.0) + points("theirs", 2, 100, 0.5))
    outcome = judge(claim, Path())
    number = outcome.numbers[0]._replace(value=1 / 3, low=float("nan"), high=float("inf"))
    report.write_json([outcome._replace(numbers=(number,))], tmp_path / "claims.json")
    (entry,) = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert entry["numbers"] == [{"name": "over theirs", "value": 0.333333, "low": None, "high": None}]
    assert entry["asks"] == {"tasks": 1, "seeds": 3, "steps": 100, "unit": "steps"}
    assert (entry["verdict"], entry["so_far"]) == ("not tested", "not reproduced")
