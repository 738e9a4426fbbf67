"""Whole results brought to another place: a folder, a shared one, an object store, or back."""

from collections.abc import Mapping
from dataclasses import dataclass

from lightrig.harness.record.places import Place
from lightrig.harness.record.rows_files import (
    MANIFEST,
    Manifest,
    plain_file,
    read_manifest,
    stored_rows,
)
from lightrig.harness.record.run_folder import FACTS, PUBLISHED, parse_facts


@dataclass(frozen=True, slots=True)
class Transfer:
    """Number of files that were brought, of those that were there already, and bytes brought."""

    files: int
    present: int
    size: int


def transfer(source: str, target: str) -> Transfer:
    """Copy all ended runs and their rows from `source` to `target`, both a path or URL.

    Files of the same name and size are there already: files of results are written once. What
    else is at `target` stays. `run.json` of each run comes last, and a compacted file before the
    list that names it, so readers never see a run in part. Raises `RecordError` for what cannot
    be read or written, `QuestionError` for a place that cannot be one.
    """
    here, there = Place(source), Place(target)
    present = there.sizes()
    files = same = size = 0
    rows, rest = _names(here)
    for names in (rows, rest):
        for name, length in names.items():
            if present.get(name) == length:
                same += 1
                continue
            there.write(name, here.read([name])[name])
            files, size = files + 1, size + length
            if name.endswith(f"/{FACTS}"):
                _note_publication(there, name)
        if names is rows:
            _merge_lists(here, there)
    return Transfer(files, same, size)


def _names(place: Place) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the files of rows, and of ended runs, `run.json` last, with their sizes in bytes."""
    sizes = place.sizes()
    rows = {file.name: sizes[file.name] for file in stored_rows(place)}
    ended = {name.split("/")[1] for name in sizes if name.endswith(f"/{FACTS}")}
    runs = [n for n in sizes if n.startswith("runs/") and n.split("/")[1] in ended]
    ordered = sorted(runs, key=lambda name: (name.endswith(f"/{FACTS}"), name))
    return rows, {n: sizes[n] for n in ordered if not n.endswith(f"/{PUBLISHED}")}


def _merge_lists(here: Place, there: Place) -> None:
    """Name our compacted files there; files that have only runs of ours are replaced by them."""
    ours = read_manifest(here).files
    if not ours:
        return
    runs = {(file.testbed, run) for file in ours for run in file.names}
    names = {file.name for file in ours}
    earlier = read_manifest(there).files
    staying = tuple(
        file
        for file in earlier
        if file.name not in names and not {(file.testbed, run) for run in file.names} <= runs
    )
    there.write(MANIFEST, Manifest((*staying, *ours)).text().encode())
    stored = set(there.files("rows"))
    for file in ours:
        for night, found in file.nights.items():
            for run in found:
                if (name := str(plain_file(file.testbed, night, run))) in stored:
                    there.remove(name)
    for name in {file.name for file in earlier} - names - {file.name for file in staying}:
        there.remove(name)


def _note_publication(place: Place, name: str) -> None:
    """Note that a run brought to a folder has been published, where it was to be."""
    if place.folder is None:
        return
    location = parse_facts(name, place.read([name])[name]).header.get("publish")
    if location:
        place.write(name.replace(FACTS, PUBLISHED), f"{location}\n".encode())
