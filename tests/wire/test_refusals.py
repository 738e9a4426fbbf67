"""The text of a refusal by an instrument or by its driver."""

import pytest

from lightrig.instruments.core.errors import CANNOT, DeniedError, InstrumentError


def test_refusal_shows_code_and_text():
    error = DeniedError("meter", code="-222", text="Data out of range", command="POW 99")
    assert isinstance(error, InstrumentError)
    assert (error.code, error.text, error.command) == ("-222", "Data out of range", "POW 99")
    assert str(error).splitlines() == [
        "meter denied a command",
        "  sent      POW 99",
        "  answered  -222 Data out of range",
    ]


def test_refusal_shows_the_raw_reply_where_it_differs():
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
def test_refusal_by_the_driver_shows_no_reply(command):
    error = DeniedError("ocs", code=CANNOT, text="it has no dark position", command=command)
    assert (error.code, error.command) == ("cannot", command)
    assert str(error).splitlines() == [
        "ocs cannot do what was asked: it has no dark position",
        *(["  asked     change"] if command else []),
    ]
