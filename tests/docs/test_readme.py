"""The README, and pages that began in it, are true: testbed, suite, options, table, links.

Run as a program, it writes the table of instruments anew.
"""

import re
from pathlib import Path

import duckdb
import preloaded
import pytest

from lightrig.harness.record import Context, Journal, Row, write_dataset
from lightrig.instruments.core.models import models
from lightrig.instruments.core.registry import driver
from lightrig.testbeds import load

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MEASURE = (ROOT / "docs" / "how-to" / "measure.md").read_text()
SUITE = (ROOT / "docs" / "how-to" / "write-a-suite.md").read_text()
INSTRUMENTS = ROOT / "docs" / "devices.md"
TABLE = re.compile(r"\| kind \| `model:` \|.*?\n\n", re.DOTALL)
OURS = "lightrig."
"""Start of the modules of Lightrig's own drivers; other packages may be installed here."""


def instruments() -> str:
    """Return the table of models: kind, name and address schemes of each driver."""
    rows = []
    for model, entry in models().items():
        if entry.value.startswith(OURS):
            package = entry.value.split(".")[2]
            kind = {"switches": "optical switch"}.get(package, package.removesuffix("s"))
            schemes = ", ".join(f"`{scheme}://`" for scheme in driver(model).schemes)
            rows.append(f"| {kind.replace('_', ' ')} | `{model}` | {schemes} |")
    return (
        "\n".join(["| kind | `model:` | `address:` |", "| --- | --- | --- |", *sorted(rows)])
        + "\n\n"
    )


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


def test_the_table_of_instruments_is_that_of_the_drivers():
    shown = TABLE.search(INSTRUMENTS.read_text())
    assert shown is not None
    assert shown[0] == instruments(), f"run: python {Path(__file__).relative_to(ROOT)}"


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


if __name__ == "__main__":
    page = INSTRUMENTS.read_text(encoding="utf-8")
    INSTRUMENTS.write_text(TABLE.sub(lambda _: instruments(), page), encoding="utf-8")
