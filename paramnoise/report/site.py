"""Writes the report: pages from templates, their data inlined, with the scripts, files and films that they name.

A browser refuses to fetch from files, so a page brings its data along; scripts and styles are files beside it.
"""

import importlib.resources
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from paramnoise.claims import CLAIMS, Outcome, Verdict, judge
from paramnoise.claims import report as claims_report
from paramnoise.report import films as of_films
from paramnoise.report.figure_pages import FigurePage, figure_pages
from paramnoise.report.films import Film
from paramnoise.report.panels import Chart, Key, inlined
from paramnoise.report.run_pages import RunPage, RunsPage, runs_page
from paramnoise.runs.directory import provenance
from paramnoise.validation import UsageError, require_extra

MARK = ".paramnoise-report"
"""Tells a directory that an earlier report may be replaced in."""
HEADLINES = 6
"""Figures whose first panel is on the start page, at the most."""


class Site:
    """A directory of pages."""

    def __init__(self, out: Path, shared: dict[str, Any]):
        """Empties the directory.

        Args:
            out: the directory.
            shared: what all templates take.
        """
        import jinja2  # an extra

        loader = jinja2.PackageLoader("paramnoise.report")
        self._templates = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._out, self._shared = out, shared
        if out.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        (out / MARK).touch()

    def page(
        self, path: str, template: str, keys: Sequence[Key] = (), charts: Sequence[Chart] = (), **parts: Any
    ) -> None:
        """Writes a page."""
        text = json.dumps(inlined(keys, charts), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        root = "../" * path.count("/")
        html = self._templates.get_template(template).render(
            **self._shared, **parts, root=root, here=path, charts=charts, data=text
        )
        self._place(path).write_text(html)

    def copy(self, source: Path, path: str) -> None:
        """Copies a file."""
        shutil.copyfile(source, self._place(path))

    def copy_assets(self) -> None:
        """Copies scripts and styles."""
        with importlib.resources.as_file(importlib.resources.files("paramnoise.report") / "assets") as assets:
            shutil.copytree(assets, self._out / "assets")

    def _place(self, path: str) -> Path:
        place = self._out / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


def write_report(out: Path, results: Path | None, runs: Sequence[Path]) -> None:
    """Writes the report of a directory of results, of one's own runs, or of both.

    Args:
        out: the directory, which is replaced if it holds an earlier report.
        results: a directory with a directory for each figure; None: there is none.
        runs: run directories, or directories with some below them.

    Raises:
        UsageError: if the extra is missing, the directory holds something else, or there is nothing to report on.
    """
    require_extra("jinja2", "report", "reports")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file, not a directory for a report")
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise UsageError(f"{out} is not empty and holds no report: choose another --out")
    own = runs_page(runs) if runs else None
    outcomes = [judge(claim, results) for claim in CLAIMS] if results else []
    pages = figure_pages(results, outcomes) if results else []
    shown = of_films.films(results) if results else []
    links = [(f"figures/{page.name}.html", page.name) for page in pages]
    links += [("videos.html", "videos")] if shown else []
    links += [("runs/index.html", "runs")] if own else []
    made = provenance()
    shared = {"version": made["versions"].get("paramnoise", ""), "commit": made["git_commit"]}
    site = Site(out, {**shared, "links": [("index.html", "start"), *links]})
    site.copy_assets()
    _write_start(site, outcomes, pages, shown, own)
    for page in pages:
        _write_figure(site, page)
    if shown:
        _write_films(site, shown)
    if own:
        _write_runs(site, own)
    if results:
        claims_report.write_json(outcomes, out / claims_report.JSON)


def _write_start(
    site: Site, outcomes: Sequence[Outcome], pages: Sequence[FigurePage], shown: Sequence[Film], own: RunsPage | None
) -> None:
    keys, charts = _headlines(pages)
    site.page(
        "index.html",
        "start.html",
        keys,
        charts,
        outcomes=outcomes,
        counts=_counts(outcomes),
        figures={page.name for page in pages},
        film=shown[0] if shown else None,
        own=own,
        verdict_text=claims_report.verdict_text,
    )


def _headlines(pages: Iterable[FigurePage]) -> tuple[list[Key], list[Chart]]:
    """The first panel of each figure, as charts of one page, whose keys have the figure in their names."""
    keys, charts = [], []
    for page in [page for page in pages if page.charts][:HEADLINES]:
        first = page.charts[0].panels[0]
        lines = [line._replace(key=f"{page.name} {line.key}") for line in first.lines]
        keys += [key._replace(name=f"{page.name} {key.name}") for key in page.keys]
        charts.append(Chart(page.name, [first._replace(lines=lines)]))
    return keys, charts


def _counts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many claims have which verdict."""
    verdicts = [outcome.verdict for outcome in outcomes]
    return {str(verdict): verdicts.count(verdict) for verdict in Verdict}


def _write_figure(site: Site, page: FigurePage) -> None:
    for file in page.files:
        site.copy(file, f"data/{page.name}/{file.name}")
    site.page(
        f"figures/{page.name}.html",
        "figure.html",
        page.keys,
        page.charts,
        page=page,
        verdict_text=claims_report.verdict_text,
    )


def _write_films(site: Site, shown: Sequence[Film]) -> None:
    for film in shown:
        site.copy(film.path, f"media/{film.path.name}")
    site.page("videos.html", "videos.html", films=shown)


def _write_runs(site: Site, own: RunsPage) -> None:
    site.page("runs/index.html", "runs.html", own.keys, own.charts, own=own)
    for page in own.runs:
        _write_run(site, page)


def _write_run(site: Site, page: RunPage) -> None:
    site.copy(page.path / "progress.csv", f"data/runs/{page.name}.csv")
    for film in page.films:
        site.copy(film, f"media/{page.name}-{film.name}")
    site.page(f"runs/{page.name}.html", "run.html", page.keys, page.charts, page=page)
