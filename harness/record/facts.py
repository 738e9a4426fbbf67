"""What there is to know of a run without reading its rows: the file `run.json` in its folder.

It is written last, when everything else of the run is where it belongs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from harness.record.errors import RecordError, RowError
from harness.record.files import appearing
from harness.record.outcome import TestOutcome
from harness.record.reading import RunRecord

FACTS_SCHEMA = 1
FACTS = "run.json"

State: TypeAlias = Literal["complete", "recovered", "ended", "killed", "running"]


@dataclass(frozen=True, slots=True)
class Measured:
    """How many rows a run has of a testbed, and whether anything simulated took part in one."""

    rows: int
    simulated: bool


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run in short.

    state: "complete", it ended by itself; "recovered", it did not; in both the data set has its
        rows. "ended" and "killed" are the same before that, "running" is before either.
    torn: whether a row or test was cut short by a kill, and is left out.
    testbeds: those it was given; None for one that has no rows.
    tests: how each ended, without details; None if the run is older than such lines.
    header, summary: as in its journal.
    """

    state: State
    torn: bool
    testbeds: Mapping[str, Measured | None]
    tests: tuple[TestOutcome, ...] | None
    header: Mapping[str, Any]
    summary: Mapping[str, Any] | None

    @property
    def run(self) -> str:
        """The run's name; names sort by the time that runs began."""
        return str(self.header["run"])

    @property
    def night(self) -> str:
        """The date that it counts for, YYYY-MM-DD."""
        return str(self.header["night"])

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(found.rows for found in self.testbeds.values() if found)

    @property
    def simulated(self) -> bool | None:
        """Whether anything simulated took part in any row; None without rows."""
        found = [each.simulated for each in self.testbeds.values() if each]
        return any(found) if found else None

    @property
    def duration_s(self) -> float | None:
        """How long it took, in seconds; None if nobody was left to say."""
        said = (self.summary or {}).get("duration_s")
        return float(said) if isinstance(said, int | float) else None

    def count(self, *outcomes: str) -> int | None:
        """How many tests ended so, by the last word on each; None if that is unknown."""
        if self.tests is None:
            return None
        last = {test.nodeid: test.outcome for test in self.tests}
        return sum(outcome in outcomes for outcome in last.values())


def facts_of(record: RunRecord, state: State) -> RunFacts:
    """What the journal says in short."""
    testbeds: dict[str, Measured | None] = dict.fromkeys(record.header.get("testbeds", {}))
    for number, context in record.contexts.items():
        known = testbeds.get(context.testbed) or Measured(0, simulated=False)
        testbeds[context.testbed] = Measured(
            known.rows + record.counts[number], known.simulated or context.simulated
        )
    tests = None
    if record.header["schema"] > 1:
        tests = tuple(TestOutcome(t.nodeid, t.outcome, t.duration_s) for t in record.tests)
    return RunFacts(state, record.torn, testbeds, tests, record.header, record.summary)


def write_facts(facts: RunFacts, folder: Path) -> None:
    """Write `run.json` into `folder`; raises `RecordError` if that cannot be done."""
    document = {
        "schema": FACTS_SCHEMA,
        "state": facts.state,
        "torn": facts.torn,
        "testbeds": {
            name: found and {"rows": found.rows, "simulated": found.simulated}
            for name, found in facts.testbeds.items()
        },
        "tests": None
        if facts.tests is None
        else [[test.nodeid, test.outcome, test.duration_s] for test in facts.tests],
        "header": facts.header,
        "summary": facts.summary,
    }
    try:
        with appearing(folder / FACTS) as hidden:
            hidden.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        raise RecordError(f"{folder / FACTS}: {error.strerror}") from error


def parse_facts(name: str, text: bytes) -> RunFacts:
    """Read a `run.json`; raises `RecordError` with `name` if it is none."""
    try:
        document = json.loads(text)
        if document["schema"] != FACTS_SCHEMA:
            raise RecordError(
                f"{name}: found schema {document['schema']}, expected {FACTS_SCHEMA}; "
                "read it with the version of Lightrig that wrote it"
            )
        tests = document["tests"]
        return RunFacts(
            document["state"],
            document["torn"],
            {name: found and Measured(**found) for name, found in document["testbeds"].items()},
            None if tests is None else tuple(TestOutcome(*test) for test in tests),
            document["header"],
            document["summary"],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RowError) as error:
        raise RecordError(f"{name} is damaged: {error!r}") from error
