"""The page of the nights in a browser: find, fold, look at a night, follow its link."""

import re

import pytest
from page_view import PHONE, expect, opened_page
from planted_nights import MISSING, two_testbeds

from lightrig.harness.report.nights import write_nights

SHOWN = ".ln-quantity:not([hidden])"
LABS = ".ln-lab:visible"
CHANGES = ".ln-group:visible"
FIGURE = "figure[data-of='n0-0'] .ln-plot"


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """Two testbeds, thirty nights, and a report to each run."""
    root = tmp_path_factory.mktemp("nights")
    two_testbeds(root, reports=True)
    return write_nights(root, root / "nights.html")


@pytest.fixture(scope="module")
def on_desk(chromium, nights):
    with opened_page(chromium, nights) as view:
        yield view


@pytest.fixture
def page(on_desk):
    """The page on a desk; it causes no error and asks for nothing but files."""
    on_desk.load()
    yield on_desk.page
    assert on_desk.errors == []
    assert [url for url in on_desk.requests if not url.startswith("file:")] == []


def test_the_filter_finds_quantities_subjects_and_testbeds(page):
    count, filtered = page.locator("#ln-count"), page.locator("#ln-find")
    expect(count).to_have_text("all 5 quantities")
    filtered.fill("firmware")
    expect(count).to_have_text("2 of 5 quantities")
    expect(page.locator(SHOWN)).to_have_count(2)
    filtered.press_sequentially(" fab")
    expect(page.locator(SHOWN)).to_have_count(1)
    expect(page.locator(LABS)).to_have_count(1)
    filtered.fill("ocs.3>19")
    expect(page.locator(SHOWN)).to_have_count(2)
    expect(page.locator(CHANGES)).to_have_count(1)
    filtered.fill("nothing is called so")
    expect(page.locator(SHOWN)).to_have_count(0)
    expect(page.locator(LABS)).to_have_count(0)


@pytest.mark.long
def test_only_changes_of_one_testbed(page):
    page.click("#ln-moved")
    expect(page.locator("#ln-count")).to_have_text("2 of 5 quantities")
    page.select_option("#ln-lab", "1")
    expect(page.locator("#ln-count")).to_have_text("1 of 5 quantities")
    expect(page.locator(SHOWN)).to_contain_text("insertion_loss")
    expect(page.locator(CHANGES)).to_have_count(1)


@pytest.mark.long
def test_folds_open_and_close_alone_and_together(page):
    folds = page.locator(".ln-quantity[open]:visible")
    figures = page.locator("figure:visible")
    expect(figures).to_have_count(0)
    page.click(".ln-quantity > summary")
    expect(folds).to_have_count(1)
    expect(figures).to_have_count(1)
    page.click("#ln-fold")
    expect(folds).to_have_count(0)
    page.click("#ln-fold")
    expect(folds).to_have_count(5)
    page.click(".ln-nights > summary")
    expect(page.locator(".ln-nights[open]").get_by_text("no data")).to_have_count(len(MISSING))


def test_a_night_is_chosen_by_pointer_and_its_run_followed(page):
    page.click(".ln-quantity > summary")
    page.click(FIGURE)
    # The middle of the plot is the middle of the nights, a little left of it for the axis.
    night = page.locator("figure[data-of='n0-0'] .ln-told")
    expect(night).to_have_text(re.compile(r"^2026-02-1"))
    expect(night).to_contain_text("of 300, 95 % interval")
    expect(night).to_contain_text("p99")
    expect(night).to_contain_text("simulated")
    page.click(".ln-told a")
    expect(page.locator("body")).to_have_text(re.compile("^report of 202602"))


@pytest.mark.long
def test_the_keyboard_does_all_that_the_pointer_does(page):
    page.focus(".ln-quantity > summary")
    page.keyboard.press("Enter")
    expect(page.locator(".ln-quantity[open]")).to_have_count(1)
    expect(page.locator(FIGURE)).to_be_attached()
    page.keyboard.press("Tab")
    expect(page.locator(".ln-plot:focus")).to_have_count(1)
    page.keyboard.press("Home")
    night = page.locator(".ln-told").first
    expect(night).to_have_text(re.compile("^2026-02-01: median"))
    for _ in range(MISSING[0]):
        page.keyboard.press("ArrowRight")
    expect(night).to_have_text("2026-02-06: no data")
    page.keyboard.press("End")
    expect(night).to_have_text(re.compile("^2026-03-02: median"))
    page.keyboard.press("Enter")
    expect(page.locator("body")).to_have_text(re.compile("^report of 20260302"))


@pytest.mark.long
def test_a_change_leads_to_its_figure_also_through_a_fold_and_a_filter(page):
    page.fill("#ln-find", "signal_recovered")
    link = page.evaluate(
        "[...document.querySelectorAll('.ln-group a')]"
        ".find(one => one.innerText === 'ocs.3>19').getAttribute('href')"
    )
    page.evaluate(f"location.hash = '{link}'")
    figure = page.locator(f"[id='{link[1:]}']")
    expect(figure).to_be_in_viewport()
    expect(figure.locator("figcaption")).to_contain_text("changed 2026-02-21")
    expect(figure.locator(".ln-change")).to_have_count(1)


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(1280, False, marks=pytest.mark.long),
        (PHONE, True),
        pytest.param(1280, True, marks=pytest.mark.long),
        pytest.param(PHONE, False, marks=pytest.mark.long),
    ],
)
def test_it_fits_every_screen_and_can_be_read_by_day_and_night(chromium, nights, width, dark):
    with opened_page(chromium, nights, width=width, dark=dark) as view:
        view.page.click("#ln-fold")
        expect(view.page.locator(".ln-change").first).to_be_attached()
        assert view.elements_beyond_edge() == []
        assert view.errors == []
        colours = view.page.evaluate(
            "(() => { const of = (one, what) =>"
            " getComputedStyle(document.querySelector(one))[what];"
            " return [of('.ln-lab', 'backgroundColor'), of('.ln-lab', 'color'),"
            " of('.ln-change', 'stroke'), of('.lr-line', 'stroke')]; })()"
        )
        picture = view.page.screenshot(full_page=True)
    ground, *inks = (tuple(map(int, one[4:-1].split(","))) for one in colours)
    assert (sum(ground) < 200) == dark
    assert all(_contrast(ground, ink) > 3 for ink in inks)
    assert len(picture) > 50_000


def _contrast(one, other):
    """The contrast ratio of WCAG 2, from 1 to 21; 3 is enough for a line."""

    def luminance(colour):
        shares = [part / 255 for part in colour]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
