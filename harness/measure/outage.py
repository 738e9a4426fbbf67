"""Rows and closure of the outage of each link and direction, from numbered datagrams."""

from collections.abc import Iterable, Iterator

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.links import DATAGRAM_PERIOD, LinkObservation
from lightrig.harness.measure.loss_windows import LossWindow
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.stages import OUTAGES, Reconfiguration, TrueMoments, true_outages
from lightrig.harness.record import Row
from lightrig.harness.statistics.closure import judge_bounds
from lightrig.instruments.clock import Span
from lightrig.testbeds import Plan


def measure_outage(
    fabric: Fabric,
    links: LinkObservation,
    recording: Recording,
    plan: Plan,
    *,
    datagram_period: int = DATAGRAM_PERIOD,
) -> list[LossWindow]:
    """Apply `plan` and record its stages, and how long each link direction was interrupted.

    Datagrams are numbered, one every `datagram_period` ns in each direction; limits on
    `outage.packets` are on the worst direction of each event. Raises what
    `measure_reconfiguration` does.
    """
    number = recording.next_event()
    links.set_datagram_period(datagram_period)
    event = measure_reconfiguration(fabric, links, recording, plan, number=number)
    found = outage_rows(event.windows, fabric, event, number, datagram_period)
    recording.record(
        row for row in found if not event.set_aside or row.quantity.startswith("closure.")
    )
    return list(event.windows)


def outage_rows(
    windows: Iterable[LossWindow], fabric: Fabric, event: Reconfiguration, number: int, period: int
) -> Iterator[Row]:
    """Each window as a row `outage.packets`; beside a known truth, how far its middle is off.

    `period` is that of the datagrams, in ns. Closure is the share of windows that hold the truth.
    """
    agree: list[bool] = []
    for window in windows:
        low, high = window.length
        middle, time = (low + high) // 2, window.began.earliest
        flaps = event.spans_flaps(str(window.receiver), window.began, window.ended)
        conditions = event.conditions(number)
        conditions |= {"datagram_period_ns": period, "flaps": flaps}
        if window.lost is not None:
            conditions["lost"] = window.lost
        yield Row(window.direction, "outage.packets", middle, low, high, "ns", time, conditions)
        true = _true_outage(window, fabric.bench, event)
        if true is not None:
            agree.append(true.latest >= low and true.earliest <= high)
            off = abs(middle - (true.earliest + true.latest) // 2)
            yield Row(
                window.direction, "harness.outage_error", off, off, off, "ns", time, conditions
            )
    if agree:
        verdict, time = judge_bounds(agree), event.sent.earliest
        yield closure_row(fabric.testbed.name, "closure.outage_packets", verdict, time, number)


def _true_outage(window: LossWindow, bench: Bench, event: Reconfiguration) -> Span | None:
    """True outage of a direction; None where there is no ground truth of it."""
    truth, subject = bench.truth, str(window.receiver)
    if truth is None:
        return None
    middle = sum(window.length) / 2
    found = true_outages(subject, OUTAGES[-1], TrueMoments(event, truth))
    return min(found, key=lambda one: abs(sum(one) / 2 - middle), default=None)
