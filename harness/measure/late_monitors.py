"""Monitors whose loss of signal comes after the loss of carrier that it causes."""

from collections.abc import Iterable, Sequence

from lightrig.harness.measure.stages import Seen
from lightrig.instruments.clock import Span
from lightrig.instruments.core.stages import CARRIER_DOWN, LOS
from lightrig.testbeds import Link
from lightrig.testbeds.cabling import Cabling


def late_monitors(seen: Sequence[Seen], links: Iterable[Link], cabling: Cabling) -> dict[str, int]:
    """Return by how many ns, at least, the monitors of switches were late, by switch.

    links: those that were up before. A port loses carrier because its own receiver is dark, or
    because the far end's is and says so, hence after the earlier of both losses of signal. Ports
    of which one is not monitored show nothing.
    """
    lost = {one.subject: one.at for one in seen if one.stage == LOS.name}
    late: dict[str, int] = {}
    for link in links:
        ends = [cabling.egress_of(port) for port in (link.a, link.b)]
        light: list[Span] = [
            lost[subject]
            for end in ends
            if end is not None and (subject := f"{end[0]}.{end[1]}") in lost
        ]
        down = [
            one.at.latest
            for one in seen
            if one.stage == CARRIER_DOWN.name and one.subject in (str(link.a), str(link.b))
        ]
        if len(light) < len(ends) or not down:
            continue
        excess = min(at.earliest for at in light) - min(down)
        if excess > 0:
            for switch, _ in filter(None, ends):
                late[switch] = max(late.get(switch, 0), excess)
    return late


def late_sentence(late: dict[str, int], number: int) -> str:
    """Return what monitors that are late show, and what to do."""
    found = ", ".join(f"{name} by {ns / 1e6:.1f} ms or more" for name, ns in sorted(late.items()))
    return (
        f"reconfiguration {number}: loss of signal after the loss of carrier that it causes, which "
        f"is impossible: monitors are late ({found}), or a server's clock is wrong; no limit "
        "judges light in such events; state `monitor_latency` of the switch in the testbed file"
    )
