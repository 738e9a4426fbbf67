"""From an address to a driver."""

from pathlib import Path

import pytest
from bench.served_lab import describe

from harness.bench.drivers import open_server
from instruments.clock import SystemClock
from instruments.registry import NoDriverError, open_instrument
from instruments.way import Way
from testbeds import LightrigError, load


@pytest.mark.parametrize(
    ("address", "way"),
    [
        ("tl1://ocs.lab", Way("tl1", "ocs.lab", None)),
        ("tl1://ocs.lab:3083", Way("tl1", "ocs.lab", 3083)),
        ("ssh://bench@s0.lab", Way("ssh", "s0.lab", None, None, "bench")),
        ("ssh://bench@s0.lab:2222", Way("ssh", "s0.lab", 2222, None, "bench")),
        ("ssh://[2001:db8::1]:22", Way("ssh", "2001:db8::1", 22)),
        ("netns://server0", Way("netns", "server0", None)),
        ("serial:///dev/ttyUSB0", Way("serial", resource="/dev/ttyUSB0")),
        (
            "visa://TCPIP::m.lab::hislip0::INSTR",
            Way("visa", resource="TCPIP::m.lab::hislip0::INSTR"),
        ),
    ],
)
def test_an_address_is_read(address: str, way: Way) -> None:
    assert Way.parse(address, None) == way


def test_the_login_comes_with_it() -> None:
    assert Way.parse("tl1://ocs.lab", ("admin", "x")).login == ("admin", "x")


@pytest.mark.parametrize(
    "address", ["tl1://ocs.lab:99999", "tl1://ocs.lab:tl1", "tl1://[ocs.lab", "tl1://ocs.lab:-1"]
)
def test_an_address_that_cannot_be_read_is_told(address: str) -> None:
    with pytest.raises(LightrigError) as wrong:
        Way.parse(address, None)
    assert address in str(wrong.value)


def test_a_wire_without_a_driver_is_told(tmp_path: Path) -> None:
    testbed = load(describe(tmp_path))
    clock = SystemClock()
    with pytest.raises(NoDriverError, match=r"ocs: .* tl1://.*, not ssh://"):
        open_instrument(testbed.switches["ocs"], Way("ssh", "127.0.0.1", 1), clock)
    with pytest.raises(NoDriverError, match=r"server0: .* ssh://, not tl1://"):
        open_server(testbed.servers["server0"], Way("tl1", "127.0.0.1", 1), clock, {})


def test_a_model_without_a_driver_is_told_with_those_there_are(tmp_path: Path) -> None:
    path = describe(tmp_path)
    path.write_text(path.read_text().replace("model: polatis", "model: abacus"))
    with pytest.raises(NoDriverError, match=r"'abacus'; there are: .*polatis"):
        open_instrument(load(path).switches["ocs"], Way("tl1", "127.0.0.1", 1), SystemClock())
