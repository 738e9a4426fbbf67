"""What differed between two runs besides what they measured: files, instruments, options.

A change of a value means little where the testbed file, a firmware or an option is another one.
Files are compared by their structure: comments, order of keys and layout are no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightrig.harness.record import RecordError, Results, RunFacts
from lightrig.harness.record.run_folder import load_ports
from lightrig.harness.report.nights.series_changes import identity_changes, setting_changes
from lightrig.testbeds import TestbedError
from lightrig.testbeds.exceptions import exceptions_path
from lightrig.testbeds.yaml_positions import read

_SAME_WHERE_EQUAL = ("command", "instruments", "host", "version", "commit")
"""What is compared of the headers of runs."""

_LONGEST = 60
"""Characters of a value that is shown."""


def run_differences(results: Results, place: str | Path, before: str, after: str) -> list[str]:
    """Return a sentence for each difference between two runs, by testbed; none where all is alike.

    Of each testbed that both measured: its file, its list of exceptions, the instruments'
    identities, and what the NIC ports were set to, as far as the runs have stored them. place: of
    the results; a folder of a run that is not on this machine is left out. Raises `QuestionError`
    if there is no such run, and `RecordError` for what cannot be read.
    """
    first, last = results.find(before), results.find(after)
    found = [
        f"{name}: {_shown(first.header.get(name))} → {_shown(last.header.get(name))}"
        for name in _SAME_WHERE_EQUAL
        if first.header.get(name) != last.header.get(name)
    ]
    folders = [Path(place) / "runs" / one.run for one in (first, last)]
    for testbed in sorted({*first.testbeds} & {*last.testbeds}):
        parts = [
            *_file_differences(testbed, (first, last), folders),
            *identity_changes(*(_instruments(results, one.run, testbed) for one in (first, last))),
            *setting_changes(*(load_ports(folder, testbed) for folder in folders)),
        ]
        found += [f"{testbed}: {part}" for part in parts]
    return found


def structural_differences(before: object, after: object, path: str = "") -> Iterator[str]:
    """Yield a sentence for each difference of two documents of mappings, lists and scalars.

    A list is compared as a collection: what it lost and gained, in whatever order.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            inner = f"{path}.{key}" if path else str(key)
            if key not in after:
                yield f"{inner}: {_shown(before[key])} is removed"
            elif key not in before:
                yield f"{inner}: {_shown(after[key])} is added"
            else:
                yield from structural_differences(before[key], after[key], inner)
    elif isinstance(before, list) and isinstance(after, list):
        old, new = Counter(map(_key, before)), Counter(map(_key, after))
        for what, each in (("removed", old - new), ("added", new - old)):
            for text, count in each.items():
                times = f", {count} times" if count > 1 else ""
                yield f"{path}: {_cut(text)} is {what}{times}"
        if old == new and before != after:
            yield f"{path}: its entries have another order"
    elif before != after or type(before) is not type(after):
        yield f"{path}: {_shown(before)} → {_shown(after)}"


def _file_differences(
    testbed: str, runs: Sequence[RunFacts], folders: Sequence[Path]
) -> Iterator[str]:
    paths = []
    for facts, folder in zip(runs, folders, strict=True):
        name = facts.header.get("descriptions", {}).get(testbed)
        path = folder / str(name)
        if name is None or not path.is_file():
            return
        paths.append(path)
    for each in structural_differences(_document(paths[0]), _document(paths[1])):
        yield f"testbed file, {each}"
    before, after = (_document(exceptions_path(path)) for path in paths)
    for each in structural_differences(before, after):
        yield f"exceptions, {each}"


def _document(path: Path) -> object:
    """Return what a file holds; nothing of one that is missing, or that its lock alone made."""
    try:
        return read(path).data if path.is_file() and path.stat().st_size else {}
    except TestbedError as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error


def _instruments(results: Results, run: str, testbed: str) -> list[str]:
    """Return the participants of a run: those of its first row, as all its rows share them."""
    names = (each.replace("'", "''") for each in (run, testbed))
    where = " AND ".join(f"{n} = '{v}'" for n, v in zip(("run", "testbed"), names, strict=True))
    table = results.query(f"SELECT instruments FROM rows WHERE {where} LIMIT 1")  # noqa: S608
    return [str(one) for one in table["instruments"].iloc[0]] if len(table) else []


def _key(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return (
            "{" + ", ".join(sorted(f"{key}: {_key(value)}" for key, value in entry.items())) + "}"
        )
    if isinstance(entry, list):
        return "[" + ", ".join(map(_key, entry)) + "]"
    return str(entry)


def _shown(value: object) -> str:
    return "nothing" if value is None else _cut(_key(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
