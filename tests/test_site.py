"""The site that `make docs` leaves: every link of every page leads somewhere; run with `make test-docs`."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import paramnoise as pn

SITE = Path(__file__).parent.parent / "site"

pytestmark = pytest.mark.site


class Page(HTMLParser):
    """The targets and the ids of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.targets += [given[name] for name in ("href", "src") if given.get(name)]
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}


def test_every_link_of_the_site_leads_to_a_file_and_a_place_that_are_there():
    pages = {path.resolve(): Page(path) for path in SITE.rglob("*.html")}
    assert len(pages) > 40
    broken = []
    for path, page in pages.items():
        for target in page.targets:
            if ":" in target.partition("/")[0] or target.startswith("//"):
                continue
            address, _, anchor = unquote(target).partition("#")
            file = address.partition("?")[0]
            place = (path.parent / file).resolve() if file else path
            if not place.is_file() or (anchor and place in pages and anchor not in pages[place].ids):
                broken.append((str(path.relative_to(SITE.resolve())), target))
    assert broken == []


def test_the_reference_has_every_public_name():
    ids = Page(SITE / "docs" / "reference.html").ids
    parts = {name.rpartition(".")[2] for name in ids}
    assert sorted({*pn.__all__} - {"noise", "schedules", "UsageError"} - parts) == []


def test_the_report_is_part_of_the_site():
    assert (SITE / "report" / "figures" / "chain.html").is_file()
    assert "../report/index.html" in Page(SITE / "docs" / "index.html").targets
