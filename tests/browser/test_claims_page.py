"""The page of a paper's claims, figures first, on a desk and on a telephone; light and dark."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from page_view import LOADED, PHONE, PageView, expect, opened_page
from typer.testing import CliRunner

from lightrig.harness.cli.app import application

if TYPE_CHECKING:
    from playwright.sync_api import Browser


SCREENS = [
    pytest.param((PHONE, 844, False), id="phone-light"),
    pytest.param((PHONE, 844, True), id="phone-dark"),
    pytest.param((1280, 900, False), id="desk-light", marks=pytest.mark.long),
    pytest.param((1280, 900, True), id="desk-dark", marks=pytest.mark.long),
]
DRAWINGS = ".lf-panels .lr-svg"
# How far texts and lines of a drawing reach beyond the edges of the screen, in CSS pixels.
BEYOND = """() => {
    const width = document.documentElement.clientWidth;
    return [...document.querySelectorAll(".lf-panels .lr-svg text, .lf-panels .lr-svg path")]
        .map(one => [one, one.getBoundingClientRect()])
        .filter(([, box]) => box.width && (box.left < -1 || box.right > width + 1))
        .map(([one, box]) => `${one.closest("svg").getAttribute("aria-label")}: `
            + `${one.textContent} ${box.left} ${box.right}`);
}"""
# The brightness of the ground and of a drawing's axis text, from 0 to 255.
BRIGHTNESS = """() => [getComputedStyle(document.body).backgroundColor,
    getComputedStyle(document.querySelector(".lf-panels .lr-svg .lr-t")).fill]
    .map(colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number))
    .map(([r, g, b]) => (r + g + b) / 3)"""


@pytest.fixture(scope="module")
def page_of_claims(tmp_path_factory: pytest.TempPathFactory, chromium: "Browser") -> Path:
    """The page of RailX's claims; made only where it can be looked at."""
    folder = tmp_path_factory.mktemp("claims")
    arguments = ["claims", "railx", "--results", str(folder), "--html", str(folder / "claims.html")]
    done = CliRunner().invoke(application(), arguments)
    assert done.exit_code in {0, 1}, done.output
    return folder / "claims.html"


@pytest.fixture(params=SCREENS)
def view(
    request: pytest.FixtureRequest, chromium: "Browser", page_of_claims: Path
) -> Iterator[PageView]:
    width, height, dark = request.param
    screen = opened_page(
        chromium, page_of_claims, width=width, height=height, dark=dark, ready=LOADED
    )
    with screen as opened:
        yield opened
        assert opened.errors == []
        assert set(opened.requests) == {page_of_claims.as_uri()}


def test_nothing_is_cut_and_figures_come_first(view: PageView) -> None:
    """Each of the four figures is drawn, whole on the screen, above the folded claims."""
    page = view.page
    expect(page.locator(".lf-figure")).to_have_count(4)
    assert page.locator(DRAWINGS).count() >= 4
    assert view.elements_beyond_edge() == []
    assert page.evaluate(BEYOND) == []
    last = page.locator(".lf-figure").last.bounding_box()
    claims = page.locator("details", has_text="Claims, a row each").last
    folded = claims.bounding_box()
    assert last is not None
    assert folded is not None
    assert last["y"] < folded["y"]


def test_unfolded_claims_and_data_are_not_cut(view: PageView) -> None:
    view.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    expect(view.page.locator(".lc-statement").first).to_be_visible()
    expect(view.page.locator(".lf-figure .lr-log").first).to_be_visible()
    assert view.elements_beyond_edge() == []


def test_drawings_stand_out_from_their_ground(view: PageView) -> None:
    ground, ink = view.page.evaluate(BRIGHTNESS)
    dark = view.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert ink - ground > 80 if dark else ground - ink > 80
