"""Messages are cut where they end, however the bytes arrive."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.instruments.wire.framing import (
    LONGEST,
    Bracketed,
    Framing,
    FramingError,
    Lines,
    Scpi,
    Sized,
)


def cut_all(framing: Framing, pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    """Return the messages of bytes that come in these pieces, and the rest."""
    found, buffer = [], b""
    for piece in pieces:
        buffer += piece
        while buffer and (cut := framing.cut(buffer)) is not None:
            message, taken = cut
            assert taken > 0
            found.append(message)
            buffer = buffer[taken:]
    return found, buffer


def torn(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(marks)]


def block(data: bytes) -> bytes:
    length = str(len(data))
    return f"#{len(length)}{length}".encode() + data


places = st.lists(st.integers(0, 500), max_size=8)
word = st.from_regex(rb"[!-~]([ -~]{0,20}[!-~])?", fullmatch=True)
not_a_block = word.filter(lambda text: not text.startswith(b"#"))


@given(st.lists(word), places, st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_lines(messages, marks, end):
    data = b"".join(each + end for each in messages)
    assert cut_all(Lines(end), torn(data, marks)) == (messages, b"")


def test_empty_lines_are_skipped():
    assert cut_all(Lines(), [b"\r\n\n1.5\r\n\n", b"2.5\n\r"]) == ([b"1.5", b"2.5"], b"\r")


@given(st.lists(st.from_regex(rb"<[ -;=?-~]*>", fullmatch=True)), places)
def test_bracketed(messages, marks):
    data = b"".join(each + b"\r\n" for each in messages)
    found, rest = cut_all(Bracketed(), torn(data, marks))
    assert found == messages
    assert rest.strip() == b""


@given(st.binary(max_size=60), st.integers(1, 8), places)
def test_sized(data, size, marks):
    found, rest = cut_all(Sized(size), torn(data, marks))
    assert b"".join(found) + rest == data
    assert {len(each) for each in found} <= {size}
    assert len(rest) < size


@given(
    st.lists(st.one_of(not_a_block, st.binary(max_size=300).map(block))),
    places,
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_scpi_lines_and_blocks(answers, marks, end):
    data = b"".join(each + end for each in answers)
    assert cut_all(Scpi(), torn(data, marks)) == (answers, b"")


@pytest.mark.parametrize(
    ("framing", "data", "why"),
    [
        (Bracketed(), b"OK<Q>", "does not begin with <"),
        (Scpi(), b"#2xx", "length cannot be b'xx'"),
        (Scpi(), b"#3004abcde\n", "longer than announced"),
        (Scpi(), b"#9%09d" % (LONGEST + 1), "bytes is announced"),
    ],
)
def test_invalid_beginnings_raise_framing_error(framing, data, why):
    with pytest.raises(FramingError, match=why):
        framing.cut(data)


@pytest.mark.parametrize("data", [b"#", b"#1", b"#14ab", b"#14abcd", b"#14abcd\r", b"1.0"])
def test_incomplete_messages_return_none(data):
    assert Scpi().cut(data) is None


def test_trace_text_of_messages():
    assert Lines().show(b"P\xff\n") == "P\\xff\n"
    assert Bracketed().show(b"<OSW>") == "<OSW>"
    assert Sized(3).show(b"\x01\x00\xff") == "01 00 ff"
    assert Scpi().show(b"1.25") == "1.25"
    assert Scpi().show(block(b"\xff" * 300)).endswith("\\xff... (305 bytes)")
