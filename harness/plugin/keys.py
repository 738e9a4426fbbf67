"""What the parts of the plugin find in the session's stash."""

import pytest

from harness.bench import Bench
from harness.plugin.observed import ObservedRun
from testbeds import Testbed

RUN = pytest.StashKey[ObservedRun]()
TESTBEDS = pytest.StashKey[list[Testbed]]()
BENCHES = pytest.StashKey[dict[str, Bench]]()
"""What is open now, by the testbed's name."""

NOTES = pytest.StashKey[dict[str, list[str]]]()
"""What a person should know of each testbed's run, one sentence each."""

ENDED = pytest.StashKey[str]()
"""Why the session ended before its tests did, where it did."""
