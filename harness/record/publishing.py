"""Bringing a run from the machine that recorded it to where a whole lab reads it.

A journal must be on a disk of its own machine to survive a kill, and an object store knows no
appending: a run is recorded locally first, and copied when it has ended.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from harness.record.errors import RecordError
from harness.record.facts import FACTS
from harness.record.files import appearing
from harness.record.places import Place

PUBLISHED = "published"
"""The file in a run's folder that says where it has been copied to."""


def publish(folder: Path, location: str) -> None:
    """Copy a run, its folder and its part of the data set, to the results at `location`.

    `run.json` comes last: a run that is listed there is there as a whole. Doing it again
    replaces everything by the same. Raises `RecordError` for what cannot be reached or written.
    """
    place = Place(location)
    results = folder.parent.parent
    for file in _files(folder):
        place.put(file, file.relative_to(results).as_posix())
    try:
        with appearing(folder / PUBLISHED) as hidden:
            hidden.write_text(f"{location}\n")
    except OSError as error:
        raise RecordError(f"{folder / PUBLISHED}: {error.strerror}") from error


def is_published(folder: Path) -> bool:
    """Whether that was done, for a run that ended by itself or was recovered."""
    return (folder / PUBLISHED).exists()


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(
        (folder.parent.parent / "rows").glob(f"testbed=*/night=*/{folder.name}.parquet")
    )
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            if not name.startswith(".") and name not in (FACTS, PUBLISHED):
                yield Path(parent, name)
    yield folder / FACTS
