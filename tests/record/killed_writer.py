"""A process that records and says so, until it is killed."""

import os
import sys
from pathlib import Path

from record.recorded import begin, context

from lightrig.harness.record import Row, TestOutcome

TESTS_EVERY = 10


def write_until_killed(results: str, run: str) -> None:
    """Every tenth thing is a test that has ended, the others are rows; each is acknowledged.

    Eight bytes on standard output acknowledge one.
    """
    journal = begin(Path(results), run)
    contexts = [context(moving=moved) for moved in (1, 4, 16)]
    number = 0
    while True:
        if number % TESTS_EVERY == TESTS_EVERY - 1:
            journal.note_test(TestOutcome(f"test_{number}", "passed", 0.0))
        else:
            conditions = {"event": number}
            row = Row(
                "opus", "reconfiguration.signal_recovered", number, 0, number, "ns", 0, conditions
            )
            journal.append(contexts[number // 100 % 3], row)
        number += 1
        os.write(1, number.to_bytes(8, "big"))


if __name__ == "__main__":
    write_until_killed(*sys.argv[1:])
