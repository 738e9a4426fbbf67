"""The report: pytest-html collects the tests, and what is shown of them is ours.

pytest-html's own page draws every test when it opens, which takes ten seconds for five
thousand; its data, hooks and options are kept, and `document` is the template in its place.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.plugin.keys import TESTBEDS
from harness.plugin.observed import ObservedRun
from harness.plugin.outcomes import Outcomes
from harness.record import RunRecord
from harness.report import RunFrame, card_ids, collect, sections, write_page
from harness.report.document import Results, document
from harness.report.markup import text
from harness.report.standalone import TITLE


class Page:
    """pytest-html's hooks and, in its place, the page.

    `path` is where the page is written, None if nobody wants one.
    """

    def __init__(self, config: pytest.Config, run: ObservedRun, outcomes: Outcomes) -> None:
        self._config = config
        self._run = run
        self._outcomes = outcomes
        self._read: tuple[RunRecord, RunFrame] | None = None
        self._written = False
        self.path: Path | None = None
        if config.pluginmanager.hasplugin("html"):
            if not config.option.htmlpath:
                config.option.htmlpath = str(run.report)
                config.option.self_contained_html = True
            self.path = Path.cwd() / Path(os.path.expandvars(config.option.htmlpath)).expanduser()

    @property
    def frame(self) -> RunFrame:
        """The run's rows, read once, when all of them are there."""
        return self._whole()[1]

    def _whole(self) -> tuple[RunRecord, RunFrame]:
        if self._read is None:
            record = self._run.record()
            self._read = record, collect(record)
        return self._read

    @property
    def _described(self) -> dict[str, Any]:
        return {testbed.name: testbed for testbed in self._config.stash[TESTBEDS]}

    def pytest_sessionstart(self) -> None:
        """Take the template's place."""
        if self.path is None:
            return
        from pytest_html.basereport import BaseReport  # noqa: PLC0415 - it may be absent

        for plugin in self._config.pluginmanager.get_plugins():
            if isinstance(plugin, BaseReport):
                plugin._template = self  # noqa: SLF001 - no public way; tried by a test

    def ensure(self) -> None:
        """Write the page from the journal if pytest-html could not; raises `OSError`."""
        if self.path is not None and not self._written:
            write_page(self._run.record(), self._described, self.path)

    # ------------------------------------------------------------------ pytest-html's hooks

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_report_title(self, report: Any) -> None:
        """Name the page."""
        report.title = TITLE

    @pytest.hookimpl(optionalhook=True, trylast=True)
    def pytest_html_results_table_row(self, report: Any, cells: list[str]) -> None:
        """Drop the rows of set-ups and tear-downs that passed, which the page never shows.

        They are two of three; a tear-down that said something adds it to its test's log.
        """
        if report.when not in {"setup", "teardown"} or not report.passed:
            return
        if report.when == "setup" or not any("teardown" in title for title, _ in report.sections):
            cells.clear()

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_summary(self, prefix: list[str]) -> None:
        """Put what was measured on top."""
        try:
            record, frame = self._whole()
            prefix.append(sections(record, self._described, frame))
        except Exception as error:  # a report without this part is better than none
            problem = f"what was measured cannot be shown: {type(error).__name__}: {error}"
            print(f"lightrig: {problem}", file=sys.stderr)
            prefix.append(f'<p class="lr-warn" role="alert">{text(problem)}</p>')

    def render(self, **context: Any) -> str:
        """The page, as pytest-html asks its template for it."""
        added = self._outcomes.added
        if self._read is not None:
            for test, card in card_ids(self._described, self.frame).items():
                if test in added:
                    added[test]["card"] = card
        self._written = context["running_state"] == "finished"
        counts = {name: found["value"] for name, found in context["outcomes"].items()}
        extra = context["additional_summary"]
        body = "".join(part for place in ("prefix", "summary", "postfix") for part in extra[place])
        about = (
            f"{text(context['run_count'])} Made {text(context['date'])}, {text(context['time'])}, "
            f"with pytest-html {text(context['version'])}."
        )
        css = "".join(
            Path(file).expanduser().read_text(encoding="utf-8") for file in self._config.option.css
        )
        results = Results(Counter(counts), context["test_data"], added)
        return document(context["title"], about, body, results, css)
