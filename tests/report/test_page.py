"""Is the fragment whole, safe, self-contained, and does it warn of what is missing?"""

import re
import xml.etree.ElementTree as ET
from html import unescape

import pytest
from report_runs import context, rows

from lightrig.harness.record import Row, read_journal
from lightrig.harness.report import sections
from lightrig.harness.report.run_page import Results, document, of_run, title_of


def test_fragment_is_well_formed_and_its_ids_are_unique(show):
    page = show((context(), rows("small", 20)), (context(moving=2), rows("small", 9)))
    assert len(set(page.ids)) == len(page.ids)
    assert all(one.startswith("lr-") for one in page.ids)
    assert all(one.startswith("lr-") for one in page.classes)
    drawings = re.findall(r"<svg.*?</svg>", page.fragment, re.DOTALL)
    assert drawings
    for drawing in drawings:
        ET.fromstring(drawing)
    used = re.findall(r'(?:url\(#|href="#|for=")([^")]+)', page.fragment)
    tests = {one for one in used if one.startswith("test=")}  # the page's script follows these
    assert tests
    assert set(used) - tests <= set(page.ids)


def test_nothing_is_loaded_and_nothing_runs(show):
    page = show((context(), rows("small", 20)))
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert all(reference.startswith("#") for reference in page.references)
    assert not re.search(r"https?:|@import|url\((?!#)", page.fragment)
    assert " on" not in re.sub(r'"[^"]*"|>[^<]*', "", page.fragment)


def test_equal_records_give_equal_bytes(show, journal, small):
    page = show((context(), rows("small", 20)))
    assert sections(read_journal(journal.path), {"small": small}) == page.fragment


def test_text_from_files_is_escaped(show):
    evil = "<script>alert('x')</script>\"&"
    page = show((context(evil, f"test_{evil}", note=evil), rows(evil, 5)))
    assert "script" not in page.tags
    assert evil in page.text
    assert f"event 2 of {evil}" in " ".join(page.labelled)
    assert "No description of this testbed" in page.text


def test_run_is_named_by_its_header(show):
    text = show((context(), rows("small", 2))).text
    assert "run r1 night 2026-03-14 instruments simulated seed 7" in text
    assert "36 rows of 1 testbed" in text


@pytest.mark.parametrize("close", [True, False])
def test_record_without_end_is_warned_of(show, close):
    page = show((context(), rows("small", 2)), close=close)
    assert ("The record is incomplete" in page.text) is not close
    assert ("lr-warn" in page.classes) is not close


def test_torn_journal_is_warned_of(journal, show):
    journal.append_many(context(), rows("small", 3))
    with journal.path.open("a") as file:
        file.write('[0,"small","reconf')
    text = show(close=False).text
    assert "The journal is torn" in text
    assert "median of" not in text  # of three events there is none
    assert "signal recovered" in text


def test_damaged_journal_is_shown_as_far_as_it_goes(journal, show):
    journal.append_many(context(), rows("small", 3))
    with journal.path.open("a") as file:
        file.write("[0,7]\n")
    journal.append_many(context(), rows("small", 3))
    text = show().text
    assert "The journal is damaged" in text
    assert "signal recovered" in text


def test_testbed_without_rows_is_drawn_all_the_same(show):
    page = show()
    assert "No rows in this run." in page.text
    assert "Wiring of small: 8 fibers" in page.labelled
    assert "Limits without a measurement" in page.text


@pytest.mark.long
def test_large_run_stays_small(show):
    parts = [(context(moving=n), list(rows("small", 300))) for n in range(12)]
    assert len(show(*parts).fragment) < 1_500_000


def test_closure_is_folded_where_the_lab_s_sections_are_not(show):
    closed = [Row("small", "closure.carrier_up", 1.0, 1.0, 1.0, "1", 0, {"closed": 1, "n": 4})]
    page = show((context(), [*rows("small", 20), *closed]))
    folds = dict(
        re.findall(r'<details class="lr-section" id="lr-0-([a-z]+)"( open)?', page.fragment)
    )
    assert folds == {"reconfiguration": " open", "outage": " open", "closure": ""}


def test_legends_name_the_tests_of_their_section_alone(show):
    lossy = [Row("ocs 1>5", "insertion_loss", 1.0, 1.0, 1.0, "dB", 0)]
    page = show((context(), rows("small", 20)), (context(test="test_losses"), lossy))
    legends = re.findall(r'<ul class="lr-legend">.*?</ul>', page.fragment, re.DOTALL)
    assert "moves" in legends[0]
    assert not any("losses" in legend for legend in legends)


def test_failures_by_one_limit_are_one_item():
    over = "carrier_up p99 <= 1 s: {} of 40 samples exceed the limit"
    reasons = [over.format(40), "ocs.5: dirty connector", over.format(31), "ocs.7: dirty connector"]
    added = {f"t.py::test[lab/{n}]": {"wrong": True, "why": why} for n, why in enumerate(reasons)}
    page = document("a", "b", "", Results({"failed": 4}, "{}", added))
    (listed,) = re.findall(r'<ul class="lr-wrong">.*?</nav>', page, re.DOTALL)
    assert [unescape(listed).count(why) for why in reasons] == [1, 1, 0, 1]
    assert "<summary>1 more test fails alike</summary>" in listed
    assert all(f"t.py::test[lab/{n}]</a>" in listed for n in range(4))


def test_inconclusive_tests_are_named_after_failures():
    undecided = {"undecided": True, "why": "carrier_up: 3 of 5 samples are missing"}
    failed = {"wrong": True, "why": "ocs.5: dirty connector"}
    results = Results(
        {"failed": 1, "inconclusive": 1}, "{}", {"t.py::few[a]": undecided, "t.py::b": failed}
    )
    page = document("a", of_run("20260314-1", ["mixnet", "opus"]), "", results)
    assert "Run 20260314-1 of mixnet, opus" in page
    listed = unescape(page[: page.index("</nav>")])
    assert listed.index("ocs.5: dirty connector") < listed.index("carrier_up: 3 of 5 samples")
    (few,) = re.findall(r'<ul class="lr-undecided">.*?</ul>', page, re.DOTALL)
    assert f"<summary>1 inconclusive test</summary>{few}" in page
    assert "t.py::few[a]</a>" in few


@pytest.mark.parametrize(
    ("run", "testbeds", "title"),
    [
        ("20260314-021500-a1b2c3", ["mixnet", "opus"], "mixnet, opus, 2026-03-14"),
        ("before-the-move", ["opus"], "opus"),
        ("20260314-021500-a1b2c3", [], "Lightrig, 2026-03-14"),
    ],
)
def test_a_page_is_titled_with_its_testbeds_and_date(run, testbeds, title):
    assert title_of(run, testbeds) == title
