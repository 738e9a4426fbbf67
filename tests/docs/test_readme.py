"""The README, and pages that began in it, are true: testbed, suite, options, links."""

import os
import re
from html import unescape
from pathlib import Path

import preloaded
import pytest

from lightrig.harness.record import Context, Journal, Row
from lightrig.harness.report.nights import write_nights
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


def test_the_first_screens_have_installation_suite_and_card():
    lines = README.splitlines()
    assert len(lines) <= 100
    first = "\n".join(lines[:60])
    assert "pip install ." in first
    assert _block("python", first) == _block("python", SUITE)
    assert "Next: " in _block("text", first)
    assert re.findall(r"!\[.*\]\((.*)\)", README) == ["docs/pictures/report.png"]


def test_the_table_is_short_and_leads_to_one_page_a_row():
    rows = [line for line in README.splitlines() if line.startswith("| ")][2:]
    assert 0 < len(rows) <= 8
    assert {len(re.findall(r"\]\(", row)) for row in rows} == {1}


@pytest.mark.long
def test_the_card_is_that_of_a_planted_fault(tmp_path):
    """Three nights without it and three with it, of the README's own testbed."""
    environment = {**os.environ, "LIGHTRIG_STATE": str(tmp_path)}
    file = tmp_path / "mine.yaml"
    fault = "{fault: dirty connector, at: [server0.nic0.p1], loss: 1.2 dB}"
    for night in range(1, 7):
        planted = f"simulation:\n  faults:\n    - {fault}\n" if night > 3 else ""
        file.write_text(_block("yaml", README) + planted)
        command = (
            *("pytest", ROOT / "suites" / "test_insertion_loss.py", "--rootdir", tmp_path),
            *("--testbed", file, "--instruments", "simulated", "--seed", night),
            *("--results", tmp_path / "results", "--run-name", f"2026030{night}-020000-mine"),
        )
        ended = preloaded.run([*map(str, command)], cwd=tmp_path, env=environment)
        assert ended.returncode == (night > 3), ended.stdout
    page = write_nights(tmp_path / "results", tmp_path / "nights.html").read_text()
    found = re.search(r'<section class="lr-head lr-causes".*?</section>', page, re.DOTALL)
    assert found is not None
    card = " ".join(unescape(re.sub("<[^>]+>", " ", found[0])).split()).replace(" ,", ",")
    title, since, evidence, *step = _block("text", README).splitlines()[:5]
    for shown in (*re.split(r"  +|, ", title), since, *evidence.split("  "), " ".join(step)):
        assert " ".join(shown.split()) in card


def test_the_query_of_the_results_readme_runs(tmp_path, monkeypatch):
    import duckdb

    from lightrig.harness.record import write_dataset

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
