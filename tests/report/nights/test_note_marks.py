"""Notes of the logbook in trends and on cards: at the first night after each."""

import datetime
import json
from dataclasses import asdict

import pytest
from record.recorded import record

from lightrig.harness.record import RecordError
from lightrig.harness.record.nights import Start
from lightrig.harness.record.notes import Note, add, read_notes
from lightrig.harness.record.places import Place
from lightrig.harness.report.nights import write_nights
from lightrig.harness.report.nights.note_marks import note_marks
from lightrig.harness.report.nights.series import Lab

NIGHTS = {"2026-03-14": 2, "2026-03-15": 1, "2026-03-17": 23, "2026-03-18": 2}
"""Date and hour in UTC at which each night began."""


def note(at, subject="ocs.9", text="cleaned", testbed="opus"):
    return Note(at, "ann", "rack1", testbed, subject, text)


def started(night):
    return datetime.datetime.fromisoformat(f"{night}T{NIGHTS[night]:02}:30:00+00:00")


@pytest.fixture
def lab():
    return Lab("opus", False, (), tuple((f"run {night}",) for night in NIGHTS))


@pytest.fixture
def starts():
    return {f"run {night}": Start(night, started(night)) for night in NIGHTS}


@pytest.mark.parametrize(
    ("at", "night"),
    [
        ("2026-03-14 02:29:59", None),  # before the first night
        ("2026-03-14 02:30:00", 1),  # it may have been written while that night ran
        ("2026-03-15 01:29:59", 1),
        ("2026-03-15 09:00:00", 2),
        ("2026-03-17 23:29:59", 2),  # of the same date, and before
        ("2026-03-17 23:30:01", 3),  # and after
        ("2026-03-18 02:30:00", None),  # not measured since
    ],
)
def test_a_note_marks_the_first_night_after_it(lab, starts, at, night):
    found = note_marks(lab, [note(at)], starts)
    assert [each.night for each in found] == ([] if night is None else [night])
    assert all(each.text == f"noted {at[:16]} UTC, ocs.9: cleaned" for each in found)


def test_many_notes_of_a_night_are_counted(lab, starts):
    notes = [note(f"2026-03-15 10:00:{n:02}", f"ocs.{n}", "a\nb" * n) for n in range(5)]
    notes += [note("2026-03-18 00:00:00")]
    first, second = note_marks(lab, notes, starts)
    assert (first.night, second.night) == (2, 3)
    assert first.text.endswith("ocs.2: a ba b and 2 more")


def test_the_page_has_the_notes_of_its_testbeds(tmp_path):
    for night, hour in NIGHTS.items():
        record(tmp_path, f"n{night}", night, started=f"{night}T{hour:02}:30:00Z")
    add(tmp_path, note("2026-03-15 10:00:00", "ocs.3", "<b>cleaned</b> with a pen"))
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    assert "noted 2026-03-15 10:00 UTC, ocs.3: &lt;b&gt;cleaned&lt;/b&gt; with a pen" in page
    assert "<b>cleaned" not in page
    (book,) = (tmp_path / "notes").iterdir()
    book.write_text(book.read_text() + "no note\n")
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    assert "the notes cannot be read" in page


def test_notes_from_before_and_after_the_nights_are_left_out(tmp_path):
    """Lines as written, and one of another program, with its time last; the rest is read."""
    written = [note(f"2026-03-{day:02} 10:00:00", f"ocs.{day}") for day in (3, 12, 15, 27)]
    lines = [json.dumps(asdict(each)) for each in written]
    lines.insert(2, json.dumps(dict(reversed(asdict(note("2026-01-01 00:00:00")).items()))))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "ann@rack.jsonl").write_text("\n".join(lines) + "\n")
    place = Place(tmp_path)
    found = read_notes(place, "2026-03-10 00:00:00", "2026-03-20 00:00:00")
    assert [each.subject for each in found] == ["ocs.9", "ocs.12", "ocs.15"]
    assert len(read_notes(place)) == 5
    assert [each.at_utc[:10] for each in read_notes(place, "2026-04-01")] == ["2026-01-01"]
    with (tmp_path / "notes" / "ann@rack.jsonl").open("a") as file:
        file.write('{"at_utc": "2026-03-14 10:00:00"}\n')
    with pytest.raises(RecordError, match=r"ann@rack\.jsonl:6: this line is no note"):
        read_notes(place, "2026-03-10 00:00:00", "2026-03-20 00:00:00")
