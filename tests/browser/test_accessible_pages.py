"""Each page in Chromium with axe: contrast, names, keyboard; nothing cut, nothing fetched."""

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.served_lab import ServedLab, describe
from cli.test_survive import MS, survival
from orchestration.test_status_page import grid, submit
from page_view import LOADED, PHONE, READY, opened_page
from planted_nights import two_testbeds
from runs.running import started
from runs.test_relocks import LAB as LINKS
from typer.testing import CliRunner

from lightrig.harness.certify.sheet import read_sheet
from lightrig.harness.cli.app import application
from lightrig.harness.jobs.measure.survival_map import LongestFault
from lightrig.harness.jobs.report.survival_page import survival_page
from lightrig.harness.orchestration.health import MISSES
from lightrig.harness.orchestration.status_page import status_page
from lightrig.harness.record import Context, Journal, Row, TestOutcome
from lightrig.harness.report.nights import write_nights

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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


def relock_page(folder: Path) -> Path:
    """The page of a run with `--relock`, the second of its testbed: with the trend."""
    lab, suite = folder / "small.yaml", ROOT / "suites" / "test_relock.py"
    lab.write_text(LINKS)
    given = (suite, "--relock", "--testbed", lab, "--instruments", "simulated", "--samples", "14")
    for seed in ("0", "1"):
        with started((*given, "--seed", seed), folder / "results", page=True) as run:
            assert run.end().code == 0
    pages = folder.glob("results/runs/*/report.html")
    return max(pages, key=lambda page: page.stat().st_mtime_ns)


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


def without_reload(page: str) -> str:
    """Return a page that no longer loads itself anew, as it is once it has ended.

    Until then it does so every 5 s, which works without a script and axe counts as a fault.
    """
    return re.sub('<meta http-equiv="refresh"[^>]*>', "", page)


def fabric_page(folder: Path) -> Path:
    """The page of `lightrig orchestrate`: a job that is ready, one that waits, a silent switch."""
    service, room = grid(folder)
    submit(service, "pair", 2, 1)
    submit(service, "wide", 4, 2)
    room.silent = {"xocs0-0"}
    for _ in range(MISSES):
        service.step()
    (folder / "page.html").write_text(without_reload(status_page(service, "grid.yaml")))
    return folder / "page.html"


def page_of_a_running_run(folder: Path) -> Path:
    header = {"run": "r1", "night": "2026-03-14", "testbeds": {"bench": "bench.yaml"}}
    page = folder / "page.html"
    with Journal(folder / "runs" / "r1" / "journal.jsonl", header) as journal:
        row = Row("port", "carrier_up", 1e6, 1e6, 2e6, "ns", 1, {"event": 0})
        journal.append(Context("bench", "test_it", ("ocs: x",), True, {}), row)
        journal.note_test(TestOutcome("test_bad", "failed", 1.0, {"why": "too slow"}))
        watch = ["results", "watch", "--once", "--page", str(page), "--results", str(folder)]
        assert CliRunner().invoke(application("results"), watch).exit_code == 1
    page.write_text(without_reload(page.read_text()))
    return page


def lab_page(folder: Path) -> Path:
    page = folder / "lab.html"
    with closing(ServedLab(folder)) as lab, pytest.MonkeyPatch.context() as patch:
        for name, value in lab.environment.items():
            patch.setenv(name, value)
        live = ["live", str(lab.file), "server0", "--for", "1s", "--page", str(page)]
        done = CliRunner().invoke(application("live"), live)
        assert done.exit_code == 0, done.output
    return page


@dataclass(frozen=True)
class Kind:
    """A kind of page: how one is made, and when it is drawn."""

    make: Callable[[Path], Path]
    ready: str = LOADED


KINDS = {
    "run": Kind(run_page, READY),
    "relock": Kind(relock_page, READY),
    "nights": Kind(nights_page),
    "sheet": Kind(sheet_page),
    "survival": Kind(page_of_survival),
    "claims": Kind(by_command("claims", "railx", "--results", "NONE", "--html", "PAGE")),
    "simulate": Kind(
        by_command(
            *("simulate", str(ROOT / "examples" / "workloads" / "gpt.yaml"), "opus"),
            *("--switching-time", "0..100ms", "--compare", "packet,one-shot", "--html", "PAGE"),
        )
    ),
    "fabric": Kind(fabric_page),
    "running": Kind(page_of_a_running_run),
    "lab": Kind(lab_page),
    "plans": Kind(by_command("plan", "LAB", "--picture", "PAGE")),
}


@pytest.fixture(scope="module")
def kind_and_page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, chromium: "Browser"
) -> tuple[Kind, Path]:
    kind = KINDS[request.param]
    return kind, kind.make(tmp_path_factory.mktemp(request.param))


VIEWS = [(1280, False), (PHONE, True), (1280, True), (PHONE, False)]
"""Width and whether it is dark: every page in all, and in turn in one of the first two first."""


@pytest.mark.parametrize(
    ("kind_and_page", "width", "dark"),
    [
        pytest.param(kind, *view, marks=() if VIEWS.index(view) == number % 2 else pytest.mark.long)
        for number, kind in enumerate(KINDS)
        for view in VIEWS
    ],
    indirect=["kind_and_page"],
)
def test_a_page_has_no_serious_fault(
    chromium: "Browser", kind_and_page: tuple[Kind, Path], width: int, dark: bool
) -> None:
    """With all of its folds open."""
    from axe_playwright_python.sync_playwright import Axe

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


def test_the_first_screen_of_a_run_has_a_drawing(chromium: "Browser", tmp_path: Path) -> None:
    with opened_page(chromium, run_page(tmp_path)) as view:
        drawn = view.page.locator(".lr-interval").first.bounding_box()
        assert drawn is not None
        assert drawn["y"] + drawn["height"] < 900


def test_the_summary_of_a_sheet_is_printed_on_few_pages(
    chromium: "Browser", tmp_path: Path
) -> None:
    """Its 37 clauses are a table of two pages of A4; requirements and methods are folded."""
    with opened_page(chromium, sheet_page(tmp_path), ready=LOADED) as view:
        assert view.page.locator("details[open]").count() == 0
        printed = view.page.pdf(format="A4")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 2
