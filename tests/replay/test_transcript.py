"""A transcript is read as it was written, and what is none is told with its line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.instruments.core import transcript
from lightrig.instruments.core.transcript import (
    Piece,
    TranscriptError,
    about_line,
    first_line,
    read,
)

pieces = st.builds(
    Piece,
    at=st.integers(0, 1 << 62),
    session=st.integers(1, 9),
    kind=st.sampled_from([">", "<", "!", "open", "end"]),
    data=st.one_of(st.binary(max_size=40), st.from_regex(rb"[ -~\r\n\t]{0,40}", fullmatch=True)),
)
ABOUT = {"instrument": "ocs", "when": "2026-01-05T01:30:00Z", "clock": "system"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("traces") / "ocs.jsonl"


@given(st.lists(pieces, max_size=8))
def test_a_written_transcript_is_read(path, found):
    lines = [first_line(ABOUT), *(piece.line().decode().rstrip("\n") for piece in found)]
    lines.insert(len(lines) // 2 + 1, about_line({"model": "polatis"}))
    path.write_text("".join(line + "\n" for line in lines))
    made = read(path)
    assert made.about == {**ABOUT, "model": "polatis"}
    assert made.pieces == tuple(found)


def test_text_is_readable_and_binary_data_is_not_lost(path):
    text = Piece(1, 1, "<", b'\r\n\n   "33:-3.25"\r\n;').line().decode()
    assert r'"text": "\r\n\n   \"33:-3.25\"\r\n;"' in text
    assert b'"base64": "/wA="' in Piece(1, 1, "<", b"\xff\0").line()


@given(st.text(st.sampled_from('\\"\t\r\n /~1'), max_size=12))
def test_text_is_written_as_json_writes_it(text):
    written = Piece(3, 2, ">", text.encode()).line()
    expected = json.dumps({"at": 3, "session": 2, "kind": ">", "text": text})
    assert written == expected.encode() + b"\n"


def test_a_last_line_that_was_cut_short_is_passed_over(path):
    whole = [first_line(ABOUT), Piece(1, 1, ">", b"*IDN?\n").line().decode().rstrip()]
    path.write_text("\n".join(whole) + '\n{"at": 17, "sess')
    assert len(read(path).pieces) == 1


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "1: no line of a trace: the file is empty"),
        (["nonsense"], "1: no line of a trace"),
        (['{"lightrig trace": 2}', ""], "says no 'lightrig trace' of version 1"),
        (["{}", ""], "1: no line"),
        ([first_line(ABOUT), "nonsense", ""], "2: no line"),
        ([first_line(ABOUT), '{"at": 1}', ""], "2: no line of a trace: 'kind'"),
        (
            [
                first_line(ABOUT),
                '{"at": 1%s, "session": 1, "kind": "<", "text": ""}' % ("0" * 300),
                "",
            ],
            "2: no line of a trace: a time that is none of a clock",
        ),
        (
            [first_line(ABOUT), '{"at": 1, "session": 1, "kind": "?", "text": ""}', ""],
            r"unknown kind '\?'",
        ),
        (
            [first_line(ABOUT), '{"at": 1, "session": 1, "kind": "<", "base64": "!"}', ""],
            "2: no line",
        ),
        ([first_line(ABOUT), "[1]", ""], "2: no line"),
    ],
)
def test_an_invalid_transcript_is_refused(path, lines, why):
    path.write_text("\n".join(lines))
    with pytest.raises(TranscriptError, match=why):
        read(path)


def test_the_version_is_in_the_first_line():
    assert transcript.VERSION == 1
    assert first_line({}) == '{"lightrig trace": 1}'
