"""What limits ports inside their servers: PCI Express links, RoCE addresses that have moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lightrig.harness.components import LabComponent
from lightrig.harness.findings import PCI_LINK, PCI_RATE, ROCE_MOVED, Finding
from lightrig.instruments.servers.ports.port_settings import PortSettings
from lightrig.instruments.servers.tools.pci_path import PciLink
from lightrig.instruments.servers.tools.roce_addresses import Move
from lightrig.testbeds import Port, Testbed, format_rate


def host_limits(testbed: Testbed, ports: Mapping[Port, PortSettings]) -> list[Finding]:
    """Return the PCI Express links that limit the ports behind them, by what was read."""
    rates = {
        spec.port: nic.rate_bps
        for server in testbed.servers.values()
        for nic in server.nics.values()
        for spec in nic.ports
    }
    behind: dict[tuple[str, str, str], list[Port]] = {}
    links: dict[tuple[str, str, str], PciLink] = {}
    for port, settings in ports.items():
        for link in settings.pci.links if settings.pci else ():
            # Functions of one device share its link: they differ in the last digit.
            key = port.owner, link.above.address, link.below.address.partition(".")[0]
            behind.setdefault(key, []).append(port)
            links.setdefault(key, link)
    found: list[Finding] = []
    for key, link in links.items():
        found += _of_link(key[0], link, {port: rates[port] for port in behind[key]})
    return found


def roce_moves(moved: Mapping[Port, Sequence[Move]]) -> list[Finding]:
    """Return a finding for each port whose RoCE addresses have other indices than before."""
    return [
        Finding(
            ROCE_MOVED,
            f"{port}: "
            + "; ".join(
                f"the RoCE address {one.address} has moved from index {one.before} to {one.after}"
                for one in each
            ),
            (str(port),),
            (LabComponent("server", port.owner),),
            next_step="let programs choose by address, or state the index again; which service "
            "takes addresses off and on?",
        )
        for port, each in moved.items()
    ]


def _of_link(server: str, link: PciLink, rates: Mapping[Port, float]) -> Iterator[Finding]:
    names, total = tuple(map(str, rates)), sum(rates.values())
    component = (LabComponent("server", server),)
    able = link.able
    if (problem := link.problem) is not None:
        yield Finding(
            PCI_LINK,
            f"{', '.join(names)}: the PCI Express link {link.ends} {problem}",
            names,
            component,
            next_step="put the card into its slot again, or into another one; look for errors of "
            "AER in the kernel's log",
        )
    carried = link.bandwidth_bps
    if carried is not None and carried < total and (able is None or link.problem is None):
        yield Finding(
            PCI_RATE,
            f"{', '.join(names)}: the PCI Express link {link.ends} carries "
            f"{format_rate(carried)} ({link}), and the ports {format_rate(total)}",
            names,
            component,
            next_step="a slot with more lanes, or fewer ports behind it at once",
        )
