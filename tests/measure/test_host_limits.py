"""Links of PCI Express that limit the ports behind them, by the file's rates."""

from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.host_limits import host_limits
from lightrig.instruments.servers.tools import pci_path
from lightrig.testbeds import Port, load

LAB = Path(__file__).parents[1] / "report" / "causes_lab.yaml"
"""Two servers with two ports of 100G on one NIC each."""

ROOT = "/sys/devices/pci0000:3a/0000:3a:00.0"


class Settings:
    """The part of a port's settings that is needed."""

    def __init__(self, function: int, now: str, most: str) -> None:
        device = f"{ROOT}/0000:3b:00.{function}"
        lines = []
        for folder in (ROOT, device):
            for end, (speed, width) in (("current", now.split("x")), ("max", most.split("x"))):
                lines += [f"{folder}/{end}_link_speed:{speed} GT/s PCIe"]
                lines += [f"{folder}/{end}_link_width:{width}"]
        self.pci = pci_path.parse(device, "\n".join(lines))


@pytest.fixture
def found() -> Any:
    testbed = load(LAB)
    ports = [spec.port for spec in testbed.nic_ports if spec.port.owner == "server1"]

    def findings(now: str, most: str, count: int = 2) -> list[tuple[str, tuple[str, ...], str]]:
        read: dict[Port, Any] = {
            port: Settings(function, now, most) for function, port in enumerate(ports[:count])
        }
        limits = host_limits(testbed, read)
        assert all([str(one) for one in each.components] == ["server1"] for each in limits)
        return [(each.kind, each.subjects, each.evidence) for each in limits]

    return findings


def test_a_slot_that_carries_both_ports_is_fine(found: Any) -> None:
    assert found("16.0x16", "16.0x16") == []


def test_both_ports_need_more_than_their_slot_carries(found: Any) -> None:
    """8 GT/s with 128 of 130 bits on 16 lanes are 126 Gbit/s: one port of 100G, not two."""
    ((kind, ports, text),) = found("8.0x16", "8.0x16")
    assert kind == "PCI Express below its ports"
    assert ports == ("server1.nic0.p0", "server1.nic0.p1")
    assert "carries 126 Gbit/s" in text
    assert "8.0 GT/s x16" in text
    assert found("8.0x16", "8.0x16", count=1) == []


def test_a_link_below_its_ends_is_named_with_both(found: Any) -> None:
    ((kind, _, text),) = found("16.0x4", "16.0x16")
    assert kind == "PCI Express below its ends"
    assert "0000:3a:00.0 - 0000:3b:00.0" in text
    assert "runs at 16.0 GT/s x4, and both its ends can 16.0 GT/s x16" in text
