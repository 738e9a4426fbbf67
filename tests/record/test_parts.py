"""Journals of workers: read as they grow, and absorbed after a kill."""

import dataclasses
from pathlib import Path

import pytest

from lightrig.harness.record import (
    Context,
    Journal,
    JournalDamagedError,
    Row,
    read_journal,
    recover,
)
from lightrig.harness.record.journal import row_line, seal
from lightrig.harness.record.journal_reading import PartReader, open_part, part_path

HERE = Context("opus", "test_here", ("ocs",), True)
THERE = Context("opus", "test_there", ("ocs",), True, {"mode": "slow"})


def row(value: int) -> Row:
    return Row("ocs", "q", value, value, value, "1", value)


def values(folder: Path) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for context, each in read_journal(folder / "journal.jsonl").rows():
        found.setdefault(context.test, []).append(each.value)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "results" / "runs" / "r1"
    made.mkdir(parents=True)
    return made


def test_rows_are_read_once_and_a_line_still_being_written_waits(folder: Path) -> None:
    reader = PartReader(part_path(folder, "gw0"))
    assert list(reader.read()) == []
    part = open_part(folder, "gw0", "2026-03-14")
    part.append_many(HERE, [row(1), row(2)])
    part.append_many(THERE, [row(3)])
    assert [(context.test, len(rows)) for context, rows, _ in reader.read()] == [
        ("test_here", 2),
        ("test_there", 1),
    ]
    part.append(HERE, row(4))
    with reader.path.open("rb+") as file:
        whole = file.read()
        file.truncate(len(whole) - 5)
    assert list(reader.read()) == []
    with reader.path.open("ab") as file:
        file.write(whole[-5:])
    ((context, rows, _),) = reader.read()
    assert (context.test, [each.value for each in rows]) == ("test_here", [4])
    part.close()


def test_lines_of_workers_are_appended_with_the_number_of_their_context(folder: Path) -> None:
    """Numbers differ: what the journal knows as context 11 is the worker's second."""
    main = Journal(folder / "journal.jsonl", {"run": "r1", "night": "2026-03-14"})
    for place in range(11):
        main.append(dataclasses.replace(HERE, test=f"test_{place}"), row(place))
    part = open_part(folder, "gw0", "2026-03-14")
    measured = [
        Row('a "quoted", [subject]', "q", 1.5, None, 2, "dB", -7, {"plan": "ü,[", "event": 3}),
        Row("ocs", "q", 2, 1, None, "ns", 9),
        row(4),
    ]
    part.append_many(THERE, measured[:2])
    part.append_many(HERE, measured[2:])
    part.append_many(THERE, measured)
    for context, _, lines in PartReader(part.path).read():
        main.append_lines(context, lines)
    main.close()
    part.close()
    by_test: dict[str, list[Row]] = {}
    for context, each in read_journal(main.path).rows():
        by_test.setdefault(context.test, []).append(each)
    assert by_test["test_there"] == [*measured[:2], *measured]
    assert by_test["test_here"] == measured[2:]
    written = main.path.read_text().splitlines()
    assert seal(row_line(11, measured[0])) in written
    assert seal(row_line(12, measured[2])) in written


def test_damaged_line_is_named(folder: Path) -> None:
    open_part(folder, "gw0", "2026-03-14").close()
    with part_path(folder, "gw0").open("a") as file:
        file.write("[0]\n")
    with pytest.raises(JournalDamagedError, match=r"gw0\.jsonl:3: "):
        list(PartReader(part_path(folder, "gw0")).read())


def test_recovery_appends_what_was_not_taken_over_and_nothing_twice(folder: Path) -> None:
    main = Journal(folder / "journal.jsonl", {"run": "r1", "night": "2026-03-14"})
    first, second = (open_part(folder, name, "2026-03-14") for name in ("gw0", "gw1"))
    first.append_many(HERE, [row(n) for n in range(5)])
    second.append_many(THERE, [row(n) for n in range(10, 13)])
    main.append_many(HERE, [row(n) for n in range(3)])  # then everything was killed
    for journal in (main, first, second):
        journal.__exit__(KeyboardInterrupt, None, None)
    with (folder / "journal.jsonl").open("ab") as file:
        file.write(b'[0,"torn')
    recovered = recover(folder)
    assert values(folder) == {"test_here": [0, 1, 2, 3, 4], "test_there": [10, 11, 12]}
    assert recovered.facts.rows == 8
    assert [path.name for path in folder.glob("journal*")] == ["journal.jsonl"]
    recover(folder)
    assert values(folder)["test_here"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("summary", "state"), [({}, "complete"), ({"ended": "interrupted"}, "interrupted")]
)
def test_interrupted_run_is_not_complete(folder: Path, summary: dict[str, str], state: str) -> None:
    journal = Journal(folder / "journal.jsonl", {"run": "r1", "night": "2026-03-14"})
    journal.close(summary)
    assert recover(folder).facts.state == state
