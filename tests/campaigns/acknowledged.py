"""pytest plugin of campaigns: each process counts the rows whose append to a journal has returned.

The number stands in the file `PID.acknowledged` of the folder that the environment names.
"""

import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from lightrig.harness.record import Context, Journal, Row

FOLDER = "CAMPAIGN_ACKNOWLEDGED"


def pytest_configure(config: pytest.Config) -> None:
    """Count from now on; a kill leaves the number that was written last."""
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        return  # the controller of pytest-xdist copies rows that workers have counted
    append_many = Journal.append_many
    path = Path(os.environ[FOLDER], f"{os.getpid()}.acknowledged")
    path.write_bytes(bytes(8))
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 8)

    def counted_many(self: Journal, context: Context, rows: Iterable[Row]) -> None:
        given = list(rows)
        append_many(self, context, given)
        total = int.from_bytes(shared[:], sys.byteorder) + len(given)
        shared[:] = total.to_bytes(8, sys.byteorder)

    Journal.append_many = counted_many  # type: ignore[assignment,method-assign]


def rows(folder: Path) -> int:
    """Return how many rows all processes together have had acknowledged."""
    files = folder.glob("*.acknowledged")
    return sum(int.from_bytes(path.read_bytes(), sys.byteorder) for path in files)
