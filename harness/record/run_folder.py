"""The folder of a run: its facts, descriptions of its testbeds, quantities, and publication.

`run.json` has the facts of a run, so that nobody needs to read its rows for them; it is written
last, when everything else is in place. The descriptions let the report be made again; they name
where credentials are, never the credentials.

A journal must be on a disk of its machine to survive a kill, and an object store has no
appending: a run is recorded locally first, and published (copied) when it has ended.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, overload

from lightrig.harness.quantities.registry import names_in_files
from lightrig.harness.quantities.stored import (
    StoredQuantitiesError,
    declare_from,
    stored_quantities,
)
from lightrig.harness.record.digests import (
    checked_digests,
    digest_of,
    with_digest,
    without_digest,
)
from lightrig.harness.record.journal import check_header
from lightrig.harness.record.journal_reading import RunRecord
from lightrig.harness.record.places import Place, appearing
from lightrig.harness.record.row import RecordError, RowError, TestOutcome
from lightrig.harness.record.rows_files import BY_HAND, ROWS
from lightrig.testbeds import Testbed, TestbedError, load
from lightrig.testbeds.baselines import baselines_path
from lightrig.testbeds.exceptions import exceptions_path
from lightrig.testbeds.regular_files import open_regular, read_regular
from lightrig.testbeds.yaml_positions import read

# ------------------------------------------------------------------------------------------- facts


FACTS_SCHEMA = 1
FACTS = "run.json"
PORTS = "ports.json"
FINDINGS = "findings.json"
TRACES = "traces"
"""Folder of the traffic of tests, one folder a test in it, with a recording an instrument."""
OPENING = "opening of the testbed"
"""Stands for a test there where the instruments could not be opened."""

State: TypeAlias = Literal["complete", "interrupted", "recovered", "ended", "killed", "running"]
SETTLED: frozenset[State] = frozenset(("complete", "interrupted", "recovered"))
"""States of runs whose rows are in the data set."""


_SECONDS = 1 << 62
"""No duration is as long."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Number of rows of a run on one testbed, and whether anything simulated took part.

    Raises `RowError` for values of another type.
    """

    rows: int
    simulated: bool

    def __post_init__(self) -> None:
        if type(self.rows) is not int or self.rows < 0 or type(self.simulated) is not bool:
            raise RowError(f"found {self.rows!r} rows, simulated {self.simulated!r}")


class Outcomes(Sequence[TestOutcome]):
    """Outcomes of tests, without details: kept as plain values, since a year has millions.

    Raises `RowError` for what no `TestOutcome` may hold, and `TypeError` for lines of another
    shape.
    """

    def __init__(self, lines: Iterable[Sequence[Any]]) -> None:
        lines = list(lines)
        try:
            nodeids, outcomes, durations = zip(*lines, strict=True) if lines else ((), (), ())
            texts = "".join((*nodeids, *outcomes))
            plain = texts.isascii() and all(nodeids) and all(outcomes)
            plain = plain and {*map(type, durations)} <= {int, float}
            plain = plain and min(durations, default=0) >= 0 and math.isfinite(sum(durations))
            plain = plain and max(durations, default=0) < _SECONDS
        except (ValueError, TypeError, OverflowError):
            plain = False
        if not plain:  # what is not plainly right is checked line by line
            tests = [TestOutcome(*line) for line in lines]
            nodeids = tuple(test.nodeid for test in tests)
            outcomes = tuple(test.outcome for test in tests)
            durations = tuple(test.duration_s for test in tests)
        self.nodeids: tuple[str, ...] = nodeids
        self.outcomes: tuple[str, ...] = outcomes
        self.durations_s: tuple[float, ...] = durations

    def __len__(self) -> int:
        return len(self.nodeids)

    @overload
    def __getitem__(self, index: int) -> TestOutcome: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[TestOutcome]: ...

    def __getitem__(self, index: int | slice) -> TestOutcome | Sequence[TestOutcome]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        return TestOutcome(self.nodeids[index], self.outcomes[index], self.durations_s[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash((self.nodeids, self.outcomes))


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run in short.

    state: "complete", all tests ended; "interrupted", the run closed its journal before they had,
        after Ctrl-C or an error of the lab; "recovered", the process was killed. In these three
        the data set has its rows. "ended" and "killed" are closed and killed runs before that,
        "running" is before either.
    torn: whether a row or test was cut short by a kill, and is left out.
    testbeds: those it was given; None for one that has no rows.
    tests: how each ended, without details; None if the run is older than such lines.
    header, summary: as in its journal.
    damage: lines of its journal that are not what was written, and are left out.
    digests: SHA-256 digest of its rows file of each testbed, as it was written; empty for a run
        that has not ended, or was recorded by an earlier version. With the header they say which
        run it is.
    files: SHA-256 digest of each file of its folder but `run.json`, by its name there; empty as
        `digests`.
    """

    state: State
    torn: bool
    testbeds: Mapping[str, Measured | None]
    tests: Outcomes | None
    header: Mapping[str, Any]
    summary: Mapping[str, Any] | None
    damage: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def run(self) -> str:
        """The run's name; names sort by the time that runs began."""
        return str(self.header["run"])

    @property
    def night(self) -> str:
        """The date that it counts for, YYYY-MM-DD."""
        return str(self.header["night"])

    @property
    def by_hand(self) -> bool:
        """Whether a person measured by hand: it belongs to no night."""
        return bool(self.header.get("by_hand"))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(found.rows for found in self.testbeds.values() if found)

    @property
    def simulated(self) -> bool | None:
        """Whether anything simulated took part in any row; None without rows."""
        found = [each.simulated for each in self.testbeds.values() if each]
        return any(found) if found else None

    @property
    def duration_s(self) -> float | None:
        """Duration in seconds; None if the run did not record its end."""
        duration = (self.summary or {}).get("duration_s")
        return float(duration) if isinstance(duration, int | float) else None

    def count(self, *outcomes: str) -> int | None:
        """Return the number of tests with one of `outcomes`, the last of each; None if unknown."""
        counted = self.counted()
        return None if counted is None else sum(counted[outcome] for outcome in outcomes)

    def counted(self) -> Counter[str] | None:
        """Return the number of tests by outcome, the last of each; None if unknown."""
        if self.tests is None:
            return None
        last = dict(zip(self.tests.nodeids, self.tests.outcomes, strict=True))
        return Counter(last.values())

    def fields(self) -> dict[str, object]:
        """The run as plain values; `failed` counts errors too, no test is counted where unknown."""
        counted = self.counted()  # once, since a run may have thousands of tests

        def count(*outcomes: str) -> int | None:
            return None if counted is None else sum(counted[outcome] for outcome in outcomes)

        return {
            "run": self.run,
            "night": self.night,
            "state": self.state,
            "torn": self.torn,
            "testbeds": list(self.testbeds),
            "simulated": self.simulated,
            "by_hand": self.by_hand,
            "rows": self.rows,
            "passed": count("passed", "xfailed"),
            "failed": count("failed", "error", "xpassed"),
            "inconclusive": count("inconclusive"),
            "skipped": count("skipped"),
            "duration_s": self.duration_s,
            "started": self.header.get("started"),
            "zone": self.header.get("zone"),
            "command": self.header.get("command"),
        }


def state_of(summary: Mapping[str, Any] | None) -> State:
    """The state of a settled run by the closing line of its journal."""
    if summary is None:
        return "recovered"
    return "interrupted" if summary.get("ended") else "complete"


def facts_of(record: RunRecord, state: State) -> RunFacts:
    """Return the facts of a journal."""
    testbeds: dict[str, Measured | None] = dict.fromkeys(record.header.get("testbeds", {}))
    for number, context in record.contexts.items():
        known = testbeds.get(context.testbed) or Measured(0, simulated=False)
        testbeds[context.testbed] = Measured(
            known.rows + record.counts[number], known.simulated or context.simulated
        )
    tests = None
    if record.header["schema"] > 1:
        tests = Outcomes((t.nodeid, t.outcome, t.duration_s) for t in record.tests)
    return RunFacts(
        state=state,
        torn=record.torn,
        testbeds=testbeds,
        tests=tests,
        header=record.header,
        summary=record.summary,
        damage=record.damage,
    )


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
        else list(
            zip(facts.tests.nodeids, facts.tests.outcomes, facts.tests.durations_s, strict=True)
        ),
        "header": facts.header,
        "summary": facts.summary,
        **({"damage": list(facts.damage)} if facts.damage else {}),
        "digests": facts.digests,
        "files": facts.files,
    }
    try:
        with appearing(folder / FACTS, folder.parent.parent) as hidden:
            hidden.write_text(with_digest(document), "utf-8")
    except OSError as error:
        raise RecordError(f"{folder / FACTS}: {error.strerror}") from error


def file_digests(folder: Path) -> dict[str, str]:
    """Return the digests of a run's files for `RunFacts.files`; raises `RecordError`."""
    try:
        return {
            name: digest_of(Path(*folder.parts[-2:], name), folder.parent.parent)
            for parent, _, names in os.walk(folder)
            for name in sorted(Path(parent, one).relative_to(folder).as_posix() for one in names)
            if not re.search(r"(^|/)[.]", name) and name not in (FACTS, PUBLISHED)
        }
    except OSError as error:
        raise RecordError(f"{error.filename}: {error.strerror}") from error


def note_files(folder: Path) -> None:
    """Note in `run.json` the digests of what was written since, such as the page.

    Raises `RecordError`.
    """
    try:
        text = (folder / FACTS).read_bytes()
    except OSError as error:
        raise RecordError(f"{folder / FACTS}: {error.strerror}") from error
    write_facts(replace(parse_facts(str(folder / FACTS), text), files=file_digests(folder)), folder)


def parse_facts(name: str, text: bytes) -> RunFacts:
    """Read a `run.json`; raises `RecordError` with `name` if it is none."""
    try:
        document = without_digest(text)
        if document["schema"] != FACTS_SCHEMA:
            raise RecordError(
                f"{name}: found schema {document['schema']}, expected {FACTS_SCHEMA}; "
                "read it with the version of Lightrig that wrote it"
            )
        tests, state = document["tests"], document["state"]
        if type(document["torn"]) is not bool:
            raise RowError(f"found torn {document['torn']!r}")
        if state not in get_args(State):
            raise RowError(f"found state {state!r}")
        check_header(document["header"])
        if state == "complete":  # before there was "interrupted", these were not told apart
            state = state_of(document["summary"] or {})
        return RunFacts(
            state,
            document["torn"],
            {name: found and Measured(**found) for name, found in document["testbeds"].items()},
            None if tests is None else Outcomes(tests),
            document["header"],
            None if document["summary"] is None else dict(document["summary"]),
            tuple(map(str, [*document.get("damage", ())])),
            checked_digests(document.get("digests", {})),
            checked_digests(document.get("files", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RowError) as error:
        raise RecordError(
            f"{name} is damaged: {error!r}; `lightrig results recover` writes it again from the "
            "run's journal"
        ) from error


# ------------------------------------------------------------------------------------ descriptions


def store_descriptions(files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Copy each testbed's file, those of its plans, baselines and exceptions, below `folder`.

    Returns the path of each file in `folder`, by the name of its testbed. Raises
    `RecordError` for what cannot be read or copied.
    """
    stored = {}
    for name, file in files.items():
        path = Path(os.path.abspath(file))
        try:
            parts = [path, *_referred_to(path)]
        except TestbedError as error:
            raise RecordError(f"{error}, and no run begins without it") from error
        base = Path(os.path.commonpath([part.parent for part in parts]))
        into = Path("testbeds", name)
        for part in parts:
            _copy(part, folder / into / part.relative_to(base))
        stored[name] = str(into / path.relative_to(base))
    return stored


def store_ports(folder: Path, testbed: str, document: Mapping[str, Any]) -> None:
    """Write what the ports of a testbed's servers are set to beside its description.

    Raises `RecordError` for what cannot be written.
    """
    _store(folder / "testbeds" / testbed / PORTS, document)


def store_findings(folder: Path, testbed: str, documents: Sequence[Mapping[str, Any]]) -> None:
    """Write what was found wrong with a testbed before its first test beside its description.

    documents: of `harness.findings.Finding`. Raises `RecordError` for what cannot be written.
    """
    _store(folder / "testbeds" / testbed / FINDINGS, documents)


def load_ports(folder: Path, testbed: str) -> Mapping[str, Any]:
    """Return the document of `store_ports`; an empty one where a run read no ports.

    Raises `RecordError` for a file that is damaged or cannot be read.
    """
    document = _stored(folder / "testbeds" / testbed / PORTS)
    if not isinstance(document, dict | None):
        raise RecordError(f"{folder / 'testbeds' / testbed / PORTS} is damaged: no object")
    return document or {}


def load_findings(folder: Path, testbed: str) -> list[Mapping[str, Any]] | None:
    """Return the documents of `store_findings`; None where a run has not looked.

    Raises `RecordError` for a file that is damaged or cannot be read.
    """
    path = folder / "testbeds" / testbed / FINDINGS
    documents = _stored(path)
    if documents is None:
        return None
    if not isinstance(documents, list) or not all(isinstance(one, dict) for one in documents):
        raise RecordError(f"{path} is damaged: no list of findings")
    return documents


def _stored(path: Path) -> object:
    """Return the document in a file, None where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error


def _store(path: Path, document: object) -> None:
    try:
        with appearing(path) as hidden:
            hidden.write_text(json.dumps(document, indent=1), encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error


def load_descriptions(record: RunRecord) -> dict[str, Testbed]:
    """The testbeds of a run as they were described when it began, in the command line's order.

    One whose copy is missing, or is no description to this version, is left out. The header of an
    older run has no order: its testbeds come by name.
    """
    found = {}
    files = record.header.get("descriptions", {})
    # The journal sorts the keys of its objects.
    ordered = [name for name in record.header.get("testbed_order", ()) if name in files]
    for name in dict.fromkeys([*ordered, *files]):
        file = files[name]
        try:
            found[name] = load(record.path.parent / file, quantities=names_in_files())
        except (TestbedError, OSError):
            continue
    return found


def _referred_to(path: Path) -> Iterator[Path]:
    yield from (
        beside for beside in (baselines_path(path), exceptions_path(path)) if beside.exists()
    )
    described = read(path).data
    plans = described.get("plans") if isinstance(described, dict) else None
    for plan in plans.values() if isinstance(plans, dict) else ():
        if isinstance(plan, dict) and isinstance(plan.get("file"), str):
            yield Path(os.path.abspath(path.parent / plan["file"]))


def _copy(source: Path, target: Path) -> None:
    try:
        with appearing(target) as hidden:
            hidden.write_bytes(source.read_bytes())
    except OSError as error:
        raise RecordError(f"{source}: {error.strerror}, and no run begins without it") from error


# ------------------------------------------------------------------------ declared quantities


QUANTITIES = "quantities.json"
"""Declarations of quantities by a conftest or another package, beside a run's journal."""


def store_quantities(folder: Path) -> None:
    """Write the declarations that a reader of the run may lack; raises `RecordError`."""
    document = stored_quantities()
    if document is None:
        return
    try:
        with appearing(folder / QUANTITIES) as hidden:
            hidden.write_text(document, "utf-8")
    except OSError as error:
        raise RecordError(f"{folder / QUANTITIES}: {error.strerror}") from error


def load_quantities(folder: Path) -> None:
    """Declare what the run in `folder` had declared and this process has not."""
    path = folder / QUANTITIES
    if path.exists():
        _declare({str(path): path.read_bytes()})


def load_quantities_of_runs(place: Place, runs: Collection[str] | None = None) -> None:
    """Declare the quantities of `runs`, or all, at `place`; of two of a name the later run's."""
    stored = place.read_each("runs", QUANTITIES, runs)
    _declare(dict(sorted(stored.items(), reverse=True)))


def _declare(files: Mapping[str, bytes]) -> None:
    for name, text in files.items():
        try:
            declare_from(name, text)
        except StoredQuantitiesError as error:
            raise RecordError(str(error)) from error


# -------------------------------------------------------------------------------------- publishing


PUBLISHED = "published"
"""The file in a run's folder that says where it has been copied to."""


def publish(folder: Path, location: str) -> None:
    """Copy a run, its folder and its part of the data set, to the results at `location`.

    `run.json` comes last: a run that is listed there is there as a whole. Doing it again
    replaces everything by the same. Raises `RecordError` for what cannot be reached or written.
    """
    place = Place(location)
    results = folder.parent.parent
    facts = (folder / FACTS).relative_to(results).as_posix()
    try:
        ours = read_regular(facts, None, results)
        if place.read_if_there(facts) not in (None, ours):
            place.remove(facts)  # its digests are not those of the rows that come now
        for file in _files(folder):
            name = file.relative_to(results).as_posix()
            with open_regular(name, results) as opened:
                place.put(Path("/proc/self/fd", str(opened.fileno())), name)
        with appearing(folder / PUBLISHED, results) as hidden:
            hidden.write_text(f"{location}\n")
    except OSError as error:
        raise RecordError(f"{folder / PUBLISHED}: {error.strerror}") from error


def is_published(folder: Path) -> bool:
    """Whether that was done, for a run that ended by itself or was recovered."""
    return (folder / PUBLISHED).exists()


def _files(folder: Path) -> Iterator[Path]:
    for rows in (ROWS, BY_HAND):
        yield from sorted(
            (folder.parent.parent / rows).glob(f"testbed=*/night=*/{folder.name}.parquet")
        )
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            if not name.startswith(".") and name not in (FACTS, PUBLISHED):
                yield Path(parent, name)
    yield folder / FACTS
