"""The report in the run's folder, from the tests that pytest-html collects.

pytest-html's own page draws every test when it opens, which takes ten seconds for five
thousand. Its data, hooks and options are used. Its page is written where `--html` names one;
otherwise it would be the run's report, which replaces it at the end of the run.
"""

import base64
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from lightrig.harness.plugin.keys import TESTBEDS
from lightrig.harness.plugin.outcomes import RERUN_OUTCOME, Outcomes
from lightrig.harness.record import RunRecord
from lightrig.harness.record.places import appearing
from lightrig.harness.report import RunFrame, card_ids, collect, sections, write_page
from lightrig.harness.report.causes import found_at_begin, parts_of_plans, run_causes
from lightrig.harness.report.markup import number_of
from lightrig.harness.report.run_page import TITLE, Results, banner, document, of_run, title_of
from lightrig.harness.run import ObservedRun
from lightrig.instruments.clock import wall_time
from lightrig.testbeds import format_duration
from lightrig.testbeds.escaping import escape_control

_INCONCLUSIVE, _SKIPPED = "Inconclusive", "Skipped"


class Page:
    """pytest-html's hooks, and the page of the run.

    `path` is where the page is written, None if no page is requested. `_requested` is the page of
    pytest-html that `--html` names, if any; it is left to pytest-html.
    """

    def __init__(self, config: pytest.Config, run: ObservedRun, outcomes: Outcomes) -> None:
        self._config = config
        self._run = run
        self._outcomes = outcomes
        self._read: tuple[RunRecord, RunFrame] | None = None
        self._written = False
        self._html: Any = None
        self.path: Path | None = None
        self._requested: Path | None = None
        if config.pluginmanager.hasplugin("html"):
            self.path = Path(run.report)
            if config.option.htmlpath:
                named = Path(os.path.expandvars(config.option.htmlpath)).expanduser()
                self._requested = Path.cwd() / named
            else:
                config.option.htmlpath = str(run.report)
                config.option.self_contained_html = True

    @property
    def is_to_come(self) -> bool:
        """Whether the page is there, if only as pytest-html's, or is written at the end."""
        return self._requested is not None or (self.path is not None and self.path.exists())

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

    # ------------------------------------------------------------------ pytest-html's hooks

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_report_title(self, report: Any) -> None:
        """Name the page."""
        if self._requested is None:
            report.title = TITLE
        self._html = report

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
        if self._requested is None:
            prefix.append(self._measured())

    def _measured(self) -> Markup:
        try:
            record, frame = self._whole()
            return sections(record, self._described, frame)
        except Exception as error:  # a report without this part is better than none
            problem = f"what was measured cannot be shown: {type(error).__name__}: {error}"
            print(escape_control(f"lightrig: {problem}"), file=sys.stderr)
            return banner([problem])

    def _data(self, report: Any) -> Any:
        """Return pytest-html's data with the files beside the requested page embedded.

        For pytest-html inconclusive tests are skipped.
        """
        for test, reruns in self._outcomes.reruns.items():
            # pytest-html adds an attempt again with each later one.
            entries = report.data["tests"].get(test, [])
            again = [entry for entry in entries if entry["result"] == RERUN_OUTCOME.capitalize()]
            report.data["tests"][test] = [
                entry for entry in entries if all(entry is not one for one in again[: -len(reruns)])
            ]
        data = report.data if self._requested is None else json.loads(json.dumps(report.data))
        for test in self._outcomes.inconclusive:
            for entry in data["tests"].get(test, []):
                if entry.get("result") == _SKIPPED:
                    entry["result"] = _INCONCLUSIVE
                    row = entry["resultsTableRow"]
                    row[0] = row[0].replace(_SKIPPED, _INCONCLUSIVE)
        if self._requested is None:
            return data
        for entries in data["tests"].values():
            for entry in entries:
                for extra in entry["extras"]:
                    if str(extra["content"]).startswith("assets/"):
                        file = self._requested.parent / extra["content"]
                        content = base64.b64encode(file.read_bytes()).decode()
                        extra["content"] = f"data:{extra['mime_type']};base64,{content}"
        return data

    def _replace(self) -> None:
        """Write `document` of pytest-html's data, if it has written its page."""
        report = self._html
        if self.path is None or report is None or report.running_state != "finished":
            return
        added = self._outcomes.added
        measured = self._measured() if self._requested is not None else ""
        if self._read is not None:
            for test, card in card_ids(self._described, self.frame).items():
                if test in added:
                    added[test]["card"] = card
        for test, reruns in self._outcomes.reruns.items():
            added.setdefault(test, {})["attempts"] = len(reruns) + 1
        counts = Counter({name: found["value"] for name, found in report.outcomes.items()})
        if self._outcomes.reruns:
            counts[RERUN_OUTCOME] = sum(map(len, self._outcomes.reruns.values()))
        undecided = len(self._outcomes.inconclusive)
        counts.update(inconclusive=undecided, skipped=-undecided)
        extra = report.additional_summary
        body = "".join(part for place in ("prefix", "summary", "postfix") for part in extra[place])
        duration = format_duration(report.total_duration * 1e9)
        ended = sum(counts.values()) - counts["skipped"] - counts[RERUN_OUTCOME]
        tests = number_of(ended, "test")
        about = (
            f"{of_run(self._run.name, self._described)}. {tests} took {duration}. "
            f"Made {wall_time():%F %T} UTC."
        )
        css = "".join(
            Path(os.path.expandvars(file)).expanduser().read_text(encoding="utf-8")
            for file in self._config.getoption("css")
        )
        results = Results(counts, json.dumps(self._data(report)), added)
        # Not added: markup escapes text that is added to it, and the hooks give plain strings.
        body = f"{banner(self._run.failures_to_restore)}{measured}{body}"
        # Another title is that of a conftest.py, by pytest-html's hook.
        title = report.title
        if title == (self._requested.name if self._requested else TITLE):
            title = title_of(self._run.name, self._described)
        causes = ""
        if self._read is not None:
            found = found_at_begin(self._run.folder, self._described)
            record = self._read[0]
            parts = parts_of_plans(record.header)
            causes = run_causes(record.tests, self._described, self.frame, found, parts)
        page = document(title, about, body, results, css, causes)
        with appearing(self.path) as draft:
            draft.write_text(page, encoding="utf-8", errors="replace")
        self._written = True

    def withdraw(self) -> None:
        """Let nothing name a page in the folder of a run that is discarded."""
        path, self.path = self.path, None
        if path is None or self._requested is not None:
            return
        from pytest_html.basereport import BaseReport  # noqa: PLC0415 - it may be absent

        for plugin in self._config.pluginmanager.get_plugins():
            if isinstance(plugin, BaseReport):
                self._config.pluginmanager.unregister(plugin)

    def finish(self) -> None:
        """Write the page, from the journal if pytest-html could not; raises `OSError`."""
        self._replace()
        if self.path is not None and not self._written:
            failures = self._run.failures_to_restore
            write_page(self._run.record(), self._described, self.path, failures)
