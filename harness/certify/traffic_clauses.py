"""Clauses on traffic over the circuits of a switch, between servers of the testbed."""

from collections.abc import Iterator
from dataclasses import replace

from lightrig.harness.certify.optics_clauses import judged
from lightrig.harness.certify.requirements import Requirement
from lightrig.harness.certify.subject import DecidedError, Outcome, Subject, Verdict
from lightrig.harness.jobs.bench.arp_settings import ports_reply_for_themselves
from lightrig.harness.jobs.bench.rdma import RdmaOverCircuits, without_rdma
from lightrig.harness.jobs.measure.rdma_recovery import RdmaDownError, first_rdma
from lightrig.harness.measure.bit_errors.counting import DEFAULT_LIMIT, KP4_LIMIT
from lightrig.harness.measure.bit_errors.frame_loss import measure_frame_loss
from lightrig.harness.measure.bit_errors.rows import FRAME_LOSS
from lightrig.harness.measure.bit_errors.setup import NoCountersError, measure_port_errors
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LINK_TIMEOUT, LinkObservation, LinksDownError
from lightrig.harness.measure.outage import measure_outage
from lightrig.harness.measure.reconfiguration import IncompleteError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.testbeds import Limit, Plan, Port

_CHANGES = 6
_OUTAGE, _RDMA = "outage.packets", "rdma.recovered"


def traffic(subject: Subject, requirement: Requirement) -> Outcome:
    """Change between two plans under datagrams."""
    plans = _plans(subject)
    links = LinkObservation(subject.fabric.bench)
    recording = Recording(lambda rows: None)
    try:
        bring_up(subject.fabric, links, plans[0])
        windows = [
            window
            for index in range(_CHANGES)
            for window in measure_outage(subject.fabric, links, recording, plans[(index + 1) % 2])
        ]
    except (LinksDownError, IncompleteError) as error:
        return Outcome("fail", " ".join(str(error).split()))
    finally:
        links.pause()
    if recording.slow_watches:
        return Outcome("inconclusive", recording.slow_watches[0], n=_CHANGES)
    if not windows:
        return Outcome("pass", "the links carry traffic; no link was interrupted", n=_CHANGES)
    found = [(low / 1e6, high / 1e6) for low, high in (each.length for each in windows)]
    outcome = judged(subject, _OUTAGE, found, "ms", "outage of the worst direction", 1e6)
    if outcome.verdict != "not applicable":
        return outcome
    return replace(outcome, verdict="pass", reason=f"the links carry traffic; {outcome.reason}")


def error_ratio(subject: Subject, requirement: Requirement) -> Outcome:
    """Count errors before FEC on the links of two plans."""
    rows: list[Row] = []
    recording = Recording(rows.extend)
    quantities: set[str] = set()
    try:
        for ports in _brought_up(subject):
            found = measure_port_errors(subject.fabric.bench, recording, ports, "before")
            quantities.update(found)
    except NoCountersError as error:
        return Outcome("not tested", f"needs NIC ports that count errors: {error}")
    stated = subject.fabric.testbed.limits
    limits = [
        stated.get(name) or Limit(name, "upper", 1.0, KP4_LIMIT, "1", DEFAULT_LIMIT.confidence)
        for name in sorted(quantities)
    ]
    verdicts = [recording.verdict(limit) for limit in limits]
    outcomes = {each.outcome for each in verdicts}
    verdict: Verdict = "inconclusive" if "not enough data" in outcomes else "pass"
    if "fail" in outcomes:
        verdict = "fail"
    worst = max((row for row in rows if row.quantity in quantities), key=lambda row: row.value)
    allowed = ", ".join(f"{each.value:g}" for each in limits)
    reason = f"limit {allowed}; greatest ratio, of {worst.subject}"
    if verdict != "pass":
        reason = f"{reason}: {' '.join(each.reason for each in verdicts)}"
    interval = None
    if worst.lower is not None and worst.upper is not None:
        interval = worst.lower, worst.upper
    return Outcome(verdict, reason, worst.value, interval, "1", sum(v.n for v in verdicts))


def frame_loss(subject: Subject, requirement: Requirement) -> Outcome:
    """Take FEC histograms on the links of two plans."""
    rows: list[Row] = []
    recording = Recording(rows.extend)
    try:
        for ports in _brought_up(subject):
            measure_frame_loss(subject.fabric.bench, recording, ports)
    except NoCountersError as error:
        return Outcome("not tested", f"needs NIC ports with a FEC histogram: {error}")
    found = [row for row in rows if row.quantity == FRAME_LOSS]
    worst = max(found, key=lambda row: row.value)
    lost = sum(int(row.conditions["lost"]) for row in found)
    most = max(int(row.conditions["most_symbol_errors"]) for row in found)
    bounds = [(row.lower or 0.0, row.value if row.upper is None else row.upper) for row in found]
    note = f"worst {worst.subject}, at most {most} symbol errors in a code word"
    outcome = judged(subject, FRAME_LOSS, bounds, "1", note)
    if lost:
        reason = f"{lost} code words were not corrected; {note}"
        return replace(outcome, verdict="fail", reason=reason)
    if outcome.verdict != "not applicable":
        return outcome
    return replace(outcome, verdict="pass")


def rdma(subject: Subject, requirement: Requirement) -> Outcome:
    """Change between two plans, and try RDMA over a new link until it runs."""
    bench = subject.fabric.bench
    if why := without_rdma(bench.testbed):
        return Outcome("not tested", f"needs RDMA between NIC ports: {why}")
    plans, over = _plans(subject), RdmaOverCircuits(bench)
    links = LinkObservation(bench)
    found: list[tuple[float, float]] = []
    try:
        with ports_reply_for_themselves(bench):
            for index in range(_CHANGES):
                before, after = plans[index % 2], plans[(index + 1) % 2]
                bring_up(subject.fabric, links, before)
                new = sorted(subject.fabric.links(after) - subject.fabric.links(before))
                if not new:
                    continue
                pair = over.pair(new[0])
                first = first_rdma(subject.fabric, after, new[0], pair, timeout=LINK_TIMEOUT)
                low, high = first.after
                found.append((low / 1e6, high / 1e6))
    except (LinksDownError, IncompleteError, RdmaDownError) as error:
        return Outcome("fail", " ".join(str(error).split()))
    finally:
        links.pause()
    outcome = judged(subject, _RDMA, found, "ms", "from the command until RDMA runs", 1e6)
    if outcome.verdict != "not applicable":
        return outcome
    return replace(outcome, verdict="pass", reason=f"RDMA runs; {outcome.reason}")


def _plans(subject: Subject) -> tuple[Plan, Plan]:
    """Return two plans of the switch with different links; raises `DecidedError`."""
    first, *further = subject.plans_of(2)
    linked = subject.fabric.links(first)
    for second in further:
        if linked and (subject.fabric.links(second) - linked):
            return first, second
    reason = "needs two plans of the testbed with links between its servers"
    raise DecidedError(Outcome("not tested", reason))


def _brought_up(subject: Subject) -> Iterator[list[Port]]:
    """Bring up each of two plans, and yield the ports of its links."""
    for plan in _plans(subject):
        links = LinkObservation(subject.fabric.bench)
        try:
            bring_up(subject.fabric, links, plan)
        finally:
            links.pause()
        yield sorted({p for link in subject.fabric.links(plan) for p in (link.a, link.b)})
