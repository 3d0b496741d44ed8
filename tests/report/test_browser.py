"""The report in a real browser, opened from files; run with `make test-report`."""

import csv
import os
import shutil
import statistics
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api")

RESULTS = Path(__file__).parent.parent.parent / "results"
WIDTHS = (390, 1400)
"""A phone's and a desk's, in pixels."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SCREENSHOTS = os.environ.get("SCREENSHOTS")
"""A directory for pictures of all pages, for people to look at."""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def browser():
    assert CHROMIUM, "no Chromium on PATH"
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def is_bad(request) -> bool:
    """Whether a request that failed was needed: of films a browser reads as much as it wants, and breaks off."""
    return not (request.resource_type == "media" and "ERR_ABORTED" in request.failure)


@pytest.fixture
def open_page(browser, site):
    """Opens a page from its file; what its console complains of, and what could not be loaded, is in `complaints`."""
    contexts = []

    def open_at(path: str, width: int = 1400, scheme: str = "light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on(
            "console", lambda each: page.complaints.append(each.text) if each.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on(
            "requestfailed", lambda each: page.complaints.append(f"{each.url}: {each.failure}") if is_bad(each) else 0
        )
        page.on(
            "request",
            lambda each: None if each.url.startswith(("file:", "data:")) else page.complaints.append(each.url),
        )
        page.goto((site / path).as_uri(), wait_until="load")
        return page

    yield open_at
    for context in contexts:
        context.close()


def all_pages(site: Path) -> list[str]:
    return [str(path.relative_to(site)) for path in sorted(site.rglob("*.html"))]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_loads_without_a_complaint_and_fits_its_window(open_page, site, width, scheme):
    for path in all_pages(site):
        page = open_page(path, width, scheme)
        page.wait_for_timeout(150)
        assert page.complaints == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is wider than {width} pixels"
        drawn = page.evaluate("(window.paramnoiseReport?.plots ?? []).map((plot) => plot.chart.width)")
        assert len(drawn) == page.locator(".panel").count()
        assert all(100 < each <= width for each in drawn)
        if SCREENSHOTS:
            name = f"{path.removesuffix('.html').replace('/', '-')}-{width}-{scheme}.png"
            page.screenshot(path=Path(SCREENSHOTS) / name, full_page=True)
        page.close()


def test_the_first_view_takes_less_than_two_seconds(open_page):
    page = open_page("index.html")
    took = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert 0 < took < 2_000


def test_links_lead_to_pages(open_page, site):
    page = open_page("index.html")
    for place in range(page.locator("nav a").count()):
        link = page.locator("nav a").nth(place)
        name = link.inner_text()
        link.click()
        assert page.locator("nav a[aria-current]").inner_text() == name
        assert page.locator("h1").count() == 1
        assert page.complaints == []


def pixels(page, colour: str, panel: int = 0) -> int:
    """How many pixels of a panel have a colour."""
    return page.evaluate(
        """([colour, panel]) => {
            const canvas = paramnoiseReport.plots[panel].chart.ctx.canvas;
            const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
            let count = 0;
            for (let i = 0; i < data.length; i += 4)
                count += data[i] === r && data[i + 1] === g && data[i + 2] === b && data[i + 3] === 255;
            return count;
        }""",
        [colour, panel],
    )


def test_a_name_in_the_legend_hides_its_curve_and_shows_it_again(open_page):
    page = open_page("figures/ddpg-dense.html")
    colours = {
        key: page.evaluate("(key) => paramnoiseReport.page.keys.find((k) => k.name === key).colour", key)
        for key in ("parameter", "ou")
    }
    before = {key: pixels(page, colour) for key, colour in colours.items()}
    assert min(before.values()) > 100
    button = page.locator(".legend button[data-key=parameter]").first
    button.click()
    page.wait_for_timeout(100)
    assert button.get_attribute("aria-pressed") == "false"
    assert pixels(page, colours["parameter"]) == 0
    assert pixels(page, colours["ou"]) > 100
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(100)
    assert pixels(page, colours["parameter"]) == before["parameter"]


def test_a_legend_hides_a_method_in_every_panel(open_page):
    page = open_page("figures/ddpg-sparse.html")
    page.locator(".legend button[data-key=none]").first.click()
    pressed = [each.get_attribute("aria-pressed") for each in page.locator(".legend button[data-key=none]").all()]
    assert pressed == ["false"] * 5


def returns(figure: str, env: str, exploration: str, step: int) -> dict[int, float]:
    """By seed, what results.csv says."""
    with (RESULTS / figure / "results.csv").open() as file:
        return {
            int(row["seed"]): float(row["return"])
            for row in csv.DictReader(file)
            if (row["env"], row["exploration"], int(row["step"])) == (env, exploration, step)
        }


def hover(page, step: int, value: float) -> None:
    """Moves the mouse to a point of the first chart."""
    page.locator(".panel .plot").first.scroll_into_view_if_needed()
    x, y = page.evaluate(
        """([step, value]) => {
            const { chart } = paramnoiseReport.plots[0], box = chart.over.getBoundingClientRect();
            const x = Math.min(box.left + chart.valToPos(step, "x"), box.right - 1);
            return [x, box.top + chart.valToPos(value, "y")];
        }""",
        [step, value],
    )
    page.mouse.move(x, y)
    page.wait_for_timeout(100)


def number(text: str) -> float:
    return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))


@pytest.mark.parametrize(("exploration", "step"), [("parameter", 500_000), ("none", 130_000), ("gaussian", 10_000)])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_hover_shows_the_median_of_the_csv(open_page, exploration, step, width):
    page = open_page("figures/ddpg-dense.html", width)
    median = statistics.median(returns("ddpg-dense", "HalfCheetah-v4", exploration, step).values())
    hover(page, step, median)
    assert page.locator(".at").first.inner_text().startswith(f"{step:,} environment steps")
    shown = page.locator(f".legend button[data-key={exploration}] b").first.inner_text()
    assert number(shown) == pytest.approx(median, rel=1e-5)


def test_a_hover_shows_a_seeds_own_value(open_page):
    page = open_page("figures/ddpg-dense.html")
    page.get_by_label("every seed").check()
    values = returns("ddpg-dense", "HalfCheetah-v4", "parameter", 1_000_000)
    seed, best = max(values.items(), key=lambda each: each[1])
    hover(page, 1_000_000, best)
    text = page.locator(".at").first.inner_text()
    assert f"seed {seed}: " in text
    assert number(text.rpartition(": ")[2]) == pytest.approx(best, rel=1e-5)


def test_the_keyboard_reads_values_and_zooms(open_page):
    page = open_page("figures/ddpg-dense.html")
    page.locator(".plot").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(100)
    assert page.locator(".at").first.inner_text().startswith("20,000 environment steps")
    reach = "(() => { const { min, max } = paramnoiseReport.plots[0].chart.scales.x; return max - min; })()"
    whole = page.evaluate(reach)
    page.keyboard.press("+")
    page.wait_for_timeout(100)
    assert page.evaluate(reach) < 0.6 * whole
    page.keyboard.press("0")
    page.wait_for_timeout(100)
    assert page.evaluate(reach) == whole


def test_dragging_zooms_and_a_double_click_shows_all_again(open_page):
    page = open_page("figures/ddpg-dense.html")
    reach = "(() => { const { min, max } = paramnoiseReport.plots[0].chart.scales.x; return max - min; })()"
    whole = page.evaluate(reach)
    page.locator(".plot").first.scroll_into_view_if_needed()
    box = page.locator(".u-over").first.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 65, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    assert page.evaluate(reach) < 0.5 * whole
    page.mouse.dblclick(box["x"] + 200, box["y"] + 60)
    page.wait_for_timeout(100)
    assert page.evaluate(reach) == whole


def test_axes_may_be_logarithmic_and_the_centre_an_interquartile_mean(open_page):
    page = open_page("figures/ddpg-dense.html")
    median = page.locator(".legend b").first.inner_text()
    page.get_by_label("IQM, 95% interval").check()
    assert page.locator(".legend b").first.inner_text() != median
    page.locator("input[name=log_x]").check()
    page.locator("input[name=log_y]").check()
    assert page.evaluate("['x', 'y'].map((axis) => paramnoiseReport.plots[0].chart.scales[axis].distr)") == [3, 4]
    assert page.complaints == []


def test_the_theme_button_turns_light_into_dark_and_lines_stay_visible(open_page):
    page = open_page("figures/ddpg-dense.html")
    assert pixels(page, "#000000") > 100  # no noise is black
    page.locator("#theme").click()
    page.wait_for_timeout(100)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert (pixels(page, "#000000"), pixels(page, "#F2F2F2") > 100) == (0, True)


def test_claims_are_filtered_by_their_verdict(open_page):
    page = open_page("index.html")
    page.get_by_role("button", name="not tested").click()
    verdicts = {each.get_attribute("data-verdict") for each in page.locator(".claims li").all() if each.is_visible()}
    assert verdicts == {"not tested"}


def test_films_play(open_page):
    page = open_page("videos.html")
    page.wait_for_function("[...document.querySelectorAll('video')].every((video) => video.readyState >= 1)")
    lasts = page.evaluate("[...document.querySelectorAll('video')].map((video) => video.duration)")
    assert lasts
    assert min(lasts) > 1
