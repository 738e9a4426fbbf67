"""Switches with a few positions, on serial lines: driver and peer meet on the wire alone."""

import binascii
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis.strategies as st
import pytest
import serial
from hypothesis import given, settings

from lightrig.harness.bench import Bench, bind
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import DeniedError, GarbledError, NotDoneError
from lightrig.instruments.core.position_switch import PositionSwitch
from lightrig.instruments.simulated.devices.simulated_ocstrx import crc16
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.instruments.switches.agiltron import Agiltron
from lightrig.instruments.switches.ocstrx import Ocstrx
from lightrig.testbeds import Circuit, load

US = 1_000
SELECTORS = {
    "thorlabs-osw": ("1x2", ""),
    "osw-ascii": ("1x16", ""),
    "dicon-mems": ("1x8", ""),
    "sercalo": ("1x4", ""),
    "agiltron": ("1x8", "standing: 1"),
}
CAN_BE_DARK = ("osw-ascii", "dicon-mems", "sercalo")
FILE = """
name: little
switches:
  osw: {{model: {model}, address: "serial:///dev/ttyUSB0", size: {size}, options: {{{options}}}}}
simulation:
  switches:
    osw:
      acknowledge: {{mean: 75 us, sd: 4 us}}
      dark: {{mean: 5 us}}
      settle: {{mean: 70 us, sd: 4 us}}
"""


@contextmanager
def bench(folder: Path, model: str, size: str, options: str = "") -> Iterator[Bench]:
    path = folder / "little.yaml"
    path.write_text(FILE.format(model=model, size=size, options=options))
    bound = bind(load(path), "simulated", seed=2)
    try:
        yield bound
    finally:
        bound.close()


def move(bound: Bench, remove: set[Circuit], add: set[Circuit]) -> None:
    operation = bound.switches["osw"].change(remove, add)
    span = operation.done()
    assert span.earliest >= operation.sent.earliest


@pytest.mark.parametrize("model", SELECTORS)
def test_every_output_is_reached_and_read_back(tmp_path: Path, model: str) -> None:
    size, options = SELECTORS[model]
    outputs = int(size.partition("x")[2])
    with bench(tmp_path, model, size, options) as bound:
        switch = bound.switches["osw"]
        assert switch.circuits() == {Circuit(1, 2)}
        for output in (*range(1, outputs + 1), 1):
            move(bound, set(switch.circuits()), {Circuit(1, 1 + output)})
            assert switch.circuits() == {Circuit(1, 1 + output)}
            assert bound.world is not None
        assert bound.simulated == {"osw"}


@pytest.mark.parametrize("model", CAN_BE_DARK)
def test_some_can_be_dark(tmp_path: Path, model: str) -> None:
    with bench(tmp_path, model, *SELECTORS[model]) as bound:
        move(bound, {Circuit(1, 2)}, set())
        assert bound.switches["osw"].circuits() == frozenset()
        move(bound, set(), {Circuit(1, 3)})
        assert bound.switches["osw"].circuits() == {Circuit(1, 3)}


@pytest.mark.parametrize("model", [m for m in SELECTORS if m not in CAN_BE_DARK])
def test_a_switch_without_dark_position_refuses_before_anything_is_sent(
    tmp_path: Path, model: str
) -> None:
    with bench(tmp_path, model, *SELECTORS[model]) as bound:
        before = bound.switches["osw"].wire()
        with pytest.raises(DeniedError, match="it cannot be dark") as denied:
            bound.switches["osw"].change({Circuit(1, 2)}, set())
        assert "switch off the light that enters it" in str(denied.value)
        if model == "agiltron":
            assert bound.switches["osw"].wire() == before
        assert bound.switches["osw"].circuits() == {Circuit(1, 2)}


def test_a_two_by_two_is_bar_or_cross(tmp_path: Path) -> None:
    with bench(tmp_path, "thorlabs-osw", "2x2") as bound:
        bar, cross = {Circuit(1, 3), Circuit(2, 4)}, {Circuit(1, 4), Circuit(2, 3)}
        assert bound.switches["osw"].circuits() == bar
        move(bound, bar, cross)
        assert bound.switches["osw"].circuits() == cross
        with pytest.raises(DeniedError):
            bound.switches["osw"].change({Circuit(1, 4)}, set())


@pytest.mark.parametrize("board", ["cl-lb", "sw-dr-5"])
@pytest.mark.parametrize("size", ["1x8", "1x4", "1x2"])
def test_an_agiltron_of_the_ff_family_is_asked_for_its_position(
    tmp_path: Path, board: str, size: str
) -> None:
    outputs = int(size.partition("x")[2])
    with bench(tmp_path, "agiltron", size, f"protocol: {board}") as bound:
        switch = bound.switches["osw"]
        assert switch.circuits() == {Circuit(1, 2)}  # before any move, without `standing`
        for output in (*range(1, outputs + 1), 1):
            move(bound, set(switch.circuits()), {Circuit(1, 1 + output)})
            assert switch.circuits() == {Circuit(1, 1 + output)}
            assert bound.world is not None
            assert bound.world.matrices["osw"].egress_of == {1: 1 + output}
        assert isinstance(switch, Agiltron)
        assert switch.identity().model == f"FF {board.upper()} {size}"


# As QMI's driver of FF 1x4 and 1x8 sends and reads them, and that of the board SW-DR-5.
FF_FRAMES = {
    "cl-lb": [("01 12 00 03", "01 12 00 03"), ("01 11 00 00", "01 11 00 03")],
    "sw-dr-5": [("01 12 00 01", "01 12"), ("01 11 00 00", "01 11 01 00")],
}


@pytest.mark.parametrize("board", FF_FRAMES)
def test_ff_frames_are_those_of_the_public_drivers(tmp_path: Path, board: str) -> None:
    path = tmp_path / "little.yaml"
    path.write_text(FILE.format(model="agiltron", size="1x4", options=f"protocol: {board}"))
    clock = SystemClock()
    world = SimulatedLab(load(path), clock, 1)
    try:
        with serial.Serial(world.services["osw"].resource, timeout=30) as line:
            for sent, answer in FF_FRAMES[board]:
                line.write(bytes.fromhex(sent))
                assert line.read(4).startswith(bytes.fromhex(answer))
    finally:
        world.close()
        clock.close()


@pytest.mark.parametrize(
    ("board", "stands"), [("cl-lb", "sw-dr-5"), ("sw-dr-5", "cl-lb")], ids=["cl-lb", "sw-dr-5"]
)
def test_an_ff_switch_of_the_other_board_is_noticed(
    tmp_path: Path, board: str, stands: str
) -> None:
    """At its third output each board answers what the other cannot mean."""
    with bench(tmp_path, "agiltron", "1x4", f"protocol: {stands}") as bound:
        move(bound, {Circuit(1, 2)}, {Circuit(1, 4)})
        switch = bound.switches["osw"]
        assert isinstance(switch, Agiltron)
        switch.stated_options["protocol"] = board
        with pytest.raises(GarbledError, match="position"):
            switch.circuits()


def test_agiltron_has_no_position_query(tmp_path: Path) -> None:
    with (
        bench(tmp_path, "agiltron", "1x8") as bound,
        pytest.raises(NotDoneError, match="standing"),
    ):
        bound.switches["osw"].circuits()


@pytest.mark.parametrize("model", [m for m in SELECTORS if m != "agiltron"])
def test_a_size_with_more_outputs_than_the_switch_has_is_an_error(
    tmp_path: Path, model: str
) -> None:
    size, options = SELECTORS[model]
    with bench(tmp_path, model, size, options) as bound:
        switch = bound.switches["osw"]
        # What a wrong `size:` in the file would make of the driver.
        assert isinstance(switch, PositionSwitch)
        switch.positions = {**switch.positions, 99: frozenset({Circuit(1, 100)})}
        operation = switch.change({Circuit(1, 2)}, {Circuit(1, 100)})
        if model == "thorlabs-osw":  # passes it over in silence; reading back tells
            operation.done()
        else:
            with pytest.raises(DeniedError):
                operation.done()
        assert switch.circuits() == {Circuit(1, 2)}


# ------------------------------------------------------------------------------- OCSTrx


@settings(max_examples=8)
@given(st.lists(st.lists(st.integers(1, 3), min_size=3, max_size=3), max_size=6))
def test_a_bundle_takes_the_requested_paths(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[list[int]]
) -> None:
    with bench(tmp_path_factory.mktemp("bundle"), "ocstrx", "3x9") as bound:
        switch = bound.switches["osw"]
        for paths in sequence:
            wanted = {Circuit(m + 1, 3 + 3 * m + path) for m, path in enumerate(paths)}
            held = switch.circuits()
            before = len(switch.wire())
            move(bound, set(held - wanted), wanted - held)
            assert switch.circuits() == wanted
            assert len(switch.wire()) - before <= 7  # read, one command, read back


def test_a_bundle_switches_in_the_published_time(tmp_path: Path) -> None:
    with bench(tmp_path, "ocstrx", "2x6") as bound:
        switch = bound.switches["osw"]
        for index in range(20):
            wanted = {Circuit(1, 3 + index % 2), Circuit(2, 8)}
            operation = switch.change(set(switch.circuits() - wanted), wanted - switch.circuits())
            if operation.sent.latest == bound.clock.now():
                done = operation.done()
                assert done.latest - operation.sent.earliest < 150 * US


def test_preloaded_paths_are_taken_at_once(tmp_path: Path) -> None:
    with bench(tmp_path, "ocstrx", "2x6") as bound:
        bundle = bound.switches["osw"]
        assert isinstance(bundle, Ocstrx)
        with pytest.raises(DeniedError, match="no such value"):
            bundle.trigger().done()
        wanted = {Circuit(1, 5), Circuit(2, 7)}
        bundle.preload(wanted)
        assert bundle.circuits() != wanted
        bundle.trigger().done()
        assert bundle.circuits() == wanted


def test_a_bundle_reports_temperature_and_power(tmp_path: Path) -> None:
    with bench(tmp_path, "ocstrx", "2x6") as bound:
        bundle = bound.switches["osw"]
        assert isinstance(bundle, Ocstrx)
        told = bundle.telemetry(2)
        assert 20 < told.temperature_c < 60
        assert told.core_w < 3.2
        assert told.total_w < 12
        with pytest.raises(DeniedError, match="no such module"):
            bundle.telemetry(3)


def test_registers_have_the_documented_units(tmp_path: Path) -> None:
    """docs/appendix/ocstrx-registers.md: 0020 in 0.01 degrees, 0021 and 0022 in mW."""
    with line_of(tmp_path, "ocstrx", "2x6") as line:
        raw = {}
        for register in (0x20, 0x21, 0x22):
            request = bytes([0xA5, 7, 1, 1, 0, register, 0, 0, 0, 0])
            line.write(request + binascii.crc_hqx(request, 0xFFFF).to_bytes(2, "big"))
            reply = line.read(12)
            assert reply[:6] == bytes([0x5A, 7, 0, 1, 0, register])
            raw[register] = int.from_bytes(reply[6:10], "big", signed=True)
    assert 2_000 < raw[0x20] < 6_000
    assert 1_000 < raw[0x21] < raw[0x22] < 12_000
    with bench(tmp_path, "ocstrx", "2x6") as bound:
        bundle = bound.switches["osw"]
        assert isinstance(bundle, Ocstrx)
        read = bundle.telemetry(2)
        assert read.core_w == raw[0x21] / 1_000
        assert read.total_w == raw[0x22] / 1_000
        assert read.temperature_c == raw[0x20] / 100


def test_a_module_cannot_be_on_no_path(tmp_path: Path) -> None:
    with bench(tmp_path, "ocstrx", "2x6") as bound:
        with pytest.raises(DeniedError, match="module 1 would be on no path"):
            bound.switches["osw"].change({Circuit(1, 3)}, set())
        with pytest.raises(DeniedError, match="no module leads from 1>8"):
            bound.switches["osw"].change(set(), {Circuit(1, 8)})


def test_the_check_sum_is_the_documented_one() -> None:
    assert crc16(b"123456789") == 0x29B1


def typed(device: str, data: bytes, count: int) -> bytes:
    """Return the bytes that another client reads: so many, or what comes before half a second."""
    line = os.open(device, os.O_RDWR | os.O_NOCTTY)
    try:
        os.write(line, data)
        came = b""
        while len(came) < count and select.select([line], [], [], 0.5)[0]:
            came += os.read(line, 4096)
        return came
    finally:
        os.close(line)


@contextmanager
def line_of(folder: Path, model: str, size: str) -> Iterator[serial.Serial]:
    """Open the serial line of a simulated switch as a program of somebody else does."""
    path = folder / "little.yaml"
    path.write_text(FILE.format(model=model, size=size, options=""))
    clock = SystemClock()
    world = SimulatedLab(load(path), clock, 1)
    try:
        with serial.Serial(world.services["osw"].resource, timeout=30) as line:
            yield line
    finally:
        world.close()
        clock.close()


def test_a_sercalo_tells_its_identity_as_the_public_driver_reads_it(tmp_path: Path) -> None:
    """Read `get_product_info` of the driver of GroeblacherLab (2020) for the RSC 1xN."""
    with line_of(tmp_path, "sercalo", "1x4") as line:
        line.write(b"\xef\xef\x03\xff\x01\xe1")
        head = line.read(3)
        assert head[:2] == b"\xfe\xfe"
        reply = line.read(head[2])
    data = reply[3:-1]
    assert data[0:10].decode("ascii").strip(";") == "Sercalo"
    assert data[10:20].decode("ascii").strip(";") == "RSC 1x4"
    assert (data[21], data[22], data[23], data[24]) == (1, 0, 1, 7)
    assert 1 <= data[27] <= 12
    assert data[29:].decode("ascii").strip(";") == "SIM-osw"


def test_the_sercalo_driver_reads_the_published_layout(tmp_path: Path) -> None:
    with bench(tmp_path, "sercalo", "1x4") as bound:
        identity = bound.switches["osw"].identity()
        assert (identity.manufacturer, identity.model) == ("Sercalo", "RSC 1x4")
        assert (identity.serial, identity.firmware) == ("SIM-osw", "1.7")


def test_an_agiltron_goes_home_to_its_first_output(tmp_path: Path) -> None:
    """Send the frames of ograsdijk/Agiltron-SelfAlign: `home` ends with CR LF and reads nothing."""
    path = tmp_path / "little.yaml"
    path.write_text(FILE.format(model="agiltron", size="1x8", options=""))
    clock = SystemClock()
    world = SimulatedLab(load(path), clock, 1)
    try:
        with serial.Serial(world.services["osw"].resource, timeout=30) as line:
            for output in (3, None, 5):
                if output is None:
                    line.write(b"\x01\x30\x00\x00\r\n")
                else:
                    line.write(b"\x01\x35\x00" + bytes([output - 1]))
                    assert line.read(4) == b"\x01\x35\xff\xff"
            line.write(b"\x01\x30\x00\x00\r\n")
            line.write(b"\x01\x35\x00\x00")  # acknowledged at once, since home is output 1
            assert line.read(4) == b"\x01\x35\xff\xff"
        assert world.matrices["osw"].egress_of == {1: 2}
    finally:
        world.close()
        clock.close()


@pytest.mark.parametrize(
    ("model", "size", "question", "answer"),
    [
        ("thorlabs-osw", "1x2", b"S?\n", b"1\r\n"),
        ("osw-ascii", "1x16", b"<OSW_OUT_?>", b"<OSW_OUT_01>"),
        ("osw-ascii", "1x16", b"<OSW_OUT_99>", b"<OSW_OUT_OVERFLOW>"),
        ("dicon-mems", "1x8", b"I1?\r", b"\n1\r\n"),
        ("sercalo", "1x4", bytes.fromhex("efef03ff02e2"), bytes.fromhex("fefe05ff02000104")[:7]),
        ("agiltron", "1x8", bytes.fromhex("01350000"), bytes.fromhex("0135ffff")),
    ],
)
def test_typed_commands_get_the_replies_of_the_manuals(
    tmp_path: Path, model: str, size: str, question: bytes, answer: bytes
) -> None:
    path = tmp_path / "little.yaml"
    path.write_text(FILE.format(model=model, size=size, options=""))
    clock = SystemClock()
    world = SimulatedLab(load(path), clock, 1)
    try:
        assert typed(world.services["osw"].resource, question, len(answer)).startswith(answer)
    finally:
        world.close()
        clock.close()
