"""The pytest surface: outcomes, deselection, default testbeds, workers, foreign fixtures."""

import base64
import contextlib
import html
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import preloaded
import pytest
from bench.served_lab import describe
from report.pages import above, packed
from runs.running import QUIET, ROOT, Ended, started
from typer.testing import CliRunner

from lightrig.harness.cli.results import results
from lightrig.harness.record import read_journal

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(300)  # runs side by side, on a machine that may be busy

TESTS = """
import pytest
from lightrig.api import Quantity, declare
from lightrig.harness.record import Row

declare(Quantity(name="own.quantity", unit="1", meaning="a test count", better="higher"))

def unfit(testbed, number):
    return "an odd number" if number % 2 else ""

def test_undecided(measure, bring_up, measure_reconfiguration, transition):
    bring_up(transition.before)
    measure_reconfiguration(transition.after)
    measure.judge("reconfiguration")
    measure.note("this follows a limit without a verdict")
    measure.record([Row("lab", "own.quantity", 7, 7, 7, "1", 0)], {"mode": "careful"})

def test_undecided_and_wrong(measure):
    measure.judge("reconfiguration")
    assert not "wrong"

def test_decided(bench, testbed): assert testbed.name == "lab"

def test_colder(measure, climate_chamber): ...

@pytest.mark.needs(lacks=unfit)
@pytest.mark.parametrize("number", [1, 2])
def test_even(testbed, number): assert number == 2

@pytest.mark.of_testbed("elsewhere")
def test_elsewhere(testbed): ...
"""
FOREIGN = """
import pytest

@pytest.fixture
def testbed(): return "theirs"

def test_mixed(testbed, bench): ...
def test_theirs(testbed): assert testbed == "theirs"
"""
FULL = """
import os
import pytest
import lightrig.harness.record.journal as journal

class Full:
    written = 0

    def __getattr__(self, name):
        return self.fill if name == "write" else getattr(os, name)

    def fill(self, file, data):
        self.written += len(data)
        if self.written > 100:
            raise OSError(28, "No space left on device")
        return os.write(file, data)

@pytest.fixture(autouse=True, scope="session")
def full():
    journal.os = Full()
"""
COLUMN = """
import pytest
import pytest_html

def pytest_html_results_table_header(cells): cells.insert(2, "<th>Rack</th>")
def pytest_html_results_table_row(cells): cells.insert(2, "<td>rack seven</td>")

@pytest.fixture(autouse=True)
def _text(extras): extras.append(pytest_html.extras.text("read by hand"))
"""
TWO = "def test_of_one(bench, testbed): ...\ndef test_of_two(bench, fabric): ...\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    folder = tmp_path_factory.mktemp("surface")
    lab = describe(folder, limit="{p99: 10 s, confidence: 95 %}")
    other = folder / "other.yaml"
    other.write_text(lab.read_text().replace("name: lab", "name: lab-two", 1))
    many = {f"test_{n}.py": TESTS if n == 1 else TWO for n in range(3)}
    projects = {
        "all": (TESTS, "--json", folder / "events.jsonl", "--junitxml", folder / "junit.xml"),
        "strict": (
            TESTS,
            "-k",
            "undecided and not wrong",
            "--fail-inconclusive",
            "--html",
            folder / "html" / "mine.html",
        ),
        "inapplicable": (TESTS, "-k", "colder"),
        "foreign": (FOREIGN,),
        "full": (TWO,),
        "workers": (TESTS, "--testbed", other, "-n2", "--json", folder / "workers.jsonl"),
    }
    with contextlib.ExitStack() as stack:
        begun = {}
        for name, (text, *options) in projects.items():
            project = folder / name
            project.mkdir()
            files = many if name == "workers" else {"test_it.py": text}
            for file, content in files.items():
                (project / file).write_text(content)
            if name == "full":
                (project / "conftest.py").write_text(FULL)
            simulated = ("--testbed", lab, "--instruments", "simulated", "--rootdir", project)
            if name == "strict":
                (project / "conftest.py").write_text(COLUMN)
            page = name in {"all", "strict"}
            run = started((project, *simulated, *options), folder / f"results of {name}", page=page)
            begun[name] = stack.enter_context(run)
        yield {name: run.end() for name, run in begun.items()}


def journal_of(ended: Ended) -> Path:
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    return journal


def outcomes(ended: Ended) -> dict[str, str]:
    tests = read_journal(journal_of(ended)).tests
    return {test.nodeid.rpartition("::")[2]: test.outcome for test in tests}


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


UNDECIDED = "test_undecided[lab/straight-to-crossed]"


def test_inconclusive_is_an_outcome_everywhere(runs: dict[str, Ended]) -> None:
    ended = runs["all"]
    assert ended.code == 1, ended.output
    assert outcomes(ended) == {
        UNDECIDED: "inconclusive",
        "test_undecided_and_wrong[lab]": "failed",
        "test_decided[lab]": "passed",
        "test_even[lab-2]": "passed",
    }
    assert re.search(r"\d/4  inconclusive test_it\.py::test_undecided\[lab/", ended.output)
    assert re.search(rf"\nINCONCLUSIVE \S*{re.escape(UNDECIDED)} - .*298 more", ended.output)
    assert "1 failed, 2 passed, 3 deselected, 1 inconclusive in" in ended.output
    (shown,) = (
        found[-1]
        for name, found in packed(ended.page)["html"]["tests"].items()
        if UNDECIDED in name
    )
    assert shown["resultsTableRow"][0] == '<td class="col-result">Inconclusive</td>'
    assert "1 inconclusive" in above(ended.page)
    listed = CliRunner().invoke(results, ["list", "--results", str(ended.results), "--json"])
    (run,) = json.loads(listed.stdout)
    assert [run[word] for word in ("passed", "failed", "inconclusive", "skipped")] == [2, 1, 1, 0]


def test_inconclusive_in_events_and_junit(runs: dict[str, Ended]) -> None:
    folder = runs["all"].results.parent
    found = events(folder / "events.jsonl")
    (one,) = (e for e in found if e["event"] == "test_finished" and UNDECIDED in e["test"])
    assert one["outcome"] == "inconclusive"
    assert "298 more needed" in one["why"]
    suite = next(ET.parse(folder / "junit.xml").iter("testsuite"))
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "1")
    (mark,) = suite.iter("skipped")
    assert mark.get("type") == "lightrig.inconclusive"
    assert "298 more needed" in mark.get("message", "")


def test_inconclusive_alone_fails_where_that_is_wanted(runs: dict[str, Ended]) -> None:
    """Otherwise the exit status is 0, as of the runs of few samples in runs/test_runs.py."""
    assert runs["strict"].code == 1, runs["strict"].output


def test_html_names_a_page_of_pytest_html_beside_the_report(runs: dict[str, Ended]) -> None:
    ended = runs["strict"]
    folder = ended.results.parent / "html"
    text = (folder / "mine.html").read_text(encoding="utf-8")
    assert "<th>Rack</th>" in text
    (data,) = re.findall(r'data-jsonblob="([^"]*)"', text)
    ((test,),) = json.loads(html.unescape(data))["tests"].values()
    assert test["result"] == "Skipped"  # the page hides outcomes that it does not know
    assert test["resultsTableRow"][2] == "<td>rack seven</td>"
    assert (folder / test["extras"][0]["content"]).read_text() == "read by hand"
    assert f"report   {ended.page}" in ended.output
    ((shown,),) = packed(ended.page)["html"]["tests"].values()
    assert shown["result"] == "Inconclusive"
    assert shown["resultsTableRow"][2] == "<td>rack seven</td>"
    encoded = shown["extras"][0]["content"].partition("base64,")[2]
    assert base64.b64decode(encoded) == b"read by hand"
    assert "1 inconclusive" in above(ended.page)


def test_statements_after_an_undecided_limit_run(runs: dict[str, Ended]) -> None:
    ended = runs["all"]
    (row,) = (json.loads(line) for line in ended.rows if '"own.quantity"' in line)
    record = read_journal(journal_of(ended))
    assert record.contexts[row[0]].conditions["mode"] == "careful"
    assert "this follows a limit without a verdict" in above(ended.page)


def test_inapplicable_tests_are_deselected_in_one_line(runs: dict[str, Ended]) -> None:
    line = (
        "lab: 3 tests not applicable: an odd number (1); for another testbed (1); "
        "no climate chamber (1)"
    )
    ended = runs["all"]
    assert line in ended.output
    assert line in above(ended.page)
    assert "skipped" not in ended.output
    (event,) = (
        e for e in events(ended.results.parent / "events.jsonl") if e["event"] == "tests_deselected"
    )
    assert (event["testbed"], event["tests"]) == ("lab", 3)
    assert event["reasons"]["no climate chamber"] == 1


def test_only_selected_tests_are_counted_as_not_applicable(runs: dict[str, Ended]) -> None:
    ended = runs["inapplicable"]
    assert ended.code == pytest.ExitCode.NO_TESTS_COLLECTED, ended.output
    assert "lab: 1 test not applicable: no climate chamber (1)" in ended.output


def test_foreign_fixture_of_our_name_is_a_clear_error(runs: dict[str, Ended]) -> None:
    ended = runs["foreign"]
    assert outcomes(ended) == {"test_mixed[lab]": "error", "test_theirs": "passed"}
    assert re.search(r"fixture 'testbed' of \S+test_it\.py:4 hides Lightrig's", ended.output)
    assert "Traceback" not in ended.output


def test_full_disk_ends_the_run_in_one_sentence(runs: dict[str, Ended]) -> None:
    ended = runs["full"]
    assert ended.code == 3, ended.output
    assert ended.output.count("No space left on device") == 1, ended.output
    assert "INTERNALERROR" not in ended.output
    assert "nothing more can be recorded: " in ended.output


def test_workers_share_one_run(runs: dict[str, Ended]) -> None:
    ended = runs["workers"]
    assert ended.code == 1, ended.output
    record = read_journal(journal_of(ended))  # there is one only
    assert record.complete
    assert len(record.tests) == 2 * (4 + 2 + 2)
    assert {context.testbed for context in record.contexts.values()} == {"lab", "lab-two"}
    assert {found.name for found in journal_of(ended).parent.glob("journal*")} == {"journal.jsonl"}
    assert "16/16  " in ended.output
    for name in ("lab", "lab-two"):
        assert f"{name}: 3 tests not applicable: " in ended.output
    found = events(ended.results.parent / "workers.jsonl")
    assert sum(event["event"] == "verdict" for event in found) >= 2
    assert any(event["event"] == "quantity" for event in found)
    (total,) = (event["tests"] for event in found if event["event"] == "tests_collected")
    assert total == 16


def test_rows_of_a_testbed_are_the_same_with_workers(runs: dict[str, Ended]) -> None:
    """A testbed stays on one worker, so its simulated world sees the same commands."""
    alone, shared = (
        {
            (context.test.rpartition("::")[2], row.quantity): row.value
            for context, row in read_journal(journal_of(runs[name])).rows()
            if context.testbed == "lab" and "test_undecided[" in context.test
            if row.quantity.startswith("reconfiguration.")
        }
        for name in ("all", "workers")
    )
    assert set(alone) == set(shared)


# ------------------------------------------------------------------------- default testbeds


def collected(*arguments: str) -> str:
    """Collect the tests of the checkout in a process of its own, since it has conftest.py files."""
    done = preloaded.run(["pytest", "--collect-only", "-q", *arguments, *QUIET], cwd=ROOT)
    return done.stdout + done.stderr


def test_option_precedes_environment_and_environment_the_configuration(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("by-option", "by-environment", "by-ini"):
        described = describe(pytester.path).read_text().replace("name: lab", f"name: {name}", 1)
        (pytester.path / f"{name}.yaml").write_text(described)
    pytester.makeini("[pytest]\nlightrig_testbed = by-ini.yaml\n")
    pytester.makepyfile(test_it="def test_it(testbed): ...\n")
    assert "test_it[by-ini]" in pytester.runpytest("--collect-only", "-q").stdout.str()
    monkeypatch.setenv("LIGHTRIG_TESTBED", "by-environment.yaml")
    assert "test_it[by-environment]" in pytester.runpytest("--collect-only", "-q").stdout.str()
    option = ("--testbed", "by-option.yaml")
    assert "test_it[by-option]" in pytester.runpytest("--collect-only", "-q", *option).stdout.str()


def test_a_checkout_has_a_default_for_its_suites_alone() -> None:
    suite = "suites/test_conformance.py"
    assert f"{suite}::test_every_instrument_identifies_itself[opus]" in collected(suite)
    assert "not applicable" not in collected("tests/plugin/test_live_parts.py")


def test_default_of_a_checkout_is_simulated(tmp_path: Path) -> None:
    with started(("suites/test_conformance.py", "-k", "identifies"), tmp_path / "results") as run:
        ended = run.end()
    assert ended.code == 0, ended.output
    header = read_journal(journal_of(ended)).header
    assert header["instruments"] == "simulated"
    assert list(header["testbeds"]) == ["opus"]
