"""The journal: what was acknowledged is there, whatever happened next."""

import dataclasses
import json
import os
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import contexts, outcomes, rows

from lightrig.harness.record import (
    Context,
    Journal,
    JournalDamagedError,
    JournalEmptyError,
    JournalInUseError,
    RecordError,
    Row,
    RowError,
    SharedConditions,
    TestOutcome,
    read_journal,
)
from lightrig.harness.record.journal import is_written, locked, row_line

HEADER = {"run": "r1", "night": "2026-03-14"}
RUNS = st.lists(st.tuples(contexts, st.lists(rows(), max_size=3)), max_size=4)


def write(path, run, outcomes=()):
    with Journal(path, HEADER) as journal:
        for outcome in outcomes:
            journal.note_test(outcome)
        for context, found in run:
            journal.append_many(context, found[1:])
            for row in found[:1]:
                journal.append(context, row)
        journal.close({"passed": 1})


def read(path):
    record = read_journal(path)
    return record, list(record.rows())


@settings(deadline=None)
@given(RUNS, st.lists(outcomes, max_size=2))
def test_a_journal_reads_back_and_its_bytes_are_reproducible(run, outcomes):
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder, "1"), Path(folder, "2")
        write(one, run, outcomes)
        write(two, run, outcomes)
        assert one.read_bytes() == two.read_bytes()
        for line in one.read_text().split("\n")[:-1]:
            json.loads(line)
        record, found = read(one)
    assert found == [(c, r) for c, rs in run for r in (*rs[1:], *rs[:1])]
    assert (record.complete, record.torn, record.summary) == (True, False, {"passed": 1})
    assert record.header == {**HEADER, "schema": 3}
    assert sum(record.counts.values()) == len(found)
    assert record.tests == tuple(outcomes)


@settings(deadline=None)
@given(rows())
def test_a_row_line_is_json_with_exact_numbers(row):
    fields = json.loads(row_line(3, row))
    assert fields[0] == 3
    assert Row(*fields[1:]) == row
    assert [type(f) for f in fields[3:6]] == [type(f) for f in (row.value, row.lower, row.upper)]


def test_the_file_reads_like_this(fresh, context, row):
    with fresh() as journal:
        journal.append(context, row)
        journal.append(dataclasses.replace(context), dataclasses.replace(row, lower=None, value=0))
        journal.note_test(TestOutcome("test_pairs", "failed", 1.5, {"repeat": "pytest -k pairs"}))
    assert journal.path.read_text().splitlines() == [
        '{"night":"2026-03-14","run":"r1","schema":3,"seed":7,"crc":"ed5de117"}',
        '{"conditions":{"temperature_c":23.5},"context":0,"instruments":["Polatis 21877"],'
        '"simulated":true,"test":"test_pairs","testbed":"opus","crc":"aab77301"}',
        '[0,"ocs 1->17","outage",41440000,41000000,42000000,"ns",5,{"moved":4},"19e4b9c7"]',
        '[0,"ocs 1->17","outage",0,null,42000000,"ns",5,{"moved":4},"902814d1"]',
        '{"test":{"details":{"repeat":"pytest -k pairs"},"duration_s":1.5,"nodeid":"test_pairs",'
        '"outcome":"failed"},"crc":"3f613253"}',
        '{"end":{},"crc":"59d5813d"}',
    ]


def test_the_order_of_conditions_does_not_matter(row):
    one = dataclasses.replace(row, conditions={"a": 1, "b": 2})
    two = dataclasses.replace(row, conditions={"b": 2, "a": 1})
    assert row_line(0, one) == row_line(0, two)


def test_conditions_of_many_rows_are_written_as_those_of_each(row):
    """Two events, and values that compare as equal, each in the form that JSON has for it."""
    for conditions in ({"event": 1, "flaps": True}, {"event": True, "flaps": 1}, {"after": "ü"}):
        alone = dataclasses.replace(row, conditions=conditions)
        shared = dataclasses.replace(row, conditions=SharedConditions(conditions))
        for _ in range(2):
            assert row_line(3, shared) == row_line(3, alone)
    with pytest.raises(RowError, match=r"conditions\.loss: found nan"):
        SharedConditions({"loss": float("nan")})


def test_numpy_floats_are_written_as_numbers(row):
    assert "41440000.5," in row_line(0, dataclasses.replace(row, value=np.float64(41440000.5)))


def test_a_journal_is_never_overwritten(fresh):
    journal = fresh()
    with pytest.raises(RecordError, match="never overwritten"):
        Journal(journal.path, HEADER)
    journal.close()


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"night": "2026-03-14"}, "run None"),
        ({"run": "../r", "night": "2026-03-14"}, "run '../r'"),
        ({"run": "r"}, "night: found None"),
        ({"run": "r", "night": "20260314"}, "expected YYYY-MM-DD"),
        ({"run": "r", "night": "2026-02-30"}, "expected YYYY-MM-DD"),
        ({**HEADER, "schema": 1}, "which the journal sets"),
        ({**HEADER, "what": object()}, "header: "),
        ({**HEADER, "what": float("nan")}, "header: "),
    ],
)
def test_a_bad_header_leaves_no_file(tmp_path, header, says):
    with pytest.raises(RowError, match=says):
        Journal(tmp_path / "j", header)
    assert not (tmp_path / "j").exists()


def test_a_closed_journal_takes_nothing(fresh, context, row):
    journal = fresh()
    journal.close()
    with pytest.raises(RecordError, match="is closed"):
        journal.append(context, row)
    with pytest.raises(RecordError, match="is closed"):
        journal.close()


def test_an_exception_leaves_a_journal_that_did_not_end(fresh, context, row):
    def interrupted():
        with fresh() as journal:
            paths.append(journal.path)
            journal.append(context, row)
            raise KeyboardInterrupt

    paths = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    record, found = read(paths[0])
    assert found == [(context, row)]
    assert (record.complete, record.torn, record.summary) == (False, False, None)


def test_a_failed_append_leaves_no_row(fresh, context, row):
    def rows_of_a_broken_source():
        yield row
        raise ZeroDivisionError

    with fresh() as journal:
        with pytest.raises(ZeroDivisionError):
            journal.append_many(context, rows_of_a_broken_source())
        journal.append(context, row)
    assert read(journal.path)[1] == [(context, row)]


def test_a_full_disk_leaves_whole_lines_and_room_makes_it_go_on(fresh, context, row, monkeypatch):
    real = os.write

    def short(file, data):
        if len(data) > 40:
            return real(file, data[:40])
        raise OSError(28, "No space left on device")

    journal = fresh()
    journal.append(context, row)
    monkeypatch.setattr("lightrig.harness.record.journal.os.write", short)
    with pytest.raises(RecordError, match="No space left"):
        journal.append_many(dataclasses.replace(context, test="new"), [row, row])
    monkeypatch.undo()
    journal.append(dataclasses.replace(context, test="new"), row)
    journal.close()
    assert [c.test for c, _ in read(journal.path)[1]] == ["test_pairs", "new"]


def test_a_write_that_goes_in_pieces_is_whole(fresh, context, row, monkeypatch):
    real = os.write
    monkeypatch.setattr("lightrig.harness.record.journal.os.write", lambda f, d: real(f, d[:7]))
    with fresh() as journal:
        journal.append(context, row)
    assert read(journal.path)[1] == [(context, row)]


def test_a_torn_line_that_cannot_be_withdrawn_is_the_last(fresh, context, row, monkeypatch):
    def fails(*_):
        raise OSError(5, "Input/output error")

    journal = fresh()
    journal.append(context, row)
    monkeypatch.setattr("lightrig.harness.record.journal.os.write", fails)
    monkeypatch.setattr("lightrig.harness.record.journal.os.ftruncate", fails)
    with pytest.raises(RecordError, match="torn at byte"):
        journal.append(context, row)
    monkeypatch.undo()
    with pytest.raises(RecordError, match="is closed"):
        journal.append(context, row)


def test_threads_share_a_journal(fresh, context, row):
    def work(name):
        mine = dataclasses.replace(context, test=name)
        for number in range(200):
            journal.append(mine, dataclasses.replace(row, time_ns=number))

    with fresh() as journal:
        threads = [threading.Thread(target=work, args=(f"test_{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = read(journal.path)[1]
    for n in range(4):
        assert [r.time_ns for c, r in found if c.test == f"test_{n}"] == list(range(200))


def test_a_line_torn_at_any_byte_costs_that_line_only(fresh, context, row):
    with fresh() as journal:
        journal.append_many(context, [row, row, dataclasses.replace(row, subject="größer €")])
    lines = journal.path.read_bytes().splitlines(keepends=True)
    head, last = b"".join(lines[:4]), lines[4]
    torn = journal.path.with_suffix(".torn")
    for length in range(len(last)):
        torn.write_bytes(head + last[:length])
        record, found = read(torn)
        assert found == [(context, row)] * 2
        assert (record.complete, record.torn) == (False, length > 0)


def test_rows_written_after_the_reading_began_are_left_out(fresh, context, row):
    with fresh() as journal:
        journal.append(context, row)
        record = read_journal(journal.path)
        journal.append(context, row)
        assert len(list(record.rows())) == len(list(record.rows())) == 1
        assert not record.complete


@pytest.fixture
def filled(fresh, context, row):
    with fresh() as journal:
        journal.append_many(context, [row, row])
    return journal.path


@pytest.mark.parametrize(
    ("line", "text", "says"),
    [
        (1, "", "no JSON at column 1: Expecting value"),
        (1, "[1]", "expected an object"),
        (1, '{"run":"r1","night":"2026-03-14"}', "no schema"),
        (1, '{"run":"/","night":"2026-03-14","schema":1}', "run '/'"),
        (2, '{"context":0}', "instruments: found None"),
        (2, '{"context":"0","instruments":[]}', "expected an integer"),
        (2, '{"context":0,"instruments":[]}', "testbed: found ''"),
        (2, '{"con":0}', "neither context, test nor closing"),
        (3, "[0,x]", "no JSON at column 4: Expecting value"),
        (3, "[0,1]", "expected a list of 9"),
        (3, "[[],1,2,3,4,5,6,7,8]", "context: found"),
        (3, '[9,"s","q",1,null,null,"ns",1,{}]', "no context 9"),
        (3, '[0,"s","q",NaN,null,null,"ns",1,{}]', "finite"),
        (3, '[0,"s","q",1,2,null,"ns",1,{}]', "lower 2 is above"),
        (3, "[" * 100_000 + "]", "no JSON: maximum recursion"),
        (3, "[" + "1" * 5000 + "]", "no JSON: Exceeds the limit"),
        (3, "[0,\udcff]", "no JSON: 'utf-8' codec"),
        (3, '{"test":{"nodeid":"t"}}', "expected the fields details, duration_s, nodeid, outcome"),
        (3, '{"test":{"details":0,"duration_s":1,"nodeid":"t","outcome":"x"}}', "details: found 0"),
        (3, '{"test":{"details":{},"duration_s":-1,"nodeid":"t","outcome":"x"}}', "seconds from 0"),
        (3, '{"end":{}}', "after the closing line"),
        (4, '{"context":0}', "instruments"),
    ],
)
def test_damage_is_located(filled, line, text, says):
    lines = filled.read_text().splitlines()
    lines[line - 1] = sealed(text)
    filled.write_text("\n".join(lines) + "\n", errors="surrogateescape")
    with pytest.raises(JournalDamagedError, match=says) as caught:
        read(filled)
    assert caught.value.line == line + (says == "after the closing line")
    assert str(caught.value).startswith(f"{filled}:{caught.value.line}: ")


def sealed(text):
    """Return a line whose checksum is right although its content is not."""
    if text[-1:] not in {"]", "}"}:
        return text
    checksum = zlib.crc32(text.encode(errors="surrogateescape"))
    name = "," if text[-1] == "]" else ',"crc":'
    return f'{text[:-1]}{name}"{checksum:08x}"{text[-1]}'


@settings(deadline=None)
@given(st.data())
def test_a_changed_byte_is_never_another_value(data):
    context = Context("opus", "test", ("Polatis",), True)
    row = Row("ocs", "loss", 1.25, 1.0, 1.5, "dB", 7, {"moved": 4})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "20260314-j", "journal.jsonl")
        write(path, [(context, [row, row])])
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        try:
            record = read_journal(path, salvage=True)
        except RecordError:
            return
        found = list(record.rows())
    assert all(each == (context, row) for each in found)
    assert len(found) == 2 or record.damage or record.torn


@settings(deadline=None)
@given(st.data())
def test_a_changed_byte_is_a_located_error_or_another_record(data):
    context = Context("opus", "test", ("Polatis",), True)
    row = Row("ocs", "loss", 1.25, 1.0, 1.5, "dB", 7, {"moved": 4})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "j")
        write(path, [(context, [row, row])])
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        printed = f"{path}:"
        try:
            read(path)
        except RecordError as error:
            printed = str(error)
        assert printed.startswith(f"{path}:")


@pytest.mark.parametrize("content", [b"", b'{"run"'])
def test_a_journal_without_header_is_reported(tmp_path, content):
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(JournalEmptyError, match=":1: the run header is missing or torn"):
        read_journal(path)


def test_a_newer_schema_is_no_damage(tmp_path):
    path = tmp_path / "j"
    path.write_text('{"run":"r","night":"2026-03-14","schema":4}\n')
    with pytest.raises(
        RecordError, match="found journal schema 4, expected one of 1, 2, 3; read it"
    ):
        read_journal(path)


def test_the_first_schema_knew_no_lines_of_tests(tmp_path):
    path = tmp_path / "j"
    header = '{"run":"r","night":"2026-03-14","schema":1}\n'
    path.write_text(header + '{"test":{"details":{},"duration_s":1,"nodeid":"t","outcome":"x"}}\n')
    with pytest.raises(JournalDamagedError, match="neither context, test nor closing"):
        read_journal(path)
    path.write_text(header)
    assert read_journal(path).tests == ()


def test_whether_a_process_writes_a_journal_is_known(fresh, context, row):
    journal = fresh()
    assert is_written(journal.path)
    with (
        pytest.raises(JournalInUseError, match="still goes on"),
        locked(journal.path, journal.path.parent),
    ):
        raise AssertionError
    journal.append(context, row)
    journal.close()
    assert not is_written(journal.path)
    with locked(journal.path, journal.path.parent):
        assert is_written(journal.path)
    assert not is_written(journal.path)


def test_no_file_is_no_journal(tmp_path):
    with pytest.raises(RecordError, match="No such file"):
        read_journal(tmp_path / "j")
    with pytest.raises(RecordError, match="Is a directory"):
        read_journal(tmp_path)


def test_the_rows_of_an_event_are_all_there_or_none(tmp_path, monkeypatch):
    """A process that dies between two writes has written none of them."""
    context = Context("lab", "test_x", (), True, {})
    found = [Row(f"p{n}", "outage.carrier", n, n, n, "ns", n, {}) for n in range(3)]
    journal = Journal(tmp_path / "journal.jsonl", HEADER)
    write, count = os.write, []

    def dies(file, data):
        if count:
            raise KeyboardInterrupt
        count.append(None)
        return write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", dies)
        journal.append_many(context, found)
    count.clear()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", dies)
        journal.append_many(context, found)
    journal.close()
    _, rows = read(tmp_path / "journal.jsonl")
    assert [row.subject for _, row in rows] == ["p0", "p1", "p2"] * 2
