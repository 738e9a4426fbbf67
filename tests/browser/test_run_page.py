"""A run's page as a person uses it: filter, fold, figure, link; light, dark and on a telephone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.served_lab import describe
from browser import PHONE, Browser
from runs.running import started

TESTS = """
import pytest
from pytest_html import extras as extra

def test_measured(fabric, measure, transition):
    measure.bring_up(transition.before)
    for index in range(8):
        measure.reconfiguration(transition.before if index % 2 else transition.after)
    measure.judge("reconfiguration")

def test_wrong(fabric, measure, transition):
    measure.bring_up(transition.before)
    print("<b>loud</b> words")
    assert 0, "so <i>wrong</i>"

def test_left_out(testbed, bench):
    pytest.skip("a reason in words")

def test_with_pictures(testbed, bench, extras):
    dot = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"
           "RU5ErkJggg==")
    extras.append(extra.png(dot, name="a dot"))
    extras.append(extra.html("<p id='own-figure'>a figure of its own</p>"))
    extras.append(extra.text("a text", name="notes"))

@pytest.mark.parametrize("number", range(150))
def test_many(number): print(f"number {number} says so")
"""
READY = "document.documentElement.dataset.ready === 'yes'"
SEEN = ".lr-test"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Path:
    """The report of a run of which some tests failed; made only where it can be looked at."""
    folder = tmp_path_factory.mktemp("seen")
    lab = describe(folder, limit="{max: 10 s}")
    (folder / "test_seen.py").write_text(TESTS)
    arguments = (folder / "test_seen.py", "--rootdir", folder, "--testbed", lab)
    simulated = (*arguments, "--instruments", "simulated")
    with started(simulated, folder / "results", page=True) as run:
        ended = run.end()
    assert ended.code == 1, ended.output
    return ended.page


@pytest.fixture
def opened(browser: Browser, page: Path) -> Iterator[Browser]:
    """The page, open on a desk; at the end nothing may have gone wrong or been asked for."""
    browser.open(page)
    browser.wait_for(READY)
    yield browser
    assert browser.errors == []
    assert browser.broken_images() == []
    assert {one for one in browser.requests if not one.startswith("data:")} == {page.as_uri()}


def names(browser: Browser) -> list[str]:
    found: list[str] = browser.evaluate(
        "[...document.querySelectorAll('.lr-test-name b')].map(one => one.textContent)"
    )
    return found


def test_worst_comes_first_and_is_unfolded(opened: Browser) -> None:
    assert names(opened)[:2] == ["test_wrong[lab-straight-crossed]", "test_left_out[lab]"]
    assert opened.evaluate("document.querySelectorAll('.lr-test[open]').length") == 1
    body = opened.text(".lr-test[open] .lr-test-body")
    assert "AssertionError: so <i>wrong</i>" in body
    assert "<b>loud</b> words" in body
    assert opened.count(".lr-test-body :is(b, i)") == 0
    assert "--instruments simulated --seed 0" in body


def test_filter(opened: Browser) -> None:
    assert "all 154 shown" in opened.text("#lr-shown")
    opened.click('input[data-outcome="passed"]')
    assert names(opened) == ["test_wrong[lab-straight-crossed]", "test_left_out[lab]"]
    assert "2 of 154 shown" in opened.text("#lr-shown")
    opened.click('input[data-outcome="failed"]')
    assert names(opened) == ["test_left_out[lab]"]
    opened.click('input[data-outcome="passed"]')
    assert "153 of 154 shown" in opened.text("#lr-shown")


def test_find_and_order(opened: Browser) -> None:
    opened.click("#lr-search")
    opened.type("MANY[14")
    assert sorted(names(opened)) == sorted(
        [f"test_many[{number}]" for number in (14, *range(140, 150))]
    )
    opened.evaluate("document.querySelector('#lr-order').value = 'name'")
    opened.evaluate("document.querySelector('#lr-order').dispatchEvent(new Event('change'))")
    assert names(opened)[0] == "test_many[140]"


def test_only_what_is_near_is_drawn_and_the_rest_when_it_comes(opened: Browser) -> None:
    assert len(names(opened)) == 100
    opened.evaluate("document.querySelector('#lr-more').scrollIntoView()")
    opened.wait_for("document.querySelectorAll('.lr-test').length === 154")
    assert opened.count("#lr-more") == 0


def test_fold(opened: Browser) -> None:
    """By mouse and by key; what is folded is not drawn before."""
    summary = ".lr-test:nth-child(2) summary"
    assert opened.count(".lr-test:nth-child(2) .lr-test-body") == 0
    opened.click(summary)
    assert "a reason in words" in opened.text(".lr-test:nth-child(2) .lr-test-body")
    opened.press("Enter")
    opened.wait_for("!document.querySelector('.lr-test:nth-child(2)').open")
    assert opened.count(".lr-wire pre") == 0
    opened.click(".lr-wire summary")
    assert "> " in opened.text(".lr-wire pre")
    opened.click("#lr-unfold")
    opened.click("#lr-unfold")
    assert opened.evaluate("document.querySelectorAll('.lr-test[open]').length") == 100


def test_figure(opened: Browser) -> None:
    """A plan's circuits are shown when it is picked."""
    shown = "getComputedStyle(document.querySelector('.lr-p1')).display"
    assert opened.evaluate(shown) == "none"
    opened.click(".lr-l1")
    assert opened.evaluate(shown) == "inline"
    assert opened.count("svg[aria-label^='Distribution of']") >= 4
    assert opened.count("svg[aria-label^='Timeline of event']") == 1


def test_link_from_figures_to_test_and_back(opened: Browser) -> None:
    link = ".lr-table a[href*='test_measured']"
    opened.click(link)
    opened.wait_for("document.querySelectorAll('.lr-test').length === 1")
    assert names(opened) == ["test_measured[lab-straight-crossed]"]
    assert opened.evaluate("document.querySelector('.lr-test').open")
    opened.click(".lr-test-facts a[href='#lr-0']")
    top = "Math.abs(document.querySelector('#lr-0').getBoundingClientRect().top)"
    opened.wait_for(f"{top} < 2")


def test_link_from_overview_to_failure(opened: Browser) -> None:
    opened.click(".lr-wrong a")
    opened.wait_for("document.querySelectorAll('.lr-test').length === 1")
    assert names(opened) == ["test_wrong[lab-straight-crossed]"]


def test_link_opens_with_its_test(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.wait_for(READY)
    browser.evaluate("location.hash = '#test=test_seen.py::test_left_out%5Blab%5D'")
    browser.wait_for("document.querySelectorAll('.lr-test').length === 1")
    assert names(browser) == ["test_left_out[lab]"]


def test_command_is_copied(opened: Browser) -> None:
    """Where the clipboard is closed to pages, the command is selected instead."""
    opened.click(".lr-copy")
    opened.wait_for("/copied|selected/.test(document.querySelector('.lr-copy').textContent)")
    opened.evaluate("delete Navigator.prototype.clipboard")
    opened.click(".lr-copy")
    command = opened.text(".lr-command code")
    assert command.startswith("pytest '")
    assert opened.evaluate("getSelection().toString()") == command


def test_what_a_test_added_is_shown(opened: Browser) -> None:
    opened.evaluate("location.hash = '#test=test_seen.py::test_with_pictures%5Blab%5D'")
    opened.wait_for("document.images.length === 1 && document.images[0].complete")
    assert opened.text("#own-figure") == "a figure of its own"
    assert opened.evaluate("document.images[0].alt") == "a dot"
    assert opened.count(".lr-test-body a[href^='data:text/plain']") == 1


def test_environment_is_folded_away(opened: Browser) -> None:
    assert opened.count("#lr-environment dd") == 0
    opened.click("details.lr-card > summary")
    assert "Python" in opened.text("#lr-environment")


@pytest.mark.parametrize(
    ("name", "screen"),
    [
        ("light", {"width": 1280}),
        ("dark", {"width": 1280, "dark": True}),
        ("phone", {"width": PHONE, "height": 844}),
        ("phone-dark", {"width": PHONE, "height": 844, "dark": True}),
    ],
)
def test_every_screen(
    browser: Browser, page: Path, tmp_path: Path, name: str, screen: dict[str, int]
) -> None:
    """Nothing reaches beyond the edge, and words stand out from their ground."""
    browser.open(page, **screen)  # type: ignore[arg-type]
    browser.wait_for(READY)
    assert browser.overflow() == []
    assert browser.errors == []
    assert faint(browser) == []
    shot = browser.screenshot(tmp_path / f"{name}.png")
    assert shot.stat().st_size > 20_000


def faint(browser: Browser) -> list[str]:
    """Words whose contrast with their ground is below 4.5, as WCAG 2 asks for."""
    found: list[str] = browser.evaluate(CONTRAST)
    return found


CONTRAST = """(() => {
    const parse = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const ground = one => {
        for (; one; one = one.parentElement) {
            const colour = parse(getComputedStyle(one).backgroundColor);
            if (colour.length < 4 || colour[3] > .5) return colour;
        }
        return [255, 255, 255];
    };
    const faint = [];
    for (const one of document.querySelectorAll("main *, header *")) {
        const own = [...one.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
        if (!own || !one.checkVisibility() || one.closest(".lr-sim, option, style")) continue;
        const style = getComputedStyle(one);
        const ink = parse(one instanceof SVGElement ? style.fill : style.color);
        const [a, b] = [light(ink), light(ground(one))].sort((x, y) => y - x);
        if ((a + .05) / (b + .05) < 4.5) faint.push(`${one.tagName} ${one.getAttribute("class")}`);
    }
    return [...new Set(faint)];
})()"""
