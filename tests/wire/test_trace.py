"""A trace stores the newest pieces with their times, without secrets."""

import json
import tracemalloc

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.wire.trace import Trace, record


def test_pieces_have_stamps_and_directions(virtual_clock):
    trace = Trace(virtual_clock)
    trace.sent("RTRV-HDR:::1:;")
    virtual_clock.sleep(1_500_000)
    trace.received("\r\n\nM  1 COMPLD\r\n;")
    trace.remarked("the peer closed the connection")
    assert [(piece.at, piece.direction) for piece in trace.pieces()] == [
        (0, ">"),
        (1_500_000, "<"),
        (1_500_000, "!"),
    ]
    assert trace.tail() == [
        "      0.000000 > RTRV-HDR:::1:;",
        "      0.001500 < \\r\\n\\nM  1 COMPLD\\r\\n;",
        "      0.001500 ! the peer closed the connection",
    ]
    assert trace.tail(1) == trace.tail()[-1:]


def test_trace_is_bounded(virtual_clock):
    trace = Trace(virtual_clock, length=3)
    for number in range(10):
        trace.sent(str(number))
    assert [piece.text for piece in trace.pieces()] == ["7", "8", "9"]
    assert len(trace.tail(6)) == 3


@pytest.mark.parametrize("letter", ["a", "ß", "Ω", "\U0001d538"])
def test_a_trace_takes_bounded_memory(virtual_clock, letter):
    """The memory is that of Python's own account of what it has allocated."""
    trace = Trace(virtual_clock)
    tracemalloc.start()
    for number in range(6000):
        trace.received(letter * (number * 37 % 911) + str(number))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 24_000
    texts = [piece.text for piece in trace.pieces()]
    assert texts[-1] == letter * (5999 * 37 % 911) + "5999"
    assert len(texts) > 6
    for number in range(9):
        trace.sent(letter * 16_000_000 if number % 2 else f"short {number}")
    long, short = [piece.text for piece in trace.pieces()][-2:]
    assert short == "short 8"
    assert long.startswith(letter * 2500 + " [15995000 characters] " + letter)


def test_a_secret_amid_a_long_piece_is_not_cut(virtual_clock):
    """A half of it would be no longer found."""
    trace = Trace(virtual_clock)
    trace.mask("hunter2-never-shown")
    for before in range(2485, 2505):
        trace.received("x" * before + "hunter2-never-shown" + "y" * 20_000)
    assert not any("hunter2" in piece.text for piece in trace.pieces())


@given(st.text(), st.text(min_size=4), st.text(min_size=4), st.text())
def test_secrets_are_masked(before, secret, another, after):
    if "*" in secret + another:
        return
    clock = VirtualClock()
    trace = Trace(clock)
    trace.mask(secret)
    trace.mask(another)
    trace.mask("")
    for note in (trace.sent, trace.received, trace.remarked):
        note(before + secret + another + after)
    for piece in trace.pieces():
        assert secret not in piece.text
        assert another not in piece.text
    assert "***" in trace.masked(secret)
    clock.close()


def test_recorded_pieces_are_those_of_each_session(virtual_clock, tmp_path):
    """Two sessions with one instrument, one with another; none before or after the recording."""
    early = Trace(virtual_clock, instrument="ocs")
    early.opened("connected", "tcp")
    early.sent("before")
    recorder = record(virtual_clock, tmp_path)
    for instrument, text in (("ocs", "one"), ("laser/2", "two"), ("ocs", "three")):
        trace = Trace(virtual_clock, instrument=instrument)
        trace.mask("secret")
        trace.opened("connected", "socket://192.0.2.1")
        virtual_clock.sleep(5)
        trace.sent(f"{text} secret", b"bytes secret" if text == "three" else None)
        trace.received("reply")
        trace.remarked("late")
        trace.ended("closed")
    recorder.close()
    trace.sent("after")
    files = {path.name: path.read_text().splitlines() for path in tmp_path.iterdir()}
    assert sorted(files) == ["laser_2.jsonl", "ocs.jsonl"]
    head, *pieces = map(json.loads, files["ocs.jsonl"])
    assert head["instrument"] == "ocs"
    assert head["clock"] == "virtual"
    assert [tuple(piece.values()) for piece in pieces] == [
        *((0, 1, "open", "socket://192.0.2.1"), (5, 1, ">", "one ***"), (5, 1, "<", "reply")),
        *((5, 1, "!", "late"), (5, 1, "end", "closed")),
        *((10, 2, "open", "socket://192.0.2.1"), (15, 2, ">", "bytes ***"), (15, 2, "<", "reply")),
        *((15, 2, "!", "late"), (15, 2, "end", "closed")),
    ]
    assert trace.tail(2)[-1].endswith("> after")
