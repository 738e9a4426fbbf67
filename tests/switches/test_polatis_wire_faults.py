"""A Polatis whose answers make no sense, over SCPI, NETCONF and RESTCONF; TL1 is tried apart."""

import threading

import pytest
from switch_rig import QUICK

from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    NoReplyError,
)
from lightrig.instruments.simulated.devices.polatis_scpi import PolatisScpi
from lightrig.instruments.simulated.devices.polatis_yang import PolatisYang
from lightrig.instruments.wire.framing import Scpi
from lightrig.instruments.wire.pipelined import Pipeline
from lightrig.instruments.wire.restconf import RestconfSession
from lightrig.instruments.wire.scpi import ScpiSession
from lightrig.testbeds import Circuit

MS = 1_000_000

QUESTIONS = {
    "identity": lambda switch: switch.identity(),
    "size": lambda switch: switch.size(),
    "circuits": lambda switch: switch.circuits(),
    "monitored": lambda switch: switch.monitored(),
    "power": lambda switch: switch.power([17, 18]),
    "shutters": lambda switch: switch.shutters([1, 2]),
    "attenuation": lambda switch: switch.attenuation(17),
}

SCPI = [
    ("size", "OXC:SWIT:SIZE?", "16"),
    ("size", "OXC:SWIT:SIZE?", "16,x"),
    ("circuits", "OXC:SWIT:CONN:STAT?", "(@1,2),(@17)"),
    ("circuits", "OXC:SWIT:CONN:STAT?", "1,17"),
    ("circuits", "OXC:SWIT:CONN:STAT?", "(@1),(@seventeen)"),
    ("power", "PMON:POW?", "(-1.0)"),
    ("power", "PMON:POW?", "-1.0,-2.0"),
    ("power", "PMON:POW?", "(-1.0,--)"),
    ("shutters", "OXC:SWIT:PORT:STAT?", "(E)"),
    ("shutters", "OXC:SWIT:PORT:STAT?", "(E,X)"),
]


def let_scpi_answer(monkeypatch, query, answer):
    """Let simulated units reply to a query, in short form, by what `answer` returns."""
    execute = PolatisScpi.execute

    def changed(self, header, arguments):
        found = execute(self, header, arguments)
        return answer(found) if header == query else found

    monkeypatch.setattr(PolatisScpi, "execute", changed)


@pytest.mark.parametrize(("question", "query", "answer"), SCPI)
def test_invalid_scpi_replies(virtual, monkeypatch, question, query, answer):
    let_scpi_answer(monkeypatch, query, lambda _: answer)
    switch = virtual(scheme="scpi").driver()
    with pytest.raises(GarbledError, match="ocs answered something that is no ") as raised:
        QUESTIONS[question](switch)
    assert answer in str(raised.value)
    assert switch.identity().simulated


def test_scpi_identity_with_too_few_fields(virtual, monkeypatch):
    monkeypatch.setattr(
        "lightrig.instruments.simulated.devices.polatis_scpi.MANUFACTURER", "Polatis,"
    )
    with pytest.raises(GarbledError, match="no identity"):
        virtual(scheme="scpi").driver().identity()


YANG = [
    ("identity", "leaves", {"manufacturer": "Polatis"}),
    ("size", "leaves", {"model-name": "N-VST", **dict.fromkeys(
        ("manufacturer", "serial-number", "software-version"), "x")}),
    ("circuits", "entries", [{"ingress": 1}]),
    ("circuits", "entries", [{"ingress": 1, "egress": "x"}]),
    ("monitored", "entries", [{"port-id": "x"}]),
    ("power", "entries", [{"port-id": 17, "averaging-time": 9, "power": -1.0}]),
    ("power", "entries", [{"port-id": 17, "averaging-time": 1, "power": -1.0}]),
    ("power", "entries", [{"port-id": p, "averaging-time": 1, "power": "--"} for p in (17, 18)]),
    ("power", "entries", [{"port-id": "x", "averaging-time": 1}]),
    ("shutters", "entries", [{"port-id": 1, "status": "ENABLED"}]),
    ("attenuation", "entries", []),
    ("attenuation", "entries", [{"port-id": 17, "atten-mode": "VOA_MODE_RELATIVE",
                                 "atten-level": "loud"}]),
]  # fmt: skip


@pytest.mark.parametrize("scheme", ["netconf", "restconf"])
@pytest.mark.parametrize(("question", "method", "answer"), YANG)
def test_data_that_make_no_sense(virtual, monkeypatch, scheme, question, method, answer):
    monkeypatch.setattr(PolatisYang, method, lambda *_: answer)
    switch = virtual(scheme=scheme).driver()
    with pytest.raises(GarbledError, match="ocs answered something that is no "):
        QUESTIONS[question](switch)


def test_an_answer_about_another_resource(virtual, monkeypatch):
    """Without it, what a product says of itself would be taken for no circuits at all."""
    switch = virtual(scheme="restconf").driver()
    honest = RestconfSession.get
    product = "data/optical-switch:product-information"
    monkeypatch.setattr(RestconfSession, "get", lambda self, _: honest(self, product))
    with pytest.raises(GarbledError, match="no container cross-connects"):
        switch.circuits()


# ---------------------------------------------------------- acknowledgements over SCPI


@pytest.fixture
def acknowledged_by(monkeypatch):
    """Replies of the switch to *OPC?, instead of 1."""

    def make(answer):
        said = iter([answer])
        let_scpi_answer(monkeypatch, "*OPC?", lambda found: next(said, found))

    return make


def test_an_acknowledgement_that_is_none(virtual, acknowledged_by):
    switch = virtual(scheme="scpi").driver()
    switch.circuits()
    acknowledged_by("17")
    operation = switch.change([], [Circuit(1, 17)])
    with pytest.raises(GarbledError, match="no acknowledgement") as raised:
        operation.done()
    assert "17" in str(raised.value)
    assert switch.circuits() == {Circuit(1, 17)}


def test_an_acknowledgement_that_never_comes(virtual, acknowledged_by):
    rig = virtual(scheme="scpi")
    switch = rig.driver()
    switch.circuits()
    acknowledged_by(None)
    before = rig.clock.now()
    operation = switch.change([], [Circuit(1, 17)])
    with pytest.raises(NoReplyError, match="did not answer within 5 s") as raised:
        operation.done()
    assert raised.value.command == ":OXC:SWIT:CONN:ADD (@1),(@17)"
    assert rig.clock.now() - before < 6_000 * MS
    assert switch.circuits() == {Circuit(1, 17)}


def test_a_switch_that_hangs_up_over_a_change(virtual, monkeypatch):
    hangs_up = threading.Event()
    session = PolatisScpi.session

    class Line:
        """A client's connection, which ends where it was to have a reply."""

        def __init__(self, connection):
            self.connection, self.close = connection, connection.close

        def send(self, data):
            if hangs_up.is_set():
                self.close()
            else:
                self.connection.send(data)

    monkeypatch.setattr(
        PolatisScpi, "session", lambda self, line, index: session(self, Line(line), index)
    )
    rig = virtual(scheme="scpi")
    switch = rig.driver()
    switch.circuits()
    hangs_up.set()
    operation = switch.change([], [Circuit(1, 17)])
    with pytest.raises(DisconnectedError, match="closed the connection") as raised:
        operation.done()
    assert raised.value.command == ":OXC:SWIT:CONN:ADD (@1),(@17)"
    hangs_up.clear()
    switch.change([], [Circuit(2, 18)]).done()
    assert switch.circuits() == {Circuit(1, 17), Circuit(2, 18)}


def test_old_errors_are_not_those_of_a_change(virtual):
    rig = virtual(scheme="scpi")
    switch = rig.driver()
    switch.circuits()
    line = Pipeline("typed", rig.host, rig.port, rig.clock, Scpi())
    typed = ScpiSession("typed", line.open, rig.clock)
    typed.write("nonsense")
    rig.clock.sleep(10 * MS)  # until the switch has read it
    typed.close()
    switch.change([], [Circuit(1, 17)]).done()
    with pytest.raises(DeniedError, match="-222"):
        switch.change([], [Circuit(2, 99)]).done()
    switch.change([], [Circuit(2, 18)]).done()


def test_in_real_time_too(real, acknowledged_by):
    assert QUICK.acknowledge.mean == 2 * MS
    switch = real(scheme="scpi").driver()
    switch.circuits()
    acknowledged_by("0")
    with pytest.raises(GarbledError, match="no acknowledgement"):
        switch.change([], [Circuit(1, 17)]).done()
    assert switch.circuits() == {Circuit(1, 17)}
