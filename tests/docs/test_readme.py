"""The README, and pages that began in it, are true: testbed, suite, options, links."""

import re
from pathlib import Path

import duckdb
import preloaded
import pytest

from lightrig.harness.record import Context, Journal, Row, write_dataset
from lightrig.testbeds import load

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MEASURE = (ROOT / "docs" / "how-to" / "measure.md").read_text()
SUITE = (ROOT / "docs" / "how-to" / "write-a-suite.md").read_text()


def _block(language: str, page: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert match is not None
    return match[1]


def test_the_testbed_is_right_and_closes_its_links(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(_block("yaml", README))
    testbed = load(file)
    assert [len(testbed.links(plan)) for plan in testbed.plans] == [2, 2]


def test_the_suite_is_the_one_that_runs():
    shown = _block("python", SUITE).splitlines()
    suite = (ROOT / "suites" / "test_reconfiguration.py").read_text()
    assert shown[0] in suite
    assert "\n".join(shown[2:]).strip() in suite


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"(?:`|^)make (\w+)", README + MEASURE, re.MULTILINE)))
)
def test_every_make_target_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_every_option_exists():
    help_text = preloaded.run(["pytest", "--help"]).stdout
    options = MEASURE.partition("## Options\n")[2].partition("\n## ")[0]
    assert options.count("`--") >= 10
    for option in re.findall(r"`(--[a-z]+)", options):
        assert option in help_text


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", README))
def test_every_link_leads_somewhere(link):
    assert (ROOT / link).exists()


def test_it_has_two_screens_with_a_picture_and_a_screenshot():
    assert len(README.splitlines()) <= 100
    assert re.findall(r"!\[.*\]\((.*)\)", README) == [
        "docs/pictures/architecture.svg",
        "docs/pictures/report.png",
    ]


def test_the_query_of_the_results_readme_runs(tmp_path, monkeypatch):
    text = (ROOT / "results" / "README.md").read_text()
    query = re.search(r"    SELECT.*?ALL", text, re.DOTALL)
    assert query is not None
    journal = Journal(tmp_path / "j.jsonl", {"run": "r1", "night": "2026-03-14"})
    row = Row("opus", "reconfiguration.signal_recovered", 40, 30, 50, "ns", 0)
    journal.append(Context("opus", "t", ("ocs",), True), row)
    journal.close()
    write_dataset(tmp_path / "j.jsonl", tmp_path / "results" / "rows")
    monkeypatch.chdir(tmp_path)
    assert duckdb.sql(query[0]).fetchall() == [
        ("opus", "reconfiguration.signal_recovered", 1, 40.0)
    ]
