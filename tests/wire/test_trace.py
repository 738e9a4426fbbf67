"""A trace keeps the newest pieces with their times, and no secrets."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from instruments.virtual_clock import VirtualClock
from instruments.wire.trace import Trace


@pytest.fixture
def clock():
    made = VirtualClock()
    yield made
    made.close()


def test_pieces_are_stamped_and_told_apart(clock):
    trace = Trace(clock)
    trace.sent("RTRV-HDR:::1:;")
    clock.sleep(1_500_000)
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


def test_only_the_newest_are_kept(clock):
    trace = Trace(clock, keep=3)
    for number in range(10):
        trace.sent(str(number))
    assert [piece.text for piece in trace.pieces()] == ["7", "8", "9"]
    assert len(trace.tail(6)) == 3


@given(st.text(), st.text(min_size=4), st.text(min_size=4), st.text())
def test_secrets_never_get_in(before, secret, another, after):
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
