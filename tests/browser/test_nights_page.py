"""The page of the nights in a browser: find, fold, look at a night, follow its link."""

import pytest
from browser import PHONE
from planted_nights import MISSING, two_testbeds

from harness.report.nights import write_nights

SHOWN = ".ln-quantity:not([hidden])"
FIGURE = "figure[data-of='n0-0'] .ln-plot"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Two testbeds, thirty nights, and a report to each run."""
    root = tmp_path_factory.mktemp("nights")
    two_testbeds(root, reports=True)
    return write_nights(root, root / "nights.html")


@pytest.fixture
def opened(browser, page):
    """The page on a desk, ready; nothing may go wrong in it while a test looks."""
    browser.open(page)
    browser.wait_for("document.documentElement.dataset.ready === 'yes'")
    yield browser
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith("file:")] == []


def test_the_filter_finds_quantities_subjects_and_testbeds(opened):
    assert opened.text("#ln-count") == "all 5 quantities"
    opened.click("#ln-find")
    opened.type("firmware")
    assert (opened.count(SHOWN), opened.text("#ln-count")) == (2, "2 of 5 quantities")
    opened.type(" fab")
    assert opened.count(SHOWN) == 1
    assert opened.count(".ln-lab") == 1
    opened.evaluate("document.getElementById('ln-find').select()")
    opened.type("ocs.3>19")
    assert opened.count(SHOWN) == 2
    assert opened.count(".ln-occasion") == 1
    opened.evaluate("document.getElementById('ln-find').select()")
    opened.type("nothing is called so")
    assert (opened.count(SHOWN), opened.count(".ln-lab")) == (0, 0)


def test_only_changes_of_one_testbed(opened):
    opened.click("#ln-moved")
    assert opened.text("#ln-count") == "2 of 5 quantities"
    opened.evaluate(
        "(() => { const one = document.getElementById('ln-lab'); one.value = '1';"
        " one.dispatchEvent(new Event('change')); })()"
    )
    assert opened.text("#ln-count") == "1 of 5 quantities"
    assert "insertion_loss" in opened.text(SHOWN)
    assert opened.count(".ln-occasion") == 1


def test_folds_open_and_close_alone_and_together(opened):
    assert opened.count("figure") == 0
    opened.click(".ln-quantity > summary")
    assert opened.count(".ln-quantity[open]") == 1
    assert opened.count("figure") == 1
    opened.click("#ln-fold")
    assert opened.count(".ln-quantity[open]") == 0
    opened.click("#ln-fold")
    assert opened.count(".ln-quantity[open]") == 5
    opened.click(".ln-nights > summary")
    assert opened.text(".ln-nights[open]").count("no data") == len(MISSING)


def test_a_night_is_chosen_by_pointer_and_its_run_followed(opened):
    opened.click(".ln-quantity > summary")
    opened.click(FIGURE)
    told = opened.text("figure[data-of='n0-0'] .ln-told")
    # The middle of the plot is the middle of the nights, a little left of it for the axis.
    assert told.startswith("2026-02-1")
    assert "of 300, 95 % interval" in told
    assert "p99" in told
    assert "simulated" in told
    opened.click(".ln-told a")
    opened.wait_for("document.body && document.body.innerText.startsWith('report of 202602')")


def test_the_keyboard_does_all_that_the_pointer_does(opened):
    opened.evaluate("document.querySelector('.ln-quantity > summary').focus()")
    opened.press("Enter")
    opened.wait_for("document.querySelector('.ln-quantity').open")
    opened.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "ln-plot"
    opened.press("Home")
    assert opened.text(".ln-told").startswith("2026-02-01: median")
    for _ in range(MISSING[0]):
        opened.press("ArrowRight")
    assert opened.text(".ln-told") == "2026-02-06: no data"
    opened.press("End")
    assert opened.text(".ln-told").startswith("2026-03-02: median")
    opened.press("Enter")
    opened.wait_for("document.body && document.body.innerText.startsWith('report of 20260302')")


def test_a_change_leads_to_its_figure_also_through_a_fold_and_a_filter(opened):
    opened.click("#ln-find")
    opened.type("light_back")
    link = opened.evaluate(
        "[...document.querySelectorAll('.ln-occasion a')]"
        ".find(one => one.innerText === 'ocs.3>19').getAttribute('href')"
    )
    opened.evaluate(f"location.hash = '{link}'")
    name = f"document.getElementById('{link[1:]}')"
    opened.wait_for(f"{name}.checkVisibility()")
    opened.wait_for(f"Math.abs({name}.getBoundingClientRect().top) < innerHeight")
    assert "changed 2026-02-21" in opened.text(f"[id='{link[1:]}'] figcaption")
    assert opened.count(f"[id='{link[1:]}'] .ln-change") == 1


@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (PHONE, False), (PHONE, True)]
)
def test_it_fits_every_screen_and_can_be_read_by_day_and_night(
    browser, page, tmp_path, width, dark
):
    browser.open(page, width=width, dark=dark)
    browser.wait_for("document.documentElement.dataset.ready === 'yes'")
    browser.click("#ln-fold")
    assert browser.overflow() == []
    assert browser.errors == []
    colours = browser.evaluate(
        "(() => { const of = (one, what) => getComputedStyle(document.querySelector(one))[what];"
        " return [of('.ln-lab', 'backgroundColor'), of('.ln-lab', 'color'),"
        " of('.ln-change', 'stroke'), of('.lr-line', 'stroke')]; })()"
    )
    ground, *inks = (tuple(map(int, one[4:-1].split(","))) for one in colours)
    assert (sum(ground) < 200) == dark
    assert all(_contrast(ground, ink) > 3 for ink in inks)
    assert browser.screenshot(tmp_path / "page.png").stat().st_size > 50_000


def _contrast(one, other):
    """The contrast ratio of WCAG 2, from 1 to 21; 3 is enough for a line."""

    def luminance(colour):
        shares = [part / 255 for part in colour]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
