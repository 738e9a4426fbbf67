"""All directions of a plan's links alone and at once, and which of them share a limit."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from lightrig.harness.bench import Fabric
from lightrig.harness.components import ComponentKind, LabComponent
from lightrig.harness.findings import Finding
from lightrig.harness.host_limits import host_conditions
from lightrig.harness.jobs.bench.loads import flows_of
from lightrig.harness.jobs.statistics.shared_limits import (
    LOOKS,
    LosingSet,
    Loss,
    SharedLimits,
    find_shared_limits,
    judged,
)
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import PORTS, Recording
from lightrig.harness.record import Row
from lightrig.harness.record.row import Scalar
from lightrig.instruments.clock import Clock
from lightrig.instruments.jobs.core.loads import Flow, FlowRate, Load
from lightrig.testbeds import Plan, Testbed
from lightrig.testbeds.plans import Port

SHARED_LIMIT = "shared limit"
"""Kind of a finding: flows that lose when they run at once."""

_MOST_WAITED = 0.3
"""Share of a load in which a sending program may wait for a processor; a round with more is void.

A port's queue bridges shorter waits; longer ones are of the bench, not of a link.
"""
_MOST_VOID = 8


def measure_concurrent_load(
    fabric: Fabric,
    links: LinkObservation,
    recording: Recording,
    load: Load,
    plan: Plan,
    family: str,
) -> SharedLimits[Flow]:
    """Run each direction of each link of `plan` alone and all at once, in turns; record both.

    The plan is in place and its links are up, but for those that the test leaves out. Rows are
    `FAMILY.alone`, the rate of a direction alone, and `FAMILY.concurrent_share`, its rate beside
    all others as a share of it, both of each round. Where directions lose, parts of them run again;
    what loses becomes a finding, and what cannot be told makes the test inconclusive.

    Raises `InstrumentError` where the load does.
    """
    links.pause()  # on servers that are one machine, watching takes what others need
    testbed = fabric.testbed
    flows = flows_of(testbed, fabric.bench.coverage.part(plan))
    host = host_conditions(fabric.bench, {flow.source for flow in flows})
    rounds = _Rounds(load, fabric.bench.clock, _Recorder(recording, plan, family, host))
    found = find_shared_limits(flows, shared_parts(testbed, flows), rounds.run)
    recording.found(_finding(one, rounds.shares, plan, found.beside) for one in found.sets)
    if found.alike:
        recording.found([_alike(flows, rounds.shares, plan)])
    if found.undecided and recording.undecided is not None:
        names = ", ".join(map(str, found.undecided))
        why = f"; {rounds.void} rounds are void: {rounds.reason}" if rounds.void else ""
        recording.undecided(
            f"{plan.name}: cannot tell whether {names} lose rate beside the other links after "
            f"{rounds.count} rounds{why}"
        )
    return found


def shared_parts(testbed: Testbed, flows: Sequence[Flow]) -> dict[str, Collection[Flow]]:
    """Return flows by what the testbed's file says they share: NICs, servers, switches.

    A limit may be of one direction, so NICs and servers that send and that receive come first.
    """
    found: defaultdict[str, list[Flow]] = defaultdict(list)
    for level in ("nic", "server"):
        for flow in flows:
            for port, does in ((flow.source, "sending"), (flow.sink, "receiving")):
                part = _nic(port) if level == "nic" else port.owner
                found[f"{part} {does}"].append(flow)
        for flow in flows:
            for port in (flow.source, flow.sink):
                found[_nic(port) if level == "nic" else port.owner].append(flow)
    for flow in flows:
        ends = testbed.cabling.ingress_of(flow.source), testbed.cabling.egress_of(flow.sink)
        for switch in dict.fromkeys(end[0] for end in ends if end is not None):
            found[switch].append(flow)
    return dict(found)


def _nic(port: Port) -> str:
    return f"{port.owner}.{port.name.partition('.')[0]}"


class _Recorder:
    """Records the rounds in which all flows of a plan ran."""

    def __init__(
        self, recording: Recording, plan: Plan, family: str, host: Mapping[str, Scalar]
    ) -> None:
        self._recording, self._plan, self._family = recording, plan, family
        self._host = host

    def record(self, at: int, alone: Mapping[Flow, float], shares: Mapping[Flow, float]) -> None:
        number = self._recording.next_event()
        event: dict[str, Scalar] = {"plan": self._plan.name, "event": number, **self._host}
        # What a link has beside others depends on how many they are.
        coverage = self._recording.coverage
        if coverage is not None and (share := coverage.share_now()) is not None:
            event[PORTS] = share.condition
        rows = []
        for name, unit, values in (
            ("alone", "bit/s", alone),
            ("concurrent_share", "share", shares),
        ):
            quantity = f"{self._family}.{name}"
            rows += [
                Row(str(flow), quantity, value, None, None, unit, at, event)
                for flow, value in values.items()
            ]
        self._recording.record(rows)


class _Rounds:
    """Loads flows alone and at once, in turns, until each of them is decided.

    shares: of each flow, of the last flows that ran. count: rounds so far; void: how many of them
    say nothing, and reason why.
    """

    def __init__(self, load: Load, clock: Clock, recorder: _Recorder) -> None:
        self._load, self._clock, self._recorder = load, clock, recorder
        self.shares: dict[frozenset[Flow], dict[Flow, list[float]]] = {}
        self.count = self.void = 0
        self.reason = ""

    def run(self, flows: Sequence[Flow]) -> dict[Flow, Loss]:
        shares: dict[Flow, list[float]] = {flow: [] for flow in flows}
        whole = not self.shares
        self.shares[frozenset(flows)] = shares
        found = dict.fromkeys(flows, Loss.UNDECIDED)
        void = rounds = 0
        while rounds < LOOKS[-1] and void < _MOST_VOID and Loss.UNDECIDED in found.values():
            self.count += 1
            round_ = self._round(flows)
            if round_ is None:
                void += 1
                continue
            alone, together = round_
            rounds += 1
            beside = {flow: together[flow] / alone[flow] for flow in flows}
            if whole:
                self._recorder.record(self._clock.now(), alone, beside)
            for flow, share in beside.items():
                shares[flow].append(share)
                if rounds in LOOKS and found[flow] is Loss.UNDECIDED:
                    found[flow] = judged(shares[flow])
        self.void += void
        return found

    def _round(self, flows: Sequence[Flow]) -> tuple[dict[Flow, float], dict[Flow, float]] | None:
        """Return the rates alone and at once; None where the bench disturbed one of them."""
        alone: dict[Flow, float] = {}
        together: dict[Flow, float] = {}
        for chosen in (*([flow] for flow in flows), flows):
            rates = dict(zip(chosen, self._load.rates(chosen), strict=True))
            if (why := _disturbed(rates)) is not None:
                self.reason = why
                return None
            into = together if chosen is flows else alone
            into |= {flow: rate.bps or 0.0 for flow, rate in rates.items()}
        if silent := [str(flow) for flow, rate in alone.items() if not rate]:
            self.reason = f"nothing arrived of {', '.join(silent)} alone"
            return None
        return alone, together


def _disturbed(rates: Mapping[Flow, FlowRate]) -> str | None:
    """Return why a load says nothing of its flows; None where it does."""
    if any(rate.bps is None for rate in rates.values()):
        return "flows did not run side by side for half of the time"
    waited = max(rate.waited for rate in rates.values())
    if waited <= _MOST_WAITED:
        return None
    return f"a sending program waited for a processor in {100 * waited:.0f} % of its time"


def _finding(
    one: LosingSet[Flow],
    shares: Mapping[frozenset[Flow], Mapping[Flow, Sequence[float]]],
    plan: Plan,
    beside: Sequence[Flow],
) -> Finding:
    of_set = shares.get(frozenset(one.flows), {})
    names = " and ".join(map(str, one.flows))
    values, rounds = _medians(of_set)
    what = f"share a limit of {one.shared}" if one.shared else "share a limit that the file lacks"
    if not one.confirmed:
        what = "lose rate only beside further links"
    evidence = (
        f"plan {plan.name}: {names} {what}: at once {values} of each one's rate alone "
        f"({rounds} rounds)"
    )
    if beside:
        evidence += f"; {', '.join(map(str, beside))} lose beside them"
    return Finding(
        SHARED_LIMIT,
        evidence,
        tuple(map(str, one.flows)),
        _components(one),
        next_step="compare PCIe width, NUMA node and processors of these ports",
    )


def _alike(
    flows: Sequence[Flow],
    shares: Mapping[frozenset[Flow], Mapping[Flow, Sequence[float]]],
    plan: Plan,
) -> Finding:
    values, rounds = _medians(shares[frozenset(flows)])
    return Finding(
        SHARED_LIMIT,
        f"plan {plan.name}: all {len(flows)} directions lose alike, at once {values} of each one's "
        f"rate alone ({rounds} rounds), and no part of them that the file names does: all of them, "
        "or the bench",
        (plan.name,),
        next_step="run it on fewer links, or with servers that carry more",
    )


def _medians(shares: Mapping[Flow, Sequence[float]]) -> tuple[str, int]:
    medians = [statistics.median(values) for values in shares.values() if values]
    rounds = max((len(values) for values in shares.values()), default=0)
    if not medians:
        return "an unknown share", 0
    low, high = (f"{100 * share:.0f} %" for share in (min(medians), max(medians)))
    return (low if low == high else f"{low} to {high}"), rounds


def _components(one: LosingSet[Flow]) -> tuple[LabComponent, ...]:
    """Return what the file says the flows share, or else their links."""
    part = one.shared.partition(" ")[0]
    if not part:
        return tuple(
            sorted(
                {
                    LabComponent("link", " - ".join(sorted((str(f.source), str(f.sink)))))
                    for f in one.flows
                }
            )
        )
    ports = {str(p) for f in one.flows for p in (f.source, f.sink) if _nic(p) == part}
    if ports:
        return tuple(LabComponent("port", port) for port in sorted(ports))
    servers = {port.owner for flow in one.flows for port in (flow.source, flow.sink)}
    kind: ComponentKind = "server" if part in servers else "switch"
    return (LabComponent(kind, part),)
