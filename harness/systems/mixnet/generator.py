"""A testbed of any size: regions of servers around a circuit switch each, and one packet switch."""

from collections.abc import Iterator
from typing import Annotated

import typer

from lightrig.testbeds import LightrigError

MOST_PORTS = 576
"""Ports of the largest circuit switch that the paper lists on each side (Table 2, Polatis)."""

MOST_NAMESPACE_PORTS = 254
"""NIC ports of namespaces: their addresses are those of one documentation network (RFC 5737)."""


_NO_CIRCUITS = {
    "awgr": "an AWGR leads light by its wavelength: circuits would be set by tuning the lasers of "
    "modules, which no driver here does",
    "circulator": "a circulator lets both directions share a fiber and makes no circuit: the "
    "switch behind it does, whose ports would then each carry a link of its own",
}
"""Parts of §9 that are no circuit switch, and why."""


class RegionsError(LightrigError, ValueError):
    """Regions that no file describes."""


def generate(
    servers: Annotated[int, typer.Option(min=1, help="Servers of a region.")] = 4,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of a server.")] = 8,
    optical: Annotated[
        int, typer.Option(min=1, help="NICs of a server on the circuit switch of its region.")
    ] = 3,
    packet: Annotated[int, typer.Option(min=1, help="NICs of a server on the packet switch.")] = 1,
    regions: Annotated[
        int, typer.Option(min=1, help="Regions, each with a circuit switch of its own.")
    ] = 1,
    baseline: Annotated[
        bool,
        typer.Option(
            "--baseline",
            help="Put as many Ethernet ports on the circuit switches: with the plan packet all "
            "NICs are on Ethernet.",
        ),
    ] = False,
    switch: Annotated[
        str, typer.Option(metavar="MODEL", help="Model of the circuit switches.")
    ] = "polatis",
    namespaces: Annotated[
        bool, typer.Option("--namespaces", help="Servers that are namespaces of this machine.")
    ] = False,
) -> str:
    """Write a testbed of MixNet: regions whose servers have NICs on circuits and on Ethernet.

    Exit 0, or 2 for sizes that no switch has ports for.
    """
    if switch != "polatis":
        why = _NO_CIRCUITS.get(switch, "a region's times and ports are those of a polatis")
        raise RegionsError(f"--switch {switch}: {why}")
    return render(servers, gpus, optical, packet, regions, baseline=baseline, namespaces=namespaces)


def render(
    servers: int,
    gpus: int = 8,
    optical: int = 3,
    packet: int = 1,
    regions: int = 1,
    *,
    baseline: bool = False,
    namespaces: bool = False,
    rates: tuple[str, str] | None = None,
    rails: bool = False,
) -> str:
    """Return the description as YAML; raises `RegionsError`.

    rates: of NICs on circuits and of those on Ethernet, which are the same by default. rails:
    whether the NICs of each number have a packet switch of their own, as in a rail-optimised
    network; with `baseline` those on circuits, too.

    Server r * servers + s is server s of region r. The plan `uniform` joins the servers of each
    region in rings, whom no demand has chosen.
    """
    count = servers * regions
    ports = servers * optical * (2 if baseline else 1)
    _check(servers, optical, packet, regions, ports, namespaces=namespaces)
    switches = ["ocs"] if regions == 1 else [f"ocs{region}" for region in range(regions)]
    nics = optical + packet
    on_circuits, on_packets = rates or (_rate(namespaces), _rate(namespaces))
    ethernet = _Ethernet(rails=rails)
    packets = [
        f"  - server[0-{count - 1}].nic{optical + number} <-> "
        + ethernet.ports(optical + number, count)
        for number in range(packet)
    ]
    of_region = [
        f"server[{region * servers}-{(region + 1) * servers - 1}]" for region in range(regions)
    ]
    patched = [
        (switch, f"{named}.nic{number}", ethernet.ports(number, servers))
        for switch, named in zip(switches, of_region, strict=True)
        for number in range(optical if baseline else 0)
    ]
    lines = [
        "# yaml-language-server: $schema=schema.json",
        f"name: mixnet-{regions}x{servers}x{gpus}",
        f"about: {regions} region{'s' * (regions > 1)} of {servers} servers with {gpus} GPUs,"
        f" {optical} NICs on circuits and {packet} on Ethernet, generated (MixNet, §4.2)",
        "system: mixnet",
        "",
        "switches:",
        *(
            f"  {name}: {{model: polatis, address: 'tl1://{{name}}.invalid', login: env:OCS_LOGIN, "
            f"size: {ports}x{ports}, loss: {{max: 3 dB}}, options: {{rerouting: true}}}}"
            for name in switches
        ),
        *(
            f"  {name}: {{kind: packet, model: {'bridge' if namespaces else 'SN3700'}, "
            f"ports: {size}, rate: {on_packets}, transceiver: qsfp-100g-lr4}}"
            for name, size in ethernet.sizes.items()
        ),
        "",
        "servers:",
        f"  server[0-{count - 1}]:",
        f"    address: {'netns://{name}' if namespaces else 'ssh://bench@{name}.invalid'}",
        f"    gpus: {{count: {gpus}}}",
        "    nics:",
        *(
            _nic(number, nics, on_circuits if number < optical else on_packets, namespaces)
            for number in range(nics)
        ),
        "",
        "transceivers:      # IEEE 802.3 clause 88, per lane",
        "  qsfp-100g-lr4: {wavelength: 1310 nm, wavelengths: 4, "
        "launch: {min: -4.3 dBm, max: 4.5 dBm}, receive: {min: -10.6 dBm, max: 4.5 dBm}, "
        "damage: 5.5 dBm}",
        "",
        "fibers:            # in order: to the next free ingress, from the next free egress",
    ]
    for switch, named in zip(switches, of_region, strict=True):
        lines += [f"  - {named}.nic{number} <-> {switch}" for number in range(optical)]
    lines += [*packets, *(f"  - {there} <-> {switch}" for switch, _, there in patched)]
    baselines = [f"    - {nic} <-> {there}" for _, nic, there in patched]
    lines += ["", "plans:", "  uniform:         # rings of each region, whom no demand has chosen"]
    for region in range(regions):
        lines += [f"    - {link}" for link in _uniform(region * servers, servers, optical)]
    if baselines:
        lines += ["  packet:          # the baseline: all NICs on Ethernet", *baselines]
    lines += ["", "simulation:        # Polatis as mixnet6.yaml has it", "  switches:"]
    lines += [
        f"    {name}: {{acknowledge: {{mean: 45 ms, sd: 1 ms}}, dark: {{mean: 2 ms, sd: 0.1 ms}}, "
        "settle: {mean: 40 ms, sd: 1 ms}, loss: {mean: 1.2 dB, sd: 0.2 dB}, "
        "monitor: {averaging: 10 ms, noise: 0.03 dB}}"
        for name in switches
    ]
    return "\n".join([*lines, ""])


def _check(
    servers: int, optical: int, packet: int, regions: int, ports: int, *, namespaces: bool
) -> None:
    if servers < 2:
        raise RegionsError("found one server in a region, expected at least two to join")
    if ports > MOST_PORTS:
        raise RegionsError(
            f"found {ports} ports on the circuit switch of a region, expected at most "
            f"{MOST_PORTS}: fewer servers, fewer optical NICs, or more regions"
        )
    used = servers * regions * (optical + packet)
    if namespaces and used > MOST_NAMESPACE_PORTS:
        raise RegionsError(
            f"found {used} NIC ports of namespaces, expected at most {MOST_NAMESPACE_PORTS}: "
            "their addresses are of one network"
        )


class _Ethernet:
    """Ports of packet switches: one switch, or with `rails` one for the NICs of each number."""

    def __init__(self, *, rails: bool) -> None:
        self._rails = rails
        self.sizes: dict[str, int] = {}

    def ports(self, nic: int, count: int) -> str:
        """Take the next `count` ports for NICs of a number."""
        name = f"eps{nic}" if self._rails else "eps"
        first = self.sizes.get(name, 0) + 1
        self.sizes[name] = first + count - 1
        return f"{name}.[{first}-{first + count - 1}]"


def _nic(number: int, nics: int, rate: str, namespaces: bool) -> str:
    """Return the line of one NIC; the first half of them is on one NUMA node, as in the paper."""
    model = (
        f"model: veth, netdev: 'fabric{number}', ip: '192.0.2.{{k}}/24'"
        if namespaces
        else f"model: ConnectX-6, netdev: 'ens{number}np0', rdma: 'mlx5_{number}'"
    )
    return (
        f"      nic{number}: {{{model}, rate: {rate}, "
        f"numa: {2 * number // nics}, transceiver: qsfp-100g-lr4}}"
    )


def _rate(namespaces: bool) -> str:
    return "10M" if namespaces else "100G"


def _uniform(first: int, servers: int, optical: int) -> Iterator[str]:
    """Yield the links of rings over two NICs each, and of pairs where one NIC is left over."""
    for pair in range(optical // 2):
        apart = pair % (servers - 1) + 1
        for at in range(servers):
            there = first + (at + apart) % servers
            yield f"server{first + at}.nic{2 * pair + 1} <-> server{there}.nic{2 * pair}"
    if optical % 2:
        for at in range(0, servers - 1, 2):
            nic = f"nic{optical - 1}"
            yield f"server{first + at}.{nic} <-> server{first + at + 1}.{nic}"
