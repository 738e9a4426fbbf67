"""Outcome of a testbed's part of a night, stored beside the runs: `nights/NIGHT/TESTBED.json`.

`NIGHT` is the name of the night, by which its runs begin. A testbed without such a file was not
run.
"""

import datetime
import json
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args
from urllib.parse import quote

from lightrig.harness.record import RecordError
from lightrig.harness.record.places import Place
from lightrig.testbeds.json_text import from_json

FOLDER = "nights"

State: TypeAlias = Literal["measured", "interrupted", "not run"]


@dataclass(frozen=True, slots=True)
class TestbedNight:
    """One testbed's part of a night.

    state: "measured", all its tests ended; "interrupted", the lab or a person ended them before;
        "not run", nothing of it was published.
    host: where it was measured last. run: name of its run. exit: pytest's status.
    passed, failed, inconclusive, skipped: number of tests.
    attempts: how often it was begun. duration_s: of the run, in seconds of the wall.
    reason: why it was not measured, or not at the first attempt.
    Raises `ValueError` for values of another type.
    """

    __test__ = False

    testbed: str
    state: State
    host: str = ""
    run: str = ""
    exit: int | None = None
    rows: int = 0
    passed: int = 0
    failed: int = 0
    inconclusive: int = 0
    skipped: int = 0
    attempts: int = 0
    duration_s: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        texts = (self.testbed, self.host, self.run, self.reason)
        counts = (self.rows, self.passed, self.failed, self.inconclusive, self.skipped)
        duration = 0 if self.duration_s is None else self.duration_s
        if (
            self.state not in get_args(State)
            or not all(isinstance(text, str) for text in texts)
            or not all(type(n) is int and n >= 0 for n in (*counts, self.attempts))
            or type(self.exit) not in (int, type(None))
            or type(duration) not in (int, float)
            or not (duration >= 0 and math.isfinite(duration))
        ):
            raise ValueError("found values of other types than a testbed's part of a night has")


def run_name(night: str, testbed: str) -> str:
    """Return the name of a testbed's run of a night: the same at each attempt, on each host.

    An attempt that is published again therefore replaces the run and adds none.
    """
    return f"{night}-{quote(testbed, safe='').replace('%', '_')}"


def store(outcome: TestbedNight, night: str, results: str) -> None:
    """Store an outcome at `results`; raises `RecordError`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "outcome.json")
        file.write_text(json.dumps(asdict(outcome), indent=1) + "\n", "utf-8")
        Place(results).put(file, _file(night, outcome.testbed))


def collect(night: str, testbeds: Iterable[str], results: str) -> list[TestbedNight]:
    """Return the outcome of each testbed; those that left none were not run.

    Raises `RecordError` for what cannot be read.
    """
    place = Place(results)
    stored = place.read(place.files(f"{FOLDER}/{night}"))
    found = []
    for testbed in testbeds:
        text = stored.get(_file(night, testbed))
        if text is None:
            reason = "it left no outcome: it was not begun, or its worker was lost"
            found.append(TestbedNight(testbed, "not run", reason=reason))
        else:
            found.append(parse(_file(night, testbed), text))
    return found


def not_run(results: str | Path) -> dict[str, tuple[str, str]]:
    """Return night and reason of each testbed that was not run in the newest night of hosts."""
    place = Place(results)
    names = [name for name in place.files(FOLDER) if name.count("/") == 2]
    if not names:
        return {}
    newest = max(name.split("/")[1] for name in names)
    night = f"{newest[:4]}-{newest[4:6]}-{newest[6:8]}"
    try:
        datetime.date.fromisoformat(night)
    except ValueError as error:
        raise RecordError(
            f"{place.name}: {FOLDER}/{newest} is no night, YYYYMMDD-...; move it out of the results"
        ) from error
    stored = place.read(name for name in names if name.split("/")[1] == newest)
    outcomes = [parse(name, text) for name, text in sorted(stored.items())]
    return {one.testbed: (night, one.reason) for one in outcomes if one.state == "not run"}


def parse(name: str, text: bytes) -> TestbedNight:
    """Read a stored outcome; raises `RecordError` with `name` if it is none."""
    try:
        return TestbedNight(**from_json(text))
    except (ValueError, TypeError, OverflowError) as error:
        raise RecordError(
            f"{name} is damaged: {error}; remove it, or measure its testbed in another night"
        ) from error


def with_attempts(outcome: TestbedNight, hosts: Sequence[str]) -> TestbedNight:
    """Return `outcome` with the hosts that began it, the lost ones named in its reason."""
    lost = hosts[:-1] if outcome.state != "not run" else hosts
    reason = outcome.reason
    if lost and outcome.state != "not run":
        reason = "; ".join(filter(None, (f"begun again after {', '.join(lost)} was lost", reason)))
    return replace(outcome, attempts=len(hosts), reason=reason)


def _file(night: str, testbed: str) -> str:
    return f"{FOLDER}/{night}/{quote(testbed, safe='')}.json"
