"""The report as files: what its pages hold, that what they name is there, and what is refused."""

import csv
import json
import shutil
import statistics
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from paramnoise.claims import CLAIMS
from paramnoise.cli import main
from paramnoise.figures.curve_distances import Distance, write_distances
from paramnoise.figures.curve_results import Point, write_results
from paramnoise.report import films, notes
from paramnoise.report.panels import method_of, rounded
from paramnoise.report.site import write_report
from paramnoise.validation import UsageError

RESULTS = Path(__file__).parent.parent.parent / "results"
MOST_BYTES = 10_000_000


class Page(HTMLParser):
    """What a page names: the targets of its links and sources, its ids, its words, and its data."""

    def __init__(self, path: Path):
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.words = ""
        self.data = ""
        self._in_data = False
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.targets += [given[name] for name in ("href", "src") if given.get(name)]
        self.ids |= {given["id"]} if "id" in given else set()
        self._in_data = given.get("id") == "page-data"

    def handle_endtag(self, tag):
        self._in_data = False

    def handle_data(self, data):
        if self._in_data:
            self.data += data
        else:
            self.words += data

    @property
    def panels(self) -> list[dict]:
        return json.loads(self.data)["panels"]


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_there_is_a_page_for_every_directory_of_results_and_every_run(site):
    figures = {path.parent.name for path in RESULTS.glob("*/results.csv")}
    assert {path.stem for path in (site / "figures").iterdir()} == figures
    assert len(list((site / "runs").iterdir())) == 4 + 1
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < MOST_BYTES


def broken_links(site: Path) -> list[tuple[str, str]]:
    """Links of pages that lead to no file, or to no place of one."""
    broken = []
    for path in pages(site):
        for target in Page(path).targets:
            if target.startswith(("https://arxiv.org/", "data:")):
                continue
            file, _, anchor = target.partition("#")
            place = (path.parent / unquote(file)).resolve() if file else path
            if not place.is_file() or (anchor and anchor not in Page(place).ids):
                broken.append((path.name, target))
    return broken


def test_every_link_leads_to_a_file_and_a_place_that_are_there(site):
    assert broken_links(site) == []


def test_nothing_is_loaded_from_a_network(site):
    for path in pages(site):
        assert not any(f'src="{scheme}' in path.read_text() for scheme in ("http", "//"))
    for path in (site / "assets").rglob("*.css"):
        assert "http" not in path.read_text()


def test_the_start_page_has_every_claim_once(site):
    words = Page(site / "index.html").words
    for claim in CLAIMS:
        assert words.count(claim.sentence) == 1, claim.name


def test_a_panel_has_the_numbers_of_the_csv(site):
    with (RESULTS / "ddpg-dense" / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["exploration"] == "parameter"]
    panels = {panel["title"]: panel for panel in Page(site / "figures" / "ddpg-dense.html").panels}
    assert panels.keys() == {row["env"] for row in rows}
    for env, panel in panels.items():
        (line,) = [line for line in panel["lines"] if line["key"] == "parameter"]
        on_task = [row for row in rows if row["env"] == env]
        for seed, trace in enumerate(line["traces"]):
            own = {int(row["step"]): float(row["return"]) for row in on_task if int(row["seed"]) == seed}
            assert trace["values"] == [rounded(own[step]) for step in panel["x"]]
        last = [float(row["return"]) for row in on_task if int(row["step"]) == panel["x"][-1]]
        assert line["centres"]["median"]["value"][-1] == rounded(statistics.median(last))
        assert line["seeds"][-1] == len(last) == 5


def test_the_papers_scores_are_beside_ours(site):
    page = Page(site / "figures" / "atari.html")
    freeway = next(panel for panel in page.panels if panel["title"] == "Freeway")
    drawn = {line["key"]: line["centres"]["median"]["value"][0] for line in freeway["lines"]}
    assert (drawn["paper parameter"], drawn["paper epsilon-greedy"], drawn["paper es"]) == (31.5, 32, 31)
    assert "paper: parameter, 40M" in page.words


def test_how_results_were_made_is_on_the_page_with_its_commit(site):
    words = Page(site / "figures" / "chain.html").words
    assert "paramnoise reproduce chain --scale paper --workers 2" in words
    assert "eda106a" in words


def test_runs_that_differ_in_seeds_alone_are_one_line(site):
    page = Page(site / "runs" / "index.html")
    returns, sigma, distance = page.panels
    assert [line["key"] for line in returns["lines"]] == ["dqn epsilon-greedy", "dqn parameter"]
    assert [trace["values"][-1] for trace in returns["lines"][1]["traces"]] == [33.25, 34.25]
    assert (sigma["y_label"], distance["y_label"]) == ("sigma", "distance")


def test_a_runs_page_has_its_settings_and_its_progress(site):
    (path,) = (site / "runs").glob("*parameter-seed-1.html")
    page = Page(path)
    assert [panel["title"] for panel in page.panels][:3] == [
        "Returns",
        "The noise: sigma",
        "The noise: distance and its threshold delta",
    ]
    assert "exploration.delta" in page.words
    assert "paramnoise evaluate" in page.words


def test_results_that_no_figure_knows_have_a_page(tmp_path):
    points = [
        Point("A-v0", "mine", name, seed, step, 1.0)
        for name in ("parameter-x", "odd")
        for seed in (0, 1)
        for step in (10, 20)
    ]
    write_results(points, tmp_path / "results" / "my-own" / "results.csv")
    distances = [Distance("A-v0", "mine", "parameter-x", seed, 10, 0.1, 0.2) for seed in (0, 1)]
    write_distances(distances, tmp_path / "results" / "my-own" / "distances.csv")
    for name, text in (("strange #1", "what,how_much\n<b>this</b>,3\n"), ("empty", "")):
        (tmp_path / "results" / name).mkdir()
        (tmp_path / "results" / name / "results.csv").write_text(text)
    assert main(["report", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "out")]) == 0
    curves, distance = Page(tmp_path / "out" / "figures" / "my-own.html").panels
    assert [line["key"] for line in curves["lines"]] == ["parameter-x", "odd"]
    assert [line["key"] for line in distance["lines"]] == ["parameter-x", "delta"]
    assert "<b>this</b>" in Page(tmp_path / "out" / "figures" / "strange #1.html").words  # as text
    assert broken_links(tmp_path / "out") == []


def test_a_variant_has_the_colour_of_its_exploration():
    assert (method_of("trpo", "parameter-delta-0.1").exploration, method_of("trpo", "none").variant) == (
        "parameter",
        "",
    )
    assert method_of("dqn", "epsilon-greedy-two-heads").exploration == "epsilon-greedy-two-heads"


def test_a_report_replaces_a_report_and_nothing_else(tmp_path, runs, capsys):
    out = tmp_path / "out"
    words = ["report", "--runs", str(runs), "--results", str(tmp_path / "none"), "--out", str(out)]
    assert main(words) == 2
    assert "none is not a directory" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    for _ in range(2):
        assert main(words) == 0
    (out / ".paramnoise-report").unlink()
    assert main(words) == 2
    assert "is not empty and holds no report" in capsys.readouterr().err


def test_a_report_on_nothing_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 2
    assert "nothing to report on" in capsys.readouterr().err


def test_ones_own_runs_need_no_results_and_may_have_any_name(tmp_path, monkeypatch, runs):
    monkeypatch.chdir(tmp_path)
    for place in ("a #1", "a ?1"):
        shutil.copytree(runs / "parameter" / "seed-0", tmp_path / "my runs" / place)
    (tmp_path / "my runs" / "a #1" / "film #2.gif").write_bytes(b"film")
    assert main(["report", "--runs", "my runs"]) == 0
    assert not (tmp_path / "report" / "claims.json").exists()
    assert "2 runs" in Page(tmp_path / "report" / "index.html").words
    assert len(pages(tmp_path / "report" / "runs")) == 3
    assert broken_links(tmp_path / "report") == []


def test_without_the_extra_the_command_that_installs_it_is_named(tmp_path, runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match=r"pip install 'paramnoise\[report\]'"):
        write_report(tmp_path / "out", None, [runs])
    assert not (tmp_path / "out").exists()


def test_a_film_is_shown_with_what_is_known_of_it(tmp_path):
    video = tmp_path / "videos" / "pole.mp4"
    video.parent.mkdir()
    video.write_bytes(b"film")
    assert films.films(tmp_path) == []  # nothing is known of it
    facts = {"algorithm": "dqn", "env": "CartPole-v1", "steps": 50_000, "sigma": 0.0567}
    films.write_facts(video, {**facts, "returns": [500.0, 91.5], "command": "paramnoise film x"})
    (film,) = films.films(tmp_path)
    assert film.caption == (
        "DQN after 50,000 steps: the clean policy and 1 with parameter noise of sigma 0.057, on the same episode. "
        "Returns: clean 500.0; perturbed 91.5."
    )
    films.write_facts(video, facts)
    with pytest.raises(UsageError, match=r"pole\.json is damaged"):
        films.films(tmp_path)


def test_notes_keep_links_that_hold_anywhere_and_the_words_of_others():
    html = notes.to_html("# Title\n\n[here](../docs/x.md) and [there](https://arxiv.org/) <b>\n\n## More\n")
    assert html == '<p>here and <a href="https://arxiv.org/">there</a> &lt;b&gt;</p>\n<h3>More</h3>\n'
    assert notes.title_of("# How\n") == "How"


def test_swapped_methods_change_what_the_start_page_says(tmp_path):
    shutil.copytree(RESULTS / "chain", tmp_path / "results" / "chain")
    path = tmp_path / "results" / "chain" / "results.csv"

    def verdict() -> str:
        write_report(tmp_path / "out", tmp_path / "results", [])
        entries = json.loads((tmp_path / "out" / "claims.json").read_text())["claims"]
        return next(entry["verdict"] for entry in entries if entry["name"] == "chain-epsilon-greedy")

    assert verdict() == "reproduced"
    swap = {"parameter": "epsilon-greedy", "epsilon-greedy": "parameter"}
    lines = [line.split(",") for line in path.read_text().splitlines()]
    path.write_text("".join(",".join([*line[:2], swap.get(line[2], line[2]), *line[3:]]) + "\n" for line in lines))
    assert verdict() == "not reproduced"
