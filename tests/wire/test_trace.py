"""A trace stores the newest pieces with their times, without secrets."""

import hypothesis.strategies as st
from hypothesis import given

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.wire.trace import Trace


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
