"""Rows of a run with `--relock` from which its page is drawn: moments of each change, and ports.

The rows of stages are in `relock_turns`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lightrig.harness.measure.relock import Relock
from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.clock import Span
from lightrig.instruments.core.stages import LOS
from lightrig.testbeds import Port, Testbed

LIGHT_LOST = "light lost"
"""The moment before those of `relock.MARKS`: when the old light of a receiver ended."""

NOT_KNOWN = "not known"


def light_lost(event: Reconfiguration, testbed: Testbed) -> dict[Port, Span]:
    """Return when the light of each receiving port ended in a change, where that was seen."""
    found = {}
    for seen in event.seen:
        switch, _, egress = seen.subject.partition(".")
        if seen.stage == LOS.name:
            port = testbed.cabling.receiver(switch, int(egress))
            if port is not None:
                found[port] = seen.at
    return found


def moment_rows(
    event: Reconfiguration,
    port: Port,
    peer: Port | None,
    relock: Relock,
    lost: Span | None,
    conditions: Mapping[str, Scalar],
) -> Iterator[Row]:
    """Yield when each moment was that was seen at one end of a link, after the command.

    Each names the stages that follow. peer: the link's other end. lost: when the old light ended,
    if that was seen.
    """
    moments = [] if lost is None else [(LIGHT_LOST, lost)]
    stages = {part.between[0]: " + ".join(part.stages) for part in (*relock.parts, *relock.after)}
    for name, at in (*moments, *relock.moments):
        low, high = event.after(at)
        of_moment = {"moment": name, "peer": str(peer) if peer else NOT_KNOWN}
        stated = {**conditions, **of_moment, "next": stages.get(name, "")}
        middle, time = (low + high) // 2, event.sent.earliest
        yield Row(str(port), "relock.moment", middle, low, high, "ns", time, stated)


def port_rows(
    testbed: Testbed, changes: Mapping[Port, int], read: Mapping[str, Any], at: int
) -> Iterator[Row]:
    """Yield for each port in how many changes its relock was divided, and what hardware it is.

    changes: by port. read: settings of ports as a run stores them, by the ports' names, or what
    `port_differences.simulated_nics` returns. at: now, in ns.
    """
    for _, nic in testbed.nics:
        for port in (spec.port for spec in nic.ports if spec.port in changes):
            n, found = changes[port], read.get(str(port), {})
            stated: dict[str, Scalar] = {
                "transceiver": _plain(found.get("transceiver") or nic.transceiver),
                "nic": _plain(nic.model or found.get("pci_id")),
                "firmware": _plain(found.get("nic_firmware")),
            }
            yield Row(str(port), "relock.port", n, n, n, "1", at, stated)


def _plain(text: str | None) -> str:
    """Return a name without the sign that divides conditions of a row where it is reported."""
    return " ".join(text.replace(",", " ").split()) if text else NOT_KNOWN
