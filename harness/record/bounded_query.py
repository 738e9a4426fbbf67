"""SQL of others, in a process with a limit of memory and of time.

DuckDB's own limit counts its buffers: `repeat('a', 4000000000)` took 7.7 GiB under one of 256 MB.
A limit of the process's address space counts everything.
"""

import os
import pickle
import resource
import signal
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

from lightrig.harness.record.row import QuestionError, RecordError

if TYPE_CHECKING:
    import pandas as pd

MOST_MEMORY = 4 << 30
"""Bytes of address space."""

MOST_RESULT = 1 << 30
"""Bytes of a result."""

TIMEOUT_S = 60.0

_ENDS_BY_ITSELF_S = 5
"""Time after which a process ends whose caller was killed before it could end it."""


def bounded_query(location: str, sql: str, timeout_s: float = TIMEOUT_S) -> "pd.DataFrame":
    """Return the frame of `Results.query`, of a process that has at most `MOST_MEMORY` bytes.

    Raises `QuestionError` also for a query that takes longer, or more memory, than it may.
    """
    command = [sys.executable, "-m", __name__, location, str(timeout_s)]
    # Each thread may have an arena of 128 MB, of which little is used.
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2"}
    try:
        done = subprocess.run(
            command,
            check=False,
            input=sql.encode(),
            capture_output=True,
            env=environment,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise QuestionError(
            f"the query was ended after {timeout_s:g} s; ask for fewer runs, or state --timeout"
        ) from None
    if done.returncode:
        raise QuestionError(f"{_TOO_LARGE}: its process ended by status {done.returncode}")
    outcome, found, warned = pickle.loads(done.stdout)  # noqa: S301 - of our own process
    for each in warned:
        warnings.warn(each, stacklevel=2)
    if outcome == "frame":
        frame: pd.DataFrame = found
        return frame
    raise QuestionError(found) if outcome == "question" else RecordError(found)


_TOO_LARGE = (
    f"the query takes more than {MOST_MEMORY >> 30} GiB of memory, or its result more than "
    f"{MOST_RESULT >> 30} GiB; ask for fewer runs or columns"
)


def _answer(location: str, sql: str) -> tuple[str, Any]:
    from lightrig.harness.record.results import Results  # noqa: PLC0415 - within the limit

    try:
        frame = Results(location).query(sql)
        if frame.memory_usage(deep=True).sum() > MOST_RESULT:
            return "question", _TOO_LARGE
    except QuestionError as error:
        return "question", str(error)
    except RecordError as error:
        return "record", str(error)
    except MemoryError:
        return "question", _TOO_LARGE
    return "frame", frame


def main(location: str, timeout_s: str) -> None:
    """Read SQL from stdin, and write the outcome to stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(int(float(timeout_s)) + _ENDS_BY_ITSELF_S)
    sql = sys.stdin.buffer.read().decode("utf-8", "replace")
    with warnings.catch_warnings(record=True) as warned:
        outcome, found = _answer(location, sql)
    sys.stdout.buffer.write(pickle.dumps((outcome, found, [each.message for each in warned])))


if __name__ == "__main__":
    main(*sys.argv[1:])
