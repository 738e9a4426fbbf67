"""Monitors whose loss of signal comes after the loss of carrier that it causes."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from lightrig.harness.measure.stages import Seen
from lightrig.instruments.clock import Span
from lightrig.instruments.core.stages import CARRIER_DOWN, LOS
from lightrig.testbeds import Link
from lightrig.testbeds.cabling import Cabling


def late_monitors(
    seen: Sequence[Seen], links: Iterable[Link], cabling: Cabling, tolerances: Mapping[str, int]
) -> dict[str, int]:
    """Return by how many ns, at least, the monitors of switches were late, by switch.

    links: those that were up before. A port loses carrier because its own receiver is dark, or
    because the far end's is and says so, hence after the earlier of both losses of signal. Ports
    of which one is not monitored show nothing.

    Bounds of light that lie wholly behind the carrier prove a delay. The points within them, by
    averaged power, show a delay of less than a window, such as readings that are those of the query
    before: where the median over a switch's links lies behind the carrier by more than
    `tolerances`, the error in ns of a point whose monitor does not average evenly.
    """
    lost = {one.subject: one.at for one in seen if one.stage == LOS.name}
    points = {one.subject: one.point for one in seen if one.stage == LOS.name}
    late: dict[str, int] = {}
    behind: dict[str, list[int]] = {}
    for link in links:
        ends = [cabling.egress_of(port) for port in (link.a, link.b)]
        subjects = [f"{end[0]}.{end[1]}" for end in ends if end is not None]
        light: list[Span] = [lost[subject] for subject in subjects if subject in lost]
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
        known = [point for subject in subjects if (point := points.get(subject)) is not None]
        if len(known) == len(ends):
            for switch in {end[0] for end in ends if end is not None}:
                behind.setdefault(switch, []).append(min(known) - min(down) - tolerances[switch])
    for switch, each in behind.items():
        if (excess := round(statistics.median(each))) > 0:
            late[switch] = max(late.get(switch, 0), excess)
    return late


def late_sentence(late: dict[str, int], number: int) -> str:
    """Return what monitors that are late show, and what to do."""
    found = ", ".join(f"{name} by {ns / 1e6:.1f} ms or more" for name, ns in sorted(late.items()))
    return (
        f"reconfiguration {number}: loss of signal after the loss of carrier that it causes: "
        f"monitors are late ({found}), or a server's clock is wrong; no limit "
        "judges light in such events; state `monitor_latency` of the switch in the testbed file"
    )
