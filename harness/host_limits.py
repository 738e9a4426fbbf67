"""What limits ports inside their servers: PCI Express, GPUs, RoCE addresses that have moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from lightrig.harness.bench import Bench
from lightrig.harness.components import LabComponent
from lightrig.harness.findings import PCI_LINK, PCI_RATE, ROCE_MOVED, Finding
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.ports.port_settings import PortSettings
from lightrig.instruments.servers.tools.pci_path import PciLink
from lightrig.instruments.servers.tools.roce_addresses import Move
from lightrig.testbeds import LightrigError, NicPortSpec, Port, Testbed, format_rate


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


def host_conditions(bench: Bench, ports: Iterable[Port]) -> dict[str, Scalar]:
    """Return what may slow traffic inside the servers of `ports` now, as conditions of rows.

    pcie: the PCI Express link that carries least of those to the ports' NICs. gpus_slowed: how many
    GPUs heat or a lack of power slows down, of those that tell. What cannot be read is left out,
    and so are servers that are simulated in this process.
    """
    narrowest: list[PciLink] = []
    slowed: list[int] = []
    for server, of_server in _by_server(bench, ports).items():
        for spec in of_server:
            with suppress(LightrigError):
                path = server.nic.pci_path(spec.netdev).value
                narrowest += [link for link in (path.narrowest,) if link is not None]
        if bench.testbed.servers[server.name].gpus.count:
            with suppress(LightrigError):
                known = [gpu for gpu in server.gpu_clocks() if gpu.reasons is not None]
                slowed += [sum(bool(gpu.slow) for gpu in known)] if known else []
    least = min(narrowest, key=lambda link: link.bandwidth_bps or 0, default=None)
    return {
        **({} if least is None else {"pcie": str(least)}),
        **({"gpus_slowed": sum(slowed)} if slowed else {}),
    }


def with_host(rows: Iterable[Row], bench: Bench, ports: Iterable[Port]) -> list[Row]:
    """Return rows of traffic at `ports` with the `host_conditions` of now."""
    found, conditions = list(rows), host_conditions(bench, ports)
    return [replace(row, conditions={**row.conditions, **conditions}) for row in found]


def _by_server(bench: Bench, ports: Iterable[Port]) -> dict[LinuxServer, list[NicPortSpec]]:
    found: dict[LinuxServer, list[NicPortSpec]] = {}
    for port in sorted(set(ports)):
        server: object = bench.servers.get(port.owner)
        if isinstance(server, LinuxServer) and port.owner not in bench.simulated:
            found.setdefault(server, []).append(bench.testbed.nic_port(port))
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
