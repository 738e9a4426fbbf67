"""Each page in Chromium with axe: contrast, names, keyboard; nothing cut, nothing fetched."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from bench.served_lab import describe
from cli.test_survive import MS, survival
from page_view import LOADED, PHONE, READY, opened_page
from planted_nights import two_testbeds
from playwright.sync_api import Browser
from runs.running import started
from typer.testing import CliRunner

from lightrig.harness.certify.sheet import read_sheet
from lightrig.harness.cli.app import application
from lightrig.harness.jobs.measure.survival_map import LongestFault
from lightrig.harness.jobs.report.survival_page import survival_page
from lightrig.harness.report.nights import write_nights

ROOT = Path(__file__).parents[2]
SERIOUS = {"serious", "critical"}
OTHER_DATE = r"\b\d{1,2}[-. ][A-Z][a-z]{2}[-. ]\d{4}\b"
TESTS = """
import pytest

def test_measured(fabric, measure, bring_up, measure_reconfiguration, transition):
    bring_up(transition.before)
    for index in range(8):
        measure_reconfiguration(transition.before if index % 2 else transition.after)
    measure.judge("reconfiguration")

def test_wrong(fabric): assert 0, "so wrong"
"""


def run_page(folder: Path) -> Path:
    lab = describe(folder, limit="{max: 10 s}")
    (folder / "test_seen.py").write_text(TESTS)
    arguments = (folder / "test_seen.py", "--rootdir", folder, "--testbed", lab)
    with started((*arguments, "--instruments", "simulated"), folder / "results", page=True) as run:
        return run.end().page


def nights_page(folder: Path) -> Path:
    two_testbeds(folder, reports=True)
    return write_nights(folder, folder / "nights.html")


def sheet_page(folder: Path) -> Path:
    page = read_sheet(ROOT / "docs" / "sheets" / "polatis.json").page()
    (folder / "sheet.html").write_text(page)
    return folder / "sheet.html"


def page_of_survival(folder: Path) -> Path:
    search = LongestFault(100 * MS, 30_000 * MS)
    found = [
        survival("stalled, then went on", 200),
        survival("stalled, then went on", 223),
        survival("error", 9_000, "TimeoutError"),
    ]
    (folder / "page.html").write_text(survival_page("all_reduce over tcp", "mine", found, search))
    return folder / "page.html"


def by_command(*command: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        page = folder / "page.html"
        lab = str(describe(folder))
        given = [{"LAB": lab, "PAGE": str(page), "NONE": str(folder)}.get(a, a) for a in command]
        done = CliRunner().invoke(application(), given)
        assert done.exit_code in {0, 1}, done.output
        return page

    return make


@dataclass(frozen=True)
class Kind:
    """A kind of page: how one is made, and when it is drawn."""

    make: Callable[[Path], Path]
    ready: str = LOADED


KINDS = {
    "run": Kind(run_page, READY),
    "nights": Kind(nights_page),
    "sheet": Kind(sheet_page),
    "survival": Kind(page_of_survival),
    "claims": Kind(by_command("claims", "railx", "--results", "NONE", "--html", "PAGE")),
    "plans": Kind(by_command("plan", "LAB", "--picture", "PAGE")),
}


@pytest.fixture(scope="module", params=KINDS)
def kind_and_page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, chromium: Browser
) -> tuple[Kind, Path]:
    kind = KINDS[request.param]
    return kind, kind.make(tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (1280, False),
        (PHONE, True),
        pytest.param(1280, True, marks=pytest.mark.long),
        pytest.param(PHONE, False, marks=pytest.mark.long),
    ],
)
def test_a_page_has_no_serious_fault(
    chromium: Browser, kind_and_page: tuple[Kind, Path], width: int, dark: bool
) -> None:
    """With all of its folds open."""
    kind, path = kind_and_page
    with opened_page(chromium, path, width=width, dark=dark, ready=kind.ready) as view:
        view.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        found = [
            f"{fault['id']}: {node['html'][:120]} {node['failureSummary']}"
            for fault in Axe().run(view.page).response["violations"]
            if fault["impact"] in SERIOUS
            for node in fault["nodes"]
        ]
        assert found == []
        assert view.elements_beyond_edge() == []
        assert view.errors == []
        assert {url for url in view.requests if not url.startswith("data:")} == {path.as_uri()}
        assert re.findall(OTHER_DATE, view.page.inner_text("body")) == []


def test_the_first_screen_of_a_run_has_a_drawing(chromium: Browser, tmp_path: Path) -> None:
    with opened_page(chromium, run_page(tmp_path)) as view:
        drawn = view.page.locator(".lr-interval").first.bounding_box()
        assert drawn is not None
        assert drawn["y"] + drawn["height"] < 900


def test_the_summary_of_a_sheet_is_printed_on_few_pages(chromium: Browser, tmp_path: Path) -> None:
    """Its 37 clauses are a table of two pages of A4; requirements and methods are folded."""
    with opened_page(chromium, sheet_page(tmp_path), ready=LOADED) as view:
        assert view.page.locator("details[open]").count() == 0
        printed = view.page.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 2
