"""Checks of the harness itself: closure, and the cost of its time stamps.

Both need ground truth, so they exist only where light is simulated.
"""

from collections.abc import Iterable, Iterator

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.reconfiguration import OF_LINK, EventStage, Reconfiguration
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent
from lightrig.testbeds import Port

_TRUTH: dict[EventStage, tuple[str, bool]] = {
    "los": ("light", False),
    "signal_recovered": ("light", True),
    **{stage: truth for truth, stage in OF_LINK.items()},
}
"""Which moment of a world's truth a stage must agree with."""


def closure_rows(event: Reconfiguration, fabric: Fabric, number: int) -> Iterator[Row]:
    """Share of each stage's intervals that contain the ground truth.

    Where the truth is only known within bounds (a change in the kernel), the two intervals must
    overlap.
    """
    truth = fabric.bench.truth
    if truth is None:
        return
    known = dict(_TRUTH)
    if fabric.bench.clock.virtual:
        # In real time the reply needs a moment from the switch to us, in virtual time none.
        known["acknowledged"] = ("acknowledged", True)
    inside: dict[EventStage, list[bool]] = {}
    for seen in event.seen:
        if seen.stage not in known:
            continue
        name, up = known[seen.stage]
        true = truth.first(seen.subject, name, up=up, since=event.sent.earliest)
        if true is not None:
            overlaps = true.latest >= seen.at.earliest and true.earliest <= seen.at.latest
            inside.setdefault(seen.stage, []).append(overlaps)
    for stage, found in inside.items():
        share = sum(found) / len(found)
        conditions = {"event": number, "n": len(found)}
        time = event.sent.earliest
        quantity = f"closure.{stage}"
        yield Row(fabric.testbed.name, quantity, share, share, share, "1", time, conditions)


def cost_rows(event: Reconfiguration, fabric: Fabric, number: int) -> Iterator[Row]:
    """From the kernel's change of a carrier to the harness's stamp of it, in ns.

    The kernel's change lies between the request that caused it and its acknowledgement;
    the upper bound counts from the request.
    """
    truth = fabric.bench.truth
    if truth is None or fabric.bench.clock.virtual:
        return
    for seen in event.seen:
        if seen.stage not in ("carrier_down", "carrier_up"):
            continue
        up = seen.stage == "carrier_up"
        true = truth.first(seen.subject, "carrier", up=up, since=event.sent.earliest)
        if true is not None:
            cost = Span(seen.at.latest - true.latest, seen.at.latest - true.earliest)
            yield _duration(seen.subject, "harness.carrier_stamp", cost, event, number)


def cross_check_rows(
    checks: Iterable[tuple[Port, LinkEvent]], event: Reconfiguration, number: int
) -> Iterator[Row]:
    """Delay of netlink behind the fast path for the same carrier event, in ns."""
    seen = {(one.subject, one.stage): one.at for one in event.seen}
    for port, announced in checks:
        stage: EventStage = "carrier_up" if announced.up else "carrier_down"
        at = seen.get((str(port), stage))
        if at is not None and announced.at.latest >= at.earliest:
            delay = Span(announced.at.latest - at.latest, announced.at.latest - at.earliest)
            yield _duration(str(port), "harness.netlink_delay", delay, event, number)


def _duration(subject: str, quantity: str, span: Span, event: Reconfiguration, number: int) -> Row:
    lower, upper = max(span.earliest, 0), max(span.latest, 0)
    time = event.sent.earliest
    return Row(subject, quantity, (lower + upper) // 2, lower, upper, "ns", time, {"event": number})
