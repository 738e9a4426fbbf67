"""Keys of the session's stash, and a sentence, that several parts of the plugin share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench
    from lightrig.harness.bench.opened_bench import OpenBench
    from lightrig.harness.findings import Finding
    from lightrig.harness.plugin.worker_run import WorkerRun
    from lightrig.harness.run import ObservedRun
    from lightrig.testbeds import Testbed

RUN: pytest.StashKey[ObservedRun | WorkerRun] = pytest.StashKey()
FILES = pytest.StashKey[list[str]]()
"""The testbeds' files, as they were given; absent where there is none."""

TESTBEDS: pytest.StashKey[list[Testbed]] = pytest.StashKey()
BENCHES: pytest.StashKey[dict[str, Bench]] = pytest.StashKey()
"""The open benches, by the testbed's name."""

OPENED: pytest.StashKey[dict[str, OpenBench]] = pytest.StashKey()
"""The same with what they were found with."""

OF_LAB = pytest.StashKey[bool]()
"""Whether the run ended by trouble of the lab, before the test that ran had measured anything."""

ENDED = pytest.StashKey[str]()
"""Reason for which the session ended before its tests did, where it did."""

UNRECORDED = pytest.StashKey[bool]()
"""Present where the run ended since nothing more could be recorded."""

ATTEMPTS = pytest.StashKey[int]()
"""Of an item: how often it has begun to measure."""

INCONCLUSIVE = pytest.StashKey[list[str]]()
"""Of an item: the limits that its samples do not decide, one sentence each."""

MEASURED = pytest.StashKey[Callable[[], bool]]()
"""Of an item: whether it has begun an event, or recorded a row."""

CAUSE = "lightrig.cause"
"""Property of a test that failed by trouble of the lab; its value is `LAB`."""

LAB = "lab"

FINDING = "finding"
"""Property of a test in which something was found wrong, once for each finding."""

MEANWHILE = pytest.StashKey[tuple[int, Counter[tuple[str, str]]]]()
"""Of an item: when it began on the bench's clock, and how many kernel messages had come then."""

FAULTS = pytest.StashKey[list[str]]()
"""Of an item: the faults that are injected while it runs, and those that outlast another."""

FOUND: pytest.StashKey[list[Finding]] = pytest.StashKey()
"""Of an item: what its measurements found wrong, closure that failed among it."""

NO_TESTBED = (
    "no testbed: give --testbed FILE, set LIGHTRIG_TESTBED, or name one as lightrig_testbed in "
    "pytest's configuration"
)
"""Reason of the skip where a test needs a testbed and none is named."""
