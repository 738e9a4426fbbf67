"""Matrix switches of other makers: what is asked is made, read back, nobody else's is touched."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lightrig.harness.bench import Bench, bind
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.instruments.simulated.devices.simulated_calient_s import PAGE
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.wire.tl1 import Tl1Session
from lightrig.testbeds import Circuit, load

N = 24
MODELS = {"calient-s": "tl1", "sonic-ocs": "ssh", "dicon-gp600": "scpi"}
FILE = """
name: matrix
switches:
  ocs: {{model: {model}, address: "{scheme}://ocs.invalid", size: 24x24, options: {{{options}}}}}
"""


@contextmanager
def bench(folder: Path, model: str, options: str = "") -> Iterator[Bench]:
    path = folder / "matrix.yaml"
    path.write_text(FILE.format(model=model, scheme=MODELS[model], options=options))
    bound = bind(load(path), "simulated", seed=4)
    try:
        yield bound
    finally:
        bound.close()


def set_to(bound: Bench, wanted: set[Circuit]) -> None:
    switch = bound.switches["ocs"]
    held = switch.circuits()
    operation = switch.change(held - wanted, wanted - held)
    assert operation.done().latest >= operation.sent.earliest


permutations = st.permutations(range(1, N + 1)).flatmap(
    lambda order: st.integers(0, N).map(
        lambda count: {Circuit(i + 1, N + order[i]) for i in range(count)}
    )
)


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=4)
@given(sequence=st.lists(permutations, min_size=2, max_size=3))
def test_requested_circuits_are_made(
    tmp_path_factory: pytest.TempPathFactory, model: str, sequence: list[set[Circuit]]
) -> None:
    with bench(tmp_path_factory.mktemp("matrix"), model) as bound:
        for wanted in sequence:
            set_to(bound, wanted)
            assert bound.switches["ocs"].circuits() == wanted


@pytest.mark.parametrize("model", MODELS)
def test_identity_is_complete(tmp_path: Path, model: str) -> None:
    with bench(tmp_path, model) as bound:
        identity = bound.identities["ocs"]
        assert identity.simulated
        assert identity.model
        assert identity.firmware


@pytest.mark.parametrize("model", ["calient-s", "sonic-ocs"])
def test_a_busy_port_is_denied_with_the_switchs_text(tmp_path: Path, model: str) -> None:
    with bench(tmp_path, model) as bound:
        set_to(bound, {Circuit(1, N + 2)})
        with pytest.raises(DeniedError) as denied:
            bound.switches["ocs"].change(set(), {Circuit(3, N + 2)}).done()
        assert "ocs" in str(denied.value)
        assert "in use" in denied.value.text or "Not Idle" in denied.value.text
        set_to(bound, {Circuit(3, N + 2)})


@pytest.mark.parametrize("model", MODELS)
def test_a_port_that_does_not_exist_is_denied(tmp_path: Path, model: str) -> None:
    with bench(tmp_path, model) as bound, pytest.raises(DeniedError):
        bound.switches["ocs"].change(set(), {Circuit(1, 2 * N + 1)}).done()


def test_dicon_makes_a_whole_change_in_one_write(tmp_path: Path) -> None:
    with bench(tmp_path, "dicon-gp600") as bound:
        wanted = {Circuit(i, N + i) for i in range(1, N + 1)}
        bound.switches["ocs"].change(set(), wanted).done()
        asked = [line for line in bound.switches["ocs"].wire() if "X1 CH 1 1" in line]
        assert len(asked) == 1
        assert "X1 CH 24 24" in asked[0]


@pytest.mark.parametrize("other", [Circuit(3, N + 9), Circuit(5, N + 7)], ids=["ingress", "egress"])
def test_dicon_is_not_asked_for_a_port_in_two_circuits(tmp_path: Path, other: Circuit) -> None:
    """Its commands make one circuit each: the later one would take the port of the earlier."""
    with bench(tmp_path, "dicon-gp600") as bound:
        switch = bound.switches["ocs"]
        with pytest.raises(DeniedError, match="a port is in two circuits") as refused:
            switch.change([], [Circuit(3, N + 7), other]).done()
        assert (refused.value.code, switch.circuits()) == (CANNOT, frozenset())


def test_dicon_reads_old_errors_before_a_change(tmp_path: Path) -> None:
    """Entries that another program left refuse no change; one of the change itself does."""
    with bench(tmp_path, "dicon-gp600") as bound:
        switch = bound.switches["ocs"]
        for command in ("X1 CH 77 1", "NONSENSE"):
            switch.session.write(f"{command}{switch.command_end}".encode())
        set_to(bound, {Circuit(3, N + 5)})
        assert switch.circuits() == {Circuit(3, N + 5)}


# ------------------------------------------------------------------------------- Calient


def test_calient_pages_a_long_answer(tmp_path: Path) -> None:
    with bench(tmp_path, "calient-s") as bound:
        wanted = {Circuit(i, N + i) for i in range(1, PAGE + 4)}
        set_to(bound, wanted)
        assert bound.switches["ocs"].circuits() == wanted


def test_calient_leaves_half_of_a_two_way_connection(tmp_path: Path) -> None:
    with bench(tmp_path, "calient-s") as bound:
        assert bound.world is not None
        service = bound.world.services["ocs"]
        session = bound.switches["ocs"]
        session.circuits()
        at = session.endpoint
        commands = Tl1Session("theirs", at.host, at.port or 0, bound.clock, at.login)
        commands.command("ENT-CRS", "1.1.1,1.1.2", "", "THEIRS,2WAY")
        commands.command("ACT-CRS", "1.1.1,1.1.2", "", "1.1.1-1.1.2,THEIRS")
        commands.close()
        both = {Circuit(1, N + 2), Circuit(2, N + 1)}
        assert session.circuits() == both
        with pytest.raises(DeniedError, match="group THEIRS"):
            session.change({Circuit(1, N + 2)}, set())
        assert session.circuits() == both
        session.change(both, set()).done()
        assert session.circuits() == frozenset()
        assert service.port


def test_calient_shows_no_power_as_none(tmp_path: Path) -> None:
    with bench(tmp_path, "calient-s") as bound:
        reading = bound.switches["ocs"].power([1, N + 1])
        assert dict(reading.dbm) == {1: -60.0, N + 1: -60.0}


def test_calient_reads_the_input_of_the_last_ingress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ports 1 to N are ingress ports, whose power is that of the input."""
    with bench(tmp_path, "calient-s") as bound:
        driver = bound.switches["ocs"]
        fields = "INPWR=-1.5,OUTPWR=-7.5"

        def submit(self: Tl1Session, command: str, name: str) -> SimpleNamespace:
            reply = SimpleNamespace(lines=[f"{name}:{fields}"], received=0)
            return SimpleNamespace(result=lambda: reply)

        monkeypatch.setattr(Tl1Session, "submit", submit)
        ports = [1, N - 1, N, N + 1, 2 * N]
        read = dict(driver.power(ports).dbm)
    assert read == {1: -1.5, N - 1: -1.5, N: -1.5, N + 1: -7.5, 2 * N: -7.5}


def test_tl1_typed_at_a_calient(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(FILE.format(model="calient-s", scheme="tl1", options=""))
    clock = SystemClock()
    world = SimulatedLab(load(path), clock, 1)
    try:
        service = world.services["ocs"]
        line = socket.create_connection((service.host, service.port), timeout=30)
        user, password = service.login
        line.sendall(f"ACT-USER::{user}:1::{password};RTRV-NE:::2:;".encode())
        text = ""
        while text.count("\r\n;") < 2:
            text += line.recv(4096).decode()
        assert f'"{user}:{user},2"' in text
        assert "SERIALNUMBER=SIM-ocs,SWPACKAGE=6.0-3,STATUS=OK,CHASSISTYPE=S320" in text
        line.close()
    finally:
        world.close()
        clock.close()


def test_a_calient_answers_the_commands_of_the_public_driver(tmp_path: Path) -> None:
    """The commands of QualiSystems/cloudshell-L1-calient ba2f7b1, none of which has a ctag but ENT
    and ACT; the replies match the regular expressions that it reads them with.
    """
    path = tmp_path / "matrix.yaml"
    path.write_text(FILE.format(model="calient-s", scheme="tl1", options=""))
    clock = SystemClock()
    world = SimulatedLab(load(path), clock, 1)
    try:
        service = world.services["ocs"]
        with socket.create_connection((service.host, service.port), timeout=30) as line:

            def query(command: str) -> str:
                line.sendall(command.encode())
                text = ""
                while not text.endswith("\r\n;"):
                    text += line.recv(4096).decode()
                return text

            user, password = service.login
            assert "COMPLD" in query(f"ACT-USER::{user}:1::{password};")
            assert re.search(r"SERIALNUMBER=(\S+),SWPACKAGE=(\S+),STATUS", query("RTRV-NE;"))
            idle = '"1.1.1:WX,NONE,NONE:INAS=OOS-NP,INOS=OOS,INOC=OK,INRS=NPR,'
            assert idle in query("RTRV-PORT::0;")
            query("ENT-CRS::1.1.1,1.1.2:1::SYSTEM,1WAY;")
            query("ACT-CRS::1.1.1,1.1.2:1::1.1.1>1.1.2,SYSTEM;")
            listed = query("RTRV-CRS:::::ALL;")
            assert listed.count("M  0 COMPLD") == 1
            assert "CONNNAME=1.1.1>1.1.2,CONNTYPE=1WAY" in listed
            summary = query("RTRV-PORT-SUM::1.1.1;")
            assert re.search(r"CONNNAME1=1\.1\.1>1\.1\.2,CONNSTATE1=ACT", summary)
            assert "COMPLD" in query("CANC-CRS:::::1.1.1>1.1.2;")
            assert "COMPLD" in query("DLT-CRS:::::1.1.1>1.1.2;")
            assert "CONNNAME" not in query("RTRV-CRS:::::ALL;")
            assert "DENY" in query("DLT-CRS:::::1.1.1>1.1.2;")
    finally:
        world.close()
        clock.close()


def test_the_calient_driver_takes_down_by_name(tmp_path: Path) -> None:
    with bench(tmp_path, "calient-s") as bound:
        set_to(bound, {Circuit(1, N + 2)})
        set_to(bound, set())
        sent = [
            line for line in bound.switches["ocs"].wire() if "CANC-CRS" in line or "DLT" in line
        ]
        assert re.search(r"CANC-CRS:::\d+::1\.1\.1>1\.1\.2;", sent[0])
        assert re.search(r"DLT-CRS:::\d+::1\.1\.1>1\.1\.2;", sent[1])
