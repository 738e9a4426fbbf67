"""Checks of a testbed file by the PMDs of its transceivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lightrig.testbeds.cabling import Cabling
from lightrig.testbeds.expansion import Parts
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.light_paths import light_paths
from lightrig.testbeds.model import TransceiverSpec
from lightrig.testbeds.plans import Plan, Port
from lightrig.testbeds.schema import Document
from lightrig.testbeds.wiring import Wiring
from lightrig.testbeds.yaml_positions import Keys


def check_pmds(
    document: Document,
    parts: Parts,
    wiring: Wiring,
    cabling: Cabling,
    plans: Mapping[str, Plan],
    findings: Findings,
) -> None:
    """Note transceivers whose PMD has not the rate of their ports, nor the light of their links.

    Multimode light is not led through an optical switch, whose fibers have one mode.
    """
    for keys, rate_bps, name in _holders(document):
        spec = parts.transceivers.get(name)
        pmd = spec.known_pmd if spec else None
        if pmd and rate_bps not in (None, pmd.rate_bps):
            findings.add(
                (*keys, "transceiver"),
                f"{name} is {pmd.name} of {pmd.rate_bps / 1e9:g}G, and the port's rate is "
                f"{rate_bps / 1e9:g}G",
            )
    for fiber in wiring.fibers:
        for port, far in ((fiber.source, fiber.sink), (fiber.sink, fiber.source)):
            spec = _transceiver(parts, port)
            pmd = spec.known_pmd if spec else None
            switch = parts.switches.get(far.owner)
            if pmd and pmd.medium == "multimode" and switch and switch.kind == "optical":
                findings.add(
                    wiring.stated[fiber],
                    f"{port} is {pmd.name}, of multimode fiber, and {switch.name} is an optical "
                    "switch, whose fibers have a single mode",
                    once="multimode",
                )
    for plan in plans.values():
        for path in light_paths(cabling, plan):
            if problem := _deaf(parts, path.source, path.sink):
                findings.add(("plans", plan.name), problem, of_key=True, once="deaf")


def _deaf(parts: Parts, source: Port, sink: Port) -> str | None:
    specs = _transceiver(parts, source), _transceiver(parts, sink)
    sender, receiver = (spec.known_pmd if spec else None for spec in specs)
    reason = receiver.deaf_to(sender) if sender and receiver else None
    if reason is None or sender is None or receiver is None:
        return None
    return f"{sink} ({receiver.name}) cannot read the light of {source} ({sender.name}): {reason}"


def _holders(document: Document) -> Iterator[tuple[Keys, int | None, str]]:
    """Yield place, rate and name of each transceiver in a port; kernel devices have any rate."""
    for key, server in document.servers.items():
        if server.kind == "namespace" or server.address.startswith("netns://"):
            continue
        for nic_key, nic in server.nics.items():
            if nic.transceiver:
                yield ("servers", key, "nics", nic_key), nic.rate_bps, nic.transceiver
    for key, switch in document.switches.items():
        if switch.kind == "packet" and switch.address and switch.transceiver:
            yield ("switches", key), switch.rate_bps, switch.transceiver


def _transceiver(parts: Parts, port: Port) -> TransceiverSpec | None:
    server = parts.servers.get(port.owner)
    nic = server.nics[port.name.partition(".")[0]] if server else None
    holder = nic or parts.switches.get(port.owner)
    return parts.transceivers.get(holder.transceiver or "") if holder else None
