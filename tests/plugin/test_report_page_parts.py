"""The report's page: whose page is written where, and what its parts are given."""

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.plugin import page as module
from lightrig.harness.plugin.keys import TESTBEDS
from lightrig.harness.plugin.page import Page
from lightrig.harness.record import RecordError
from lightrig.harness.report.run_page import TITLE


class Run:
    """A run whose pages note what they are given."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.name = folder, "20260314-021500-x"
        self.report = str(folder / "report.html")
        self.failures_to_restore = ["ocs is not as found"]
        self.records = 0
        self.documents: list[tuple[Any, ...]] = []
        self.written: list[tuple[Any, ...]] = []
        self.failing = False
        self.added: dict[str, dict[str, Any]] = {"a": {"undecided": True}, "b": {}}
        parts = {
            "collect": lambda record: f"frame of {record.name}",
            "sections": self._sections,
            "card_ids": lambda described, frame: {"a": f"card of {frame}", "x": "none"},
            "found_at_begin": lambda folder, described: "nothing" if folder == self.folder else "?",
            "run_causes": lambda tests, _, frame, found, parts: (
                f"causes of {tests} {frame} {found}"
            ),
            "document": lambda *given: self.documents.append(given) or "the page",
            "write_page": lambda *given: self.written.append(given),
            "banner": lambda problems: f"<{'; '.join(problems)}>",
            "title_of": lambda name, described: f"title of {name} {list(described)}",
            "appearing": self._appearing,
        }
        for name, part in parts.items():
            monkeypatch.setattr(module, name, part)
        monkeypatch.chdir(folder)

    @staticmethod
    @contextmanager
    def _appearing(path: Path) -> Any:
        yield path

    def record(self) -> Any:
        self.records += 1
        return SimpleNamespace(name="rows", tests="tests", header={})

    def _sections(self, record: Any, described: Any, frame: Any) -> str:
        if self.failing:
            raise RecordError("torn")
        return f"measured {record.name} {list(described)} {frame};"

    def page(self, htmlpath: str | None = None, html: bool = True, css: Any = ()) -> Page:
        stash: Any = pytest.Stash()
        stash[TESTBEDS] = [SimpleNamespace(name="opus"), SimpleNamespace(name="acos")]
        self.option = SimpleNamespace(htmlpath=htmlpath, self_contained_html=False)
        config: Any = SimpleNamespace(
            stash=stash, option=self.option, getoption={"css": css}.get,
            pluginmanager=SimpleNamespace(hasplugin={"html": html}.get),
        )  # fmt: skip
        undecided = {name: "9 more" for name, one in self.added.items() if one.get("undecided")}
        outcomes = SimpleNamespace(added=self.added, reruns={}, inconclusive=undecided)
        return Page(config, self, outcomes)  # type: ignore[arg-type]


def html_report(title: str = TITLE, state: str = "finished", **data: Any) -> Any:
    names = ("passed", "failed", "skipped")
    outcomes = {name: {"value": value} for name, value in zip(names, (1_200, 3, 7), strict=True)}
    summary = {"prefix": ["before;"], "summary": ["within;"], "postfix": ["after;", "end"]}
    return SimpleNamespace(
        title=title, outcomes=outcomes, additional_summary=summary, running_state=state,
        total_duration=61.4, data={"tests": {}, **data},
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_without_a_request_the_run_has_the_page(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    page = run.page(css=[str(run.folder / "$NAME.css")])
    monkeypatch.setenv("NAME", "mine")
    (run.folder / "mine.css").write_text("p {}")
    assert (run.option.htmlpath, run.option.self_contained_html) == (run.report, True)
    assert page.path == Path(run.report)
    assert not page.is_to_come
    Path(run.report).touch()
    assert page.is_to_come
    report = html_report()
    page.pytest_html_report_title(report)
    prefix: list[Any] = []
    page.pytest_html_results_summary(prefix)
    assert prefix == ["measured rows ['opus', 'acos'] frame of rows;"]
    page.finish()
    ((title, about, body, results, css, causes),) = run.documents
    assert title == "title of 20260314-021500-x ['opus', 'acos']"
    assert about.startswith("Run 20260314-021500-x of opus, acos. 1,204 tests took 61.4 s. Made ")
    assert body == "<ocs is not as found>before;within;after;end"
    assert (css, causes) == ("p {}", "causes of tests frame of rows nothing")
    assert results.outcomes == {"passed": 1_200, "failed": 3, "skipped": 6, "inconclusive": 1}
    assert results.data == json.dumps(report.data)
    assert run.added == {"a": {"undecided": True, "card": "card of frame of rows"}, "b": {}}
    assert Path(run.report).read_text() == "the page"
    assert (run.records, run.written, page.frame) == (1, [], "frame of rows")


def test_a_page_that_was_asked_for_stays_and_the_run_has_its_own(run: Run) -> None:
    page = run.page(htmlpath="out/mine.html")
    assert (run.option.htmlpath, run.option.self_contained_html) == ("out/mine.html", False)
    assert page.is_to_come
    (run.folder / "out" / "assets").mkdir(parents=True)
    (run.folder / "out" / "assets" / "x.png").write_bytes(b"png")
    extras = [
        {"content": "assets/x.png", "mime_type": "image/png"},
        {"content": "plain", "mime_type": "text/plain"},
    ]
    tests = {
        name: [
            {
                "result": result,
                "resultsTableRow": [f'<td class="col-result">{result}</td>', "<td>1 s</td>"],
                "extras": extras if name == "a" else [],
            }
        ]
        for name, result in (("a", "Skipped"), ("b", "Skipped"), ("c", "Passed"))
    }
    report = html_report("mine.html", tests=tests)
    page.pytest_html_report_title(report)
    assert report.title == "mine.html"
    prefix: list[Any] = []
    page.pytest_html_results_summary(prefix)
    assert prefix == []
    page.finish()
    ((title, _, body, results, css, _),) = run.documents
    assert title == "title of 20260314-021500-x ['opus', 'acos']"
    assert body.startswith(
        "<ocs is not as found>measured rows ['opus', 'acos'] frame of rows;before;"
    )
    assert css == ""
    shown = json.loads(results.data)["tests"]
    words = ["Inconclusive", "Skipped", "Passed"]
    assert [shown[name][0]["result"] for name in "abc"] == words
    cells = [shown[name][0]["resultsTableRow"][0] for name in "abc"]
    assert cells == [f'<td class="col-result">{word}</td>' for word in words]
    embedded, plain = shown["a"][0]["extras"]
    assert (embedded["content"], plain["content"]) == ("data:image/png;base64,cG5n", "plain")
    assert extras[0]["content"] == "assets/x.png"


def test_a_title_by_a_hook_stays(run: Run) -> None:
    page = run.page()
    report = html_report()
    page.pytest_html_report_title(report)
    report.title = "Night of ours"
    page.finish()
    assert run.documents[0][0] == "Night of ours"
    # Nothing was read for a page on which nothing measured was asked for.
    assert (run.records, run.documents[0][-1]) == (0, "")


@pytest.mark.parametrize("how", ["no report", "not finished", "no plugin"])
def test_where_there_is_no_page_of_pytest_html_the_journal_makes_it(run: Run, how: str) -> None:
    page = run.page(html=how != "no plugin")
    if how == "not finished":
        page.pytest_html_report_title(html_report(state="started"))
    elif how == "no plugin":
        page.pytest_html_report_title(html_report())
    page.finish()
    assert run.documents == []
    if how == "no plugin":
        assert (page.path, page.is_to_come, run.written) == (None, False, [])
        return
    ((record, described, path, failures),) = run.written
    assert (record.name, list(described), path) == ("rows", ["opus", "acos"], Path(run.report))
    assert failures == run.failures_to_restore


def test_what_cannot_be_shown_is_named_on_the_page(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run.failing = True
    prefix: list[Any] = []
    run.page().pytest_html_results_summary(prefix)
    problem = "what was measured cannot be shown: RecordError: torn"
    assert (prefix, capsys.readouterr().err) == ([f"<{problem}>"], f"lightrig: {problem}\n")


@pytest.mark.parametrize(
    ("when", "passed", "titles", "dropped"),
    [
        ("setup", True, [], True),
        ("setup", True, ["Captured log teardown"], True),
        ("setup", False, [], False),
        ("call", True, [], False),
        ("teardown", True, ["Captured log call"], True),
        ("teardown", True, ["Captured log call", "Captured log teardown"], False),
        ("teardown", False, [], False),
    ],
)
def test_rows_of_steps_that_passed_are_dropped(
    run: Run, when: str, passed: bool, titles: list[str], dropped: bool
) -> None:
    report = SimpleNamespace(when=when, passed=passed, sections=[(title, "") for title in titles])
    cells = ["<td>Skipped</td>", "<td>a</td>"]
    run.page().pytest_html_results_table_row(report, cells)
    assert cells == ([] if dropped else ["<td>Skipped</td>", "<td>a</td>"])
