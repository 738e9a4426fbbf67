"""Lanes that a transceiver uses, of those that its tool prints."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.measure.insertion_loss.observers import Modules
from lightrig.instruments.servers.tools import ethtool_module
from lightrig.testbeds import Port

# 400G-XDR4 in QSFP-DD: D. Zahka, "[RFC ethtool] ethtool: mock JSON output for --module-info",
# netdev, 15 October 2024; excerpt, in mA and mW.
BIAS = (83.806, 81.878, 72.900, 110.100, 0.0, 0.0, 0.0, 0.0)
SENT = (1.5975, 1.6486, 1.6333, 1.4387, 0.0, 0.0, 0.0, 0.0)
RECEIVED = (2.2489, 1.8629, 1.8427, 1.8215, 0.0, 0.0, 0.0, 0.0)


def printed(bias: Any = BIAS, sent: Any = SENT, received: Any = RECEIVED) -> str:
    def power(milliwatt: float) -> str:
        dbm = f"{10 * math.log10(milliwatt):.2f}" if milliwatt else "-inf"
        return f"{milliwatt:.4f} mW / {dbm} dBm"

    lines = ["Identifier : 0x18 (QSFP-DD Double Density 8X Pluggable Transceiver (INF-8628))"]
    for title, column, shown in (
        ("Laser tx bias current", bias, "{:.3f} mA".format),
        ("Transmit avg optical power", sent, power),
        ("Rcvr signal avg optical power", received, power),
    ):
        lines += [f"{title} (Channel {n}) : {shown(x)}" for n, x in enumerate(column or (), 1)]
    return "\n".join(lines) + "\n"


DARK = (0.0,) * 8


@pytest.mark.parametrize(
    ("bias", "sent", "received", "used"),
    [
        (BIAS, SENT, RECEIVED, [1, 2, 3, 4]),
        (BIAS, DARK, DARK, [1, 2, 3, 4]),  # lasers that have failed
        (DARK, DARK, RECEIVED, [1, 2, 3, 4]),  # the port is down
        (None, SENT, (*RECEIVED[:4], 0.5, 0.0, 0.0, 0.0), [1, 2, 3, 4, 5]),
        (DARK, DARK, DARK, [1, 2, 3, 4, 5, 6, 7, 8]),  # nothing tells
    ],
)
def test_a_lane_in_use_has_bias_or_light(bias: Any, sent: Any, received: Any, used: Any) -> None:
    module = ethtool_module.parse(printed(bias, sent, received))
    assert [lane.number for lane in module.lanes_in_use] == used


class Server:
    """A server whose every port has one transceiver."""

    def __init__(self, text: str) -> None:
        module = ethtool_module.parse(text)
        self.nic: Any = SimpleNamespace(module=lambda _: SimpleNamespace(value=module))


def test_losses_by_transceivers_leave_unused_lanes_out() -> None:
    bench: Any = SimpleNamespace(
        servers={"server0": Server(printed())},
        clock=SimpleNamespace(parallel=lambda *asked: [each() for each in asked]),
        testbed=SimpleNamespace(
            nic_port=lambda _: SimpleNamespace(netdev="e0"), transceiver_of=lambda _: None
        ),
    )
    port = Port("server0", "nic0.p0")
    seen = Modules(bench, {1: port}, {5: port}).read()
    assert seen.dbm[1] == pytest.approx(10 * math.log10(sum(SENT) / 4), abs=0.01)
    assert seen.dbm[5] == pytest.approx(10 * math.log10(sum(RECEIVED) / 4), abs=0.01)
