"""From an address to a driver."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench.served_lab import describe

from lightrig.harness.bench import Bench
from lightrig.harness.bench.assembly import open_server
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.registry import NoDriverError, open_instrument
from lightrig.testbeds import LightrigError, load


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("tl1://ocs.lab", Endpoint("tl1", "ocs.lab", None)),
        ("tl1://ocs.lab:3083", Endpoint("tl1", "ocs.lab", 3083)),
        ("ssh://bench@s0.lab", Endpoint("ssh", "s0.lab", None, None, "bench")),
        ("ssh://bench@s0.lab:2222", Endpoint("ssh", "s0.lab", 2222, None, "bench")),
        ("ssh://[2001:db8::1]:22", Endpoint("ssh", "2001:db8::1", 22)),
        ("netns://server0", Endpoint("netns", "server0", None)),
        ("serial:///dev/ttyUSB0", Endpoint("serial", resource="/dev/ttyUSB0")),
        (
            "visa://TCPIP::m.lab::hislip0::INSTR",
            Endpoint("visa", resource="TCPIP::m.lab::hislip0::INSTR"),
        ),
    ],
)
def test_an_address_is_read(address: str, endpoint: Endpoint) -> None:
    assert Endpoint.parse(address, None) == endpoint


def test_the_login_comes_with_it() -> None:
    assert Endpoint.parse("tl1://ocs.lab", ("admin", "x")).login == ("admin", "x")


@pytest.mark.parametrize(
    "address", ["tl1://ocs.lab:99999", "tl1://ocs.lab:tl1", "tl1://[ocs.lab", "tl1://ocs.lab:-1"]
)
def test_an_address_that_cannot_be_read_is_an_error(address: str) -> None:
    with pytest.raises(LightrigError) as wrong:
        Endpoint.parse(address, None)
    assert address in str(wrong.value)


def test_a_wire_without_a_driver_is_an_error(tmp_path: Path) -> None:
    testbed = load(describe(tmp_path))
    clock = SystemClock()
    with pytest.raises(NoDriverError, match=r"ocs: .* tl1://.*, not ssh://"):
        open_instrument(testbed.switches["ocs"], Endpoint("ssh", "127.0.0.1", 1), clock)
    with pytest.raises(NoDriverError, match=r"server0: .* ssh://, not tl1://"):
        open_server(testbed.servers["server0"], Endpoint("tl1", "127.0.0.1", 1), clock, {})


def test_a_model_without_a_driver_is_an_error_that_lists_the_models(tmp_path: Path) -> None:
    path = describe(tmp_path)
    path.write_text(path.read_text().replace("model: polatis", "model: abacus"))
    with pytest.raises(NoDriverError, match=r"'abacus'; there are: .*polatis"):
        open_instrument(load(path).switches["ocs"], Endpoint("tl1", "127.0.0.1", 1), SystemClock())


def test_a_bench_in_real_time_closes_its_servers_at_once() -> None:
    """Each waits for the other: one after the other they would wait for ever."""
    both = threading.Barrier(2, timeout=30)
    closed: list[str] = []
    servers = {name: SimpleNamespace(close=both.wait) for name in ("server0", "server1")}
    bench = Bench(
        *(load("testbeds/rails4.yaml"), SystemClock(), {}, servers, {}, {}, frozenset()),
        _closers=[lambda: closed.append("first"), lambda: closed.append("last")],
    )
    bench.close()
    assert closed == ["last", "first"]
    assert not both.broken
