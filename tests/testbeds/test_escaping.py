"""Text from outside is shown, and does nothing where it is shown."""

import csv
import io
import unicodedata

import pytest

from lightrig.testbeds import LightrigError, TestbedError
from lightrig.testbeds.errors import Problem
from lightrig.testbeds.escaping import escape_cell, escape_control, escape_line

PLAIN = "41.4 ms … 95 % ≥ 3 µm, 日本語, Łódź, \U0001f4a1, a\tb\nc \\x1b"


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),  # CSI in one character
        ("ok\rwrong", r"ok\rwrong"),
        ("a\x08b\x7f\x00", r"a\x08b\x7f\x00"),
        ("drawkcab\u202e\u2066", r"drawkcab\u202e\u2066"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("file\udcff", r"file\udcff"),
    ],
)
def test_control_characters_are_shown(hostile, shown):
    assert escape_control(hostile) == shown
    assert escape_control(shown) == shown
    assert str(LightrigError(hostile)) == shown
    assert str(TestbedError([Problem("lab.yaml", 1, 2, hostile)])) == f"lab.yaml:1:2: {shown}"


def test_no_control_character_of_unicode_is_left():
    every = "".join(map(chr, range(0x10000)))
    escaped = escape_control(every)
    left = {c for c in escaped if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"}}
    assert left == {"\t", "\n"}
    directions = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not {c for c in escaped if unicodedata.bidirectional(c) in directions}


def test_other_text_stays():
    assert escape_control(PLAIN) == PLAIN
    assert escape_line("a\tb\nc") == r"a\tb\nc"


@pytest.mark.parametrize("formula", ["=1+2", "+1", "-1", "@SUM(A1)", "=cmd|'/C calc'!A0"])
def test_a_cell_is_no_formula(formula):
    assert escape_cell(formula) == f"'{formula}"
    assert escape_cell(f"\t{formula}") == rf"\t{formula}"
    assert escape_cell(f"ocs {formula}") == f"ocs {formula}"


def test_a_cell_is_read_back_in_one_line():
    stream = io.StringIO()
    csv.writer(stream).writerow([escape_cell('a"b\r\nc,d'), "1"])
    assert list(csv.reader(io.StringIO(stream.getvalue()))) == [[r'a"b\r\nc,d', "1"]] or (
        list(csv.reader(io.StringIO(stream.getvalue()))) == [['a"b\\r\\nc,d', "1"]]
    )
