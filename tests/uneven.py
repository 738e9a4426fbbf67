"""Examples without symmetry, shared by tests: no two of their numbers can stand for each other.

The worst of DELAYS is neither first nor last; TRAFFIC is not its transpose, and the vertices of
TREE have three different degrees; `write_results` writes three nights of two testbeds.
"""

import functools
import shutil
import tempfile
from pathlib import Path

import pytest
from record.recorded import MS, begin, context, record

from lightrig.harness.record import Journal, Row, TestOutcome, settle

SIZE = "12x20"
"""Size of a switch whose ingress ports are 1 to 12 and egress ports 13 to 32."""

DELAYS = (61, 63, 69, 60, 64, 62, 65)
"""Milliseconds by event: the greatest is third, the least fourth; the median is 63."""

COLUMNS, LINES = 5, 3
"""Nodes in a row of a fabric, and rows of it."""

TREE = ((0, 1), (1, 2), (1, 3), (3, 4))
"""Edges of a tree on five vertices, of the degrees 1, 3, 1, 2 and 1."""

TRAFFIC = (
    (0, 11, 2, 5, 1),
    (4, 0, 17, 3, 8),
    (19, 6, 0, 7, 13),
    (9, 23, 14, 0, 10),
    (12, 16, 15, 18, 0),
)
"""Bytes from each of five to each other; the last sends most, the second receives most.

Sent: 19, 32, 45, 56, 61. Received: 44, 56, 48, 33, 32.
"""

ROWS = {"r1": 23, "r2": 5, "r3": 7, "r4": 1234, "r5": 11, "r6": 2}
"""Rows of each run of `write_results`; those of r4, which was killed, are in its journal alone."""


def delays(count: int, testbed: str = "opus") -> list[Row]:
    """Return `count` rows of `DELAYS`, over and over; the interval reaches further down than up."""
    return [
        Row(
            *(testbed, "reconfiguration.signal_recovered", value, value - 5 * MS, value + 3 * MS),
            *("ns", event * 10**9, {"event": event}),
        )
        for event, value in enumerate(DELAYS[n % len(DELAYS)] * MS for n in range(count))
    ]


def write_results(results: Path) -> Path:
    """Write two runs a night of 14, 15 and 16 March 2026 below `results`, and return it.

    r1: 20 simulated rows of opus, 3 of hardware of mixnet. r2: mixnet, hardware. r3: opus, with a
    test that passed, one that failed and two that were inconclusive. r4: opus, killed. r5: opus of
    hardware. r6: opus, two rows.
    """
    return Path(shutil.copytree(_written().name, results, dirs_exist_ok=True))


@functools.cache
def _written() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="lightrig-results-")
    results = Path(folder.name)
    one = begin(results, "r1", "2026-03-14")
    one.append_many(context(), delays(20))
    one.append_many(context("mixnet", simulated=False), delays(3, "mixnet"))
    one.note_test(TestOutcome("suites/test_a.py::test_repeated", "failed", 1.0, {"repeat": "x"}))
    one.note_test(TestOutcome("suites/test_a.py::test_repeated", "passed", 2.5))
    one.note_test(TestOutcome("suites/test_a.py::test_other", "skipped", 0.0))
    _close(one, 12.5)
    two = begin(results, "r2", "2026-03-14")
    two.append_many(context("mixnet", simulated=False), delays(5, "mixnet"))
    _close(two, 7.0)
    three = begin(results, "r3", "2026-03-15")
    three.append_many(context(), delays(7))
    outcomes = ("inconclusive", "failed", "passed", "inconclusive")
    for number, outcome in enumerate(outcomes):
        three.note_test(TestOutcome(f"suites/test_a.py::test_{number}", outcome, 1.0))
    _close(three, 3661.0)
    killed = begin(results, "r4", "2026-03-15")
    killed.append_many(context(), delays(ROWS["r4"]))
    with pytest.raises(ZeroDivisionError), killed:
        raise ZeroDivisionError
    five = begin(results, "r5", "2026-03-16")
    five.append_many(context(simulated=False), delays(11))
    _close(five, 60.0)
    record(results, "r6", "2026-03-16", rows=2)
    return folder


def _close(journal: Journal, seconds: float) -> None:
    journal.close({"exit": 0, "duration_s": seconds})
    settle(journal.path.parent)
