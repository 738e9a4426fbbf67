"""Results of four runs of different sizes, and what a place of results has."""

from pathlib import Path

from record.recorded import record

from lightrig.harness.record import Results
from lightrig.harness.record.places import Place
from lightrig.harness.record.run_folder import note_files

RUN = "20260105-021500-a"
NIGHTS = {"20260103-021500-a": 31, "20260104-021500-a": 7, RUN: 17, "20260201-021500-a": 5}
"""Rows of each run; the first three are of one month."""


def recorded(results: Path, *runs: str) -> Path:
    for run in runs:
        record(results, run, f"{run[:4]}-{run[4:6]}-{run[6:8]}", rows=NIGHTS[run])
        folder = results / "runs" / run
        (folder / "report.html").write_text(f"the page of {run}")
        note_files(folder)
    return results


def content(place: str | Path) -> dict[str, bytes]:
    """Return all files of results."""
    found = Place(place)
    return {name: data for below in ("runs", "rows") for name, data in read(found, below).items()}


def read(place: Place, below: str) -> dict[str, bytes]:
    return dict(place.read(place.files(below)))


def rows(place: str | Path) -> dict[str, int]:
    return {str(run): int(n) for run, n in Results(place).frame()["run"].value_counts().items()}
