"""A run's page as a person uses it: filter, fold, figure, link; light, dark and on a telephone."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from bench.served_lab import describe
from page_view import PHONE, PageView, expect, opened_page
from runs.running import started

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


TESTS = """
import pytest
from pytest_html import extras as extra

def test_measured(fabric, measure, bring_up, measure_reconfiguration, transition):
    bring_up(transition.before)
    for index in range(8):
        measure_reconfiguration(transition.before if index % 2 else transition.after)
    measure.judge("reconfiguration")

def test_wrong(fabric, bring_up, transition):
    bring_up(transition.before)
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
TEST = ".lr-test"
BODY = ".lr-test-body:visible"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> Path:
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


@pytest.fixture(scope="module")
def on_desk(chromium: "Browser", report: Path) -> Iterator[PageView]:
    with opened_page(chromium, report) as view:
        yield view


@pytest.fixture
def page(on_desk: PageView, report: Path) -> "Iterator[Page]":
    """The page on a desk; it causes no error and asks for nothing but itself."""
    on_desk.load()
    yield on_desk.page
    assert on_desk.errors == []
    assert on_desk.broken_images() == []
    requests = {url for url in on_desk.requests if not url.startswith("data:")}
    assert requests == {report.as_uri()}


def names(page: "Page") -> list[str]:
    return page.locator(".lr-test-name b").all_text_contents()


def test_worst_comes_first_and_is_unfolded(page: "Page") -> None:
    assert names(page)[:2] == ["test_wrong[lab/straight-to-crossed]", "test_left_out[lab]"]
    expect(page.locator(".lr-test[open]")).to_have_count(1)
    body = page.locator(".lr-test[open] .lr-test-body")
    expect(body).to_contain_text("AssertionError: so <i>wrong</i>")
    expect(body).to_contain_text("<b>loud</b> words")
    expect(body.locator("b, i")).to_have_count(0)
    expect(body).to_contain_text("--instruments simulated --seed 0")


def test_filter(page: "Page") -> None:
    shown = page.locator("#lr-shown")
    expect(shown).to_contain_text("all 154 shown")
    page.click('input[data-outcome="passed"]')
    expect(shown).to_contain_text("2 of 154 shown")
    assert names(page) == ["test_wrong[lab/straight-to-crossed]", "test_left_out[lab]"]
    page.click('input[data-outcome="failed"]')
    expect(shown).to_contain_text("1 of 154 shown")
    assert names(page) == ["test_left_out[lab]"]
    page.click('input[data-outcome="passed"]')
    expect(shown).to_contain_text("153 of 154 shown")


@pytest.mark.long
def test_find_and_order(page: "Page") -> None:
    page.fill("#lr-search", "MANY[14")
    expect(page.locator(TEST)).to_have_count(11)
    assert sorted(names(page)) == sorted(
        [f"test_many[{number}]" for number in (14, *range(140, 150))]
    )
    page.select_option("#lr-order", "name")
    expect(page.locator(".lr-test-name b").first).to_have_text("test_many[140]")


@pytest.mark.long
def test_only_what_is_near_is_drawn_and_the_rest_when_it_comes(page: "Page") -> None:
    expect(page.locator(TEST)).to_have_count(100)
    page.evaluate("document.querySelector('#lr-more').scrollIntoView()")
    expect(page.locator(TEST)).to_have_count(154)
    expect(page.locator("#lr-more:visible")).to_have_count(0)


@pytest.mark.long
def test_fold(page: "Page") -> None:
    """By mouse and by key; what is folded is not drawn before."""
    second = page.locator(".lr-test:nth-child(2)")
    expect(second.locator(BODY)).to_have_count(0)
    second.locator("summary").first.click()
    expect(second.locator(".lr-test-body")).to_contain_text("a reason in words")
    page.keyboard.press("Enter")
    expect(page.locator(".lr-test:nth-child(2)[open]")).to_have_count(0)
    expect(page.locator(".lr-wire pre:visible")).to_have_count(0)
    page.click(".lr-wire summary")
    expect(page.locator(".lr-wire pre").first).to_contain_text("> ")
    page.click("#lr-unfold")
    page.click("#lr-unfold")
    expect(page.locator(".lr-test[open]")).to_have_count(100)


@pytest.mark.long
def test_figure(page: "Page") -> None:
    """A plan's circuits are shown when it is picked."""
    circuits = page.locator(".lr-p1").first
    expect(circuits).to_have_css("display", "none")
    page.click(".lr-l1")
    expect(circuits).to_have_css("display", "inline")
    assert page.locator("svg[aria-label^='Distribution of']:visible").count() >= 4
    expect(page.locator("svg[aria-label^='Timeline of event']:visible")).to_have_count(1)


@pytest.mark.long
def test_link_from_figures_to_test_and_back(page: "Page") -> None:
    page.click(".lr-table a[href*='test_measured']")
    expect(page.locator(TEST)).to_have_count(1)
    assert names(page) == ["test_measured[lab/straight-to-crossed]"]
    expect(page.locator(".lr-test[open]")).to_have_count(1)
    page.click(".lr-test-facts a[href='#lr-0']")
    top = "Math.abs(document.querySelector('#lr-0').getBoundingClientRect().top)"
    page.wait_for_function(f"{top} < 2")


def test_link_from_overview_to_failure(page: "Page") -> None:
    page.click(".lr-wrong a")
    expect(page.locator(TEST)).to_have_count(1)
    assert names(page) == ["test_wrong[lab/straight-to-crossed]"]


@pytest.mark.long
def test_link_opens_with_its_test(page: "Page") -> None:
    page.evaluate("location.hash = '#test=test_seen.py::test_left_out%5Blab%5D'")
    expect(page.locator(TEST)).to_have_count(1)
    assert names(page) == ["test_left_out[lab]"]


@pytest.mark.long
def test_command_is_copied(page: "Page") -> None:
    """The command is selected where the clipboard is closed to pages."""
    copy = page.locator(".lr-copy").first
    copy.click()
    page.wait_for_function("/copied|selected/.test(document.querySelector('.lr-copy').textContent)")
    page.evaluate("delete Navigator.prototype.clipboard")
    copy.click()
    command = page.inner_text(".lr-command code")
    assert command.startswith("pytest '")
    page.wait_for_function("command => getSelection().toString() === command", arg=command)


@pytest.mark.long
def test_content_that_a_test_added_is_shown(page: "Page") -> None:
    page.evaluate("location.hash = '#test=test_seen.py::test_with_pictures%5Blab%5D'")
    page.wait_for_function("document.images.length === 1 && document.images[0].complete")
    expect(page.locator("#own-figure")).to_have_text("a figure of its own")
    expect(page.locator("img")).to_have_attribute("alt", "a dot")
    expect(page.locator(f"{BODY} a[href^='data:text/plain']")).to_have_count(1)


@pytest.mark.long
def test_environment_is_folded_away(page: "Page") -> None:
    expect(page.locator("#lr-environment dd:visible")).to_have_count(0)
    page.click("details.lr-card > summary")
    expect(page.locator("#lr-environment")).to_contain_text("Python")


@pytest.mark.parametrize(
    ("width", "height", "dark"),
    [
        pytest.param(1280, 900, False, id="desk-light", marks=pytest.mark.long),
        pytest.param(PHONE, 844, True, id="phone-dark"),
        pytest.param(1280, 900, True, id="desk-dark", marks=pytest.mark.long),
        pytest.param(PHONE, 844, False, id="phone-light", marks=pytest.mark.long),
    ],
)
def test_every_screen(
    chromium: "Browser", report: Path, width: int, height: int, dark: bool
) -> None:
    """Nothing reaches beyond the edge, and words stand out from their ground."""
    with opened_page(chromium, report, width=width, height=height, dark=dark) as view:
        assert view.elements_beyond_edge() == []
        assert view.errors == []
        assert view.page.evaluate(CONTRAST) == []
        assert len(view.page.screenshot()) > 20_000


@pytest.mark.parametrize(("width", "media"), [(PHONE, "screen"), (718, "print")])
def test_answers_are_not_cut_on_a_phone_and_on_paper(
    chromium: "Browser", report: Path, width: int, media: Literal["screen", "print"]
) -> None:
    """Paper of A4 leaves 718 px, and nobody can scroll there."""
    with opened_page(chromium, report, width=width) as view:
        view.page.emulate_media(media=media)
        cut = view.page.evaluate(
            "[...document.querySelectorAll('#lr-answers .lr-scroll')]"
            ".map(one => one.scrollWidth - one.clientWidth)"
        )
        heads = view.page.evaluate(
            "[...document.querySelectorAll('#lr-answers td[data-head]')].slice(0, 3)"
            ".map(one => getComputedStyle(one, '::before').content)"
        )
    assert cut
    assert max(cut) <= 0
    assert "verdicts of tests" in heads[0]


# Words whose contrast with their ground is below 4.5, as WCAG 2 asks for.
CONTRAST = """() => {
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
}"""
