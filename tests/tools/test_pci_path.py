"""Links of PCI Express, on trees of sysfs made of public captures of `lspci -vv`."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from lightrig.instruments.servers.tools import pci_path
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.pci_path import PciPath

_CAPTURES = Path(__file__).with_name("pci_links.txt")
_PORT = re.compile(r"(\S+)=([\d.]+)x(\d+)/([\d.]+)x(\d+)")


class Capture(NamedTuple):
    """One device of a capture. below: the links to be found, as in the file."""

    name: str
    ports: tuple[tuple[str, ...], ...]
    is_gpu: bool
    below: frozenset[str]

    def device(self) -> str:
        domain = self.ports[0][0][:7]
        return "/".join(["/sys/devices", f"pci{domain}", *(port[0] for port in self.ports)])

    def files(self) -> dict[str, str]:
        """The files of sysfs as pci_speed_string of Linux writes speeds."""
        found = {}
        folder = f"/sys/devices/pci{self.ports[0][0][:7]}"
        for address, speed, width, most, widest in self.ports:
            folder = f"{folder}/{address}"
            last = address == self.ports[-1][0]
            found |= {
                f"{folder}/class": "0x030000" if last and self.is_gpu else "0x020000",
                f"{folder}/current_link_speed": f"{float(speed):.1f} GT/s PCIe",
                f"{folder}/current_link_width": width,
                f"{folder}/max_link_speed": f"{float(most):.1f} GT/s PCIe",
                f"{folder}/max_link_width": widest,
            }
        return found


def captures() -> list[Capture]:
    found = []
    for line in _CAPTURES.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            facts, _, outcome = line.partition(" : ")
            name, *rest = facts.split()
            ports = tuple(match.groups() for one in rest if (match := _PORT.fullmatch(one)))
            below = frozenset(outcome.removeprefix("below ").split()) - {"full"}
            found.append(Capture(name, ports, rest[-1] == "gpu", below))
    return found


def read(device: str, files: dict[str, str]) -> PciPath:
    wanted = pci_path.files(device)
    text = "".join(f"{path}:{files[path]}\n" for path in wanted if path in files)
    return pci_path.parse(f"{device}\n", text)


@pytest.mark.parametrize("capture", captures(), ids=lambda each: f"{each.name}-{each.ports[-1][0]}")
def test_public_captures(capture: Capture) -> None:
    path = read(capture.device(), capture.files())
    found = set()
    for link in path.links:
        if link.problem is not None:
            assert link.able is not None
            (speed, width), below = link.able, link.below
            now = f"{link.speed:g}x{link.width}"
            found.add(f"{below.address}={now}/{speed:g}x{width}")
    assert found == capture.below
    # Every other folder is what is plugged into the one above it.
    assert [link.below.address for link in path.links] == [port[0] for port in capture.ports[1::2]]


def test_ten_captures_some_of_them_below_their_ends() -> None:
    found = captures()
    assert len({each.name for each in found}) == 11
    assert {each.name for each in found if each.below} == {"cmlgpu", "openpower"}


# Lines of __pcie_print_link_status in public logs: Gb/s, speed in GT/s, lanes.
KERNEL = [
    (126.016, "8.0 GT/s PCIe", "16"),
    (63.012, "16.0 GT/s PCIe", "4"),
    (126.024, "16.0 GT/s PCIe", "8"),
    (7.876, "8.0 GT/s PCIe", "1"),
    (31.504, "8.0 GT/s PCIe", "4"),
    (16.000, "5.0 GT/s PCIe", "4"),
    (8.000, "2.5 GT/s PCIe", "4"),
    (32.000, "2.5 GT/s", "16"),
]


@pytest.mark.parametrize(("gigabits", "speed", "width"), KERNEL)
def test_bandwidths_are_those_of_the_kernel(gigabits: float, speed: str, width: str) -> None:
    device = "/sys/devices/pci0000:00/0000:00:02.0/0000:01:00.0"
    ends = (device, device.rpartition("/")[0])
    files = {
        f"{folder}/{end}_link_{what}": value
        for folder in ends
        for end in ("current", "max")
        for what, value in (("speed", speed), ("width", width))
    }
    path = read(device, files)
    assert path.narrowest is not None
    assert path.narrowest.bandwidth_bps == pytest.approx(gigabits * 1e9, abs=1)


DEVICE = "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0"


def test_a_domain_of_its_own_has_its_own_root() -> None:
    """By Intel's VMD, whose devices stand below a device of the processor."""
    assert pci_path.folders(DEVICE) == [(DEVICE.rpartition("/")[0], DEVICE)]


def test_what_is_not_known_is_no_finding() -> None:
    device = "/sys/devices/pci0000:00/0000:00:02.0/0000:01:00.0"
    unknown = {f"{device}/current_link_speed": "Unknown", f"{device}/current_link_width": "0"}
    (link,) = read(device, unknown).links
    assert (link.speed, link.width, link.able, link.problem) == (None, None, None, None)
    assert link.bandwidth_bps is None
    assert read("/sys/devices/virtual/net/p0/device", {}).links == ()
    assert read("/sys/devices/pci0000:00/0000:00:03.0/virtio0", {}).narrowest is None


def test_the_speed_of_an_idle_gpu_is_not_judged_but_its_lanes_are() -> None:
    idle = Capture("", (("0000:00:01.0", "2.5", "16", "16", "16"),) * 1, True, frozenset())
    ports = (*idle.ports, ("0000:01:00.0", "2.5", "16", "16", "16"))
    assert [one.problem for one in read_links(idle._replace(ports=ports))] == [None]
    ports = (*idle.ports, ("0000:01:00.0", "2.5", "8", "16", "16"))
    (problem,) = [one.problem for one in read_links(idle._replace(ports=ports))]
    assert problem is not None
    assert "x8" in problem


def read_links(capture: Capture) -> tuple[pci_path.PciLink, ...]:
    return read(capture.device(), capture.files()).links


def test_other_text_is_refused() -> None:
    with pytest.raises(ToolOutputError):
        pci_path.parse(DEVICE, "grep: no such option\n")
