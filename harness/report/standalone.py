"""A run's page from its journal alone, for a run that was killed before pytest-html wrote one."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from harness.record import RunRecord, TestOutcome
from harness.report.document import Results, added, document
from harness.report.frames import collect
from harness.report.markup import text
from harness.report.page import card_ids, sections
from testbeds import Testbed, format_duration

TITLE = "Lightrig"


def write_page(record: RunRecord, testbeds: Mapping[str, Testbed], path: Path) -> None:
    """Write the page of `record` to `path`: what was measured, and every test that has ended.

    testbeds: the descriptions, by the names that the record uses; one that is missing is said
    on the page. The file appears whole or not at all. Raises `OSError` if it cannot be written.
    """
    run = collect(record)
    cards = card_ids(testbeds, run)
    tests: dict[str, list[dict[str, object]]] = {}
    more = {}
    for test in record.tests:
        tests.setdefault(test.nodeid, []).append(_as_pytest_html(test))
        more[test.nodeid] = added(test.outcome, test.details)
        if test.nodeid in cards:
            more[test.nodeid]["card"] = cards[test.nodeid]
    counts = Counter(test.outcome for test in record.tests)
    results = Results(counts, json.dumps({"tests": tests, "environment": {}}), more)
    about = f"run {text(record.header.get('run', '?'))}, made from its journal"
    page = document(TITLE, about, sections(record, testbeds, run), results)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(page, encoding="utf-8", errors="replace")
    draft.replace(path)


def _as_pytest_html(test: TestOutcome) -> dict[str, object]:
    log = test.details.get("log", "")
    return {
        "result": test.outcome.capitalize(),
        "testId": test.nodeid,
        "duration": format_duration(test.duration_s * 1e9),
        "ms": test.duration_s * 1e3,
        "log": text(log) if isinstance(log, str) else "",
        "extras": [],
    }
