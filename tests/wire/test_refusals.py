"""A refusal in the words of whoever refused."""

import pytest

from instruments.errors import CANNOT, DeniedError, InstrumentError


def test_an_instruments_code_and_text():
    error = DeniedError("meter", code="-222", text="Data out of range", command="POW 99")
    assert isinstance(error, InstrumentError)
    assert (error.code, error.text, error.command) == ("-222", "Data out of range", "POW 99")
    assert str(error).splitlines() == [
        "meter denied a command",
        "  sent      POW 99",
        "  answered  -222 Data out of range",
    ]


def test_its_own_words_where_they_say_more():
    error = DeniedError(
        "ocs",
        code="IDNV",
        text="Invalid OXC port: 35",
        command="ENT-PATCH::3,35:7:;",
        answered="DENY IDNV Invalid OXC port: 35",
        details=[("meaning", "no such port")],
        trace=["the wire"],
    )
    assert str(error).splitlines()[2:] == [
        "  answered  DENY IDNV Invalid OXC port: 35",
        "  meaning   no such port",
        "  last on the wire",
        "    the wire",
    ]


@pytest.mark.parametrize("command", ["", "change"])
def test_a_driver_that_knows_better_sends_nothing(command):
    error = DeniedError("ocs", code=CANNOT, text="it has no dark position", command=command)
    assert (error.code, error.command) == ("cannot", command)
    assert str(error).splitlines() == [
        "ocs cannot do what was asked: it has no dark position",
        *(["  asked     change"] if command else []),
    ]
