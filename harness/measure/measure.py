"""The `measure` fixture: measure, record, and judge by the testbed's limits."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.bit_errors import (
    BitErrors,
    Recorder,
    count_all,
    hold_temperature,
    on_port,
    on_tester,
    patterns_on,
    telemetry_rows,
)
from lightrig.harness.measure.collectives import (
    CollectiveCall,
    CollectiveRunner,
    Sweep,
    sweep,
    topology,
)
from lightrig.harness.measure.collectives import rows as collective_rows
from lightrig.harness.measure.insertion_loss import (
    Fault,
    chains,
    find_faults,
    measure_losses,
    misread,
    references_of,
)
from lightrig.harness.measure.insertion_loss.rows import all_rows as loss_rows
from lightrig.harness.measure.insertion_loss.rows import temperature
from lightrig.harness.measure.judged import Judged, UnitError
from lightrig.harness.measure.links import DATAGRAM_PERIOD, LinkObservation, LinksDownError
from lightrig.harness.measure.outage import LossWindow, loss_windows, outage_rows
from lightrig.harness.measure.path_changes import (
    PERIOD,
    Session,
    change_paths,
    lit,
    modules_on,
    path_change_rows,
)
from lightrig.harness.measure.rdma import rdma_rows
from lightrig.harness.measure.rdma_recovery import RdmaRecovery, first_rdma, rdma_recovery_rows
from lightrig.harness.measure.reconfiguration import (
    IncompleteError,
    Reconfiguration,
    reconfigure,
    rising_ports,
    rows,
)
from lightrig.harness.measure.recovery import Recovery, recovery_rows, traffic_under_change
from lightrig.harness.measure.self_check import closure_rows, cost_rows, cross_check_rows
from lightrig.harness.quantities import quantity
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics import Verdict
from lightrig.instruments.core.capabilities import (
    Attenuator,
    BitErrorTester,
    ClimateChamber,
    FecSide,
    ModuleTelemetry,
    SimultaneousLogs,
)
from lightrig.instruments.core.rdma import RdmaLink
from lightrig.instruments.core.traffic import TrafficSource
from lightrig.testbeds import Limit, Link, Plan, Port

MODULE_SETTLING = 1_000_000_000
"""Settling time before a module's telemetry is read, in ns."""

LINK_TIMEOUT = 60_000_000_000
"""Timeout for links to come up, in ns; the slowest recorded firmware took 25 s."""

Record = Callable[[Sequence[Row]], None]
RecordOn = Callable[[Bench, Mapping[str, Scalar]], Record]


class Note(Protocol):
    """Takes a sentence for people; `in_report`: also for the report."""

    def __call__(self, sentence: str, /, *, in_report: bool) -> None:
        """Show it."""


class Measure(Judged):
    """Takes measurements on a fabric for one test.

    Args:
        fabric: what is measured.
        links: the observation of its servers' links.
        record: where rows go.
        record_on: makes such a place for rows of another bench, or under more conditions.
        judged, undecided: see `Judged`.
        note: takes sentences for the terminal and, with `in_report`, the report.
    """

    def __init__(
        self,
        fabric: Fabric,
        links: LinkObservation,
        record: Record,
        *,
        record_on: RecordOn | None = None,
        judged: Callable[[Limit, Verdict], None] = lambda _limit, _verdict: None,
        undecided: Callable[[str], None] | None = None,
        note: Note = lambda _sentence, *, in_report: None,
    ) -> None:
        super().__init__(fabric.testbed.limits, judged, undecided)
        self._fabric = fabric
        self._links = links
        self._record = record
        self._record_on = record_on
        self._note = note
        self.book = Recorder(record, self._take, lambda sentence: note(sentence, in_report=False))
        self._count = 0

    def record(
        self,
        rows: Iterable[Row],
        conditions: Mapping[str, Scalar] | None = None,
        *,
        bench: Bench | None = None,
    ) -> None:
        """Record rows of declared quantities, for the testbed's limits to judge.

        conditions: of all these rows, besides the test's parameters. bench: where they were
        measured, if not on the testbed's own. A conftest declares quantities with
        `lightrig.harness.quantities.declare`.

        Raises:
            UnknownQuantityError: a row's quantity is not declared; nothing is recorded.
            UnitError: a row's unit is not that of its quantity; nothing is recorded.
        """
        found, record = list(rows), self._record
        for name, unit in {(row.quantity, row.unit) for row in found}:
            if unit != quantity(name).unit:
                raise UnitError(f"found {name} in {unit!r}, declared in {quantity(name).unit!r}")
        if self._record_on is not None and (bench is not None or conditions):
            record = self._record_on(bench or self._fabric.bench, conditions or {})
        record(found)
        self._take(found)

    def note(self, sentence: str) -> None:
        """Show a sentence about this testbed on the terminal, as an event and in the report."""
        self._note(sentence, in_report=True)

    def bring_up(self, plan: Plan) -> None:
        """Apply `plan` and wait until its links carry traffic; raises `LinksDownError`."""
        transition = self._fabric.prepare(plan)
        sent = transition.begin()
        transition.acknowledged()
        transition.verify()
        # What still seems to be up may be the links before.
        rising = rising_ports(self._fabric, transition)
        _, unfinished = self._links.changes(rising, sent.earliest, LINK_TIMEOUT)
        if unfinished:
            self._fabric.bench.check_world()
            raise LinksDownError(unfinished, LINK_TIMEOUT)
        ports = {port for link in self._fabric.links(plan) for port in (link.a, link.b)}
        self._links.await_up(ports, LINK_TIMEOUT)
        self._links.take_cross_checks()

    def reconfiguration(self, plan: Plan) -> Reconfiguration:
        """Apply `plan` and record every stage until traffic runs on the new links.

        Raises:
            IncompleteError: light or a link did not come; what was seen is recorded first.
            InstrumentError: an instrument refused or failed.
        """
        event = reconfigure(self._fabric, plan, self._links, link_timeout=LINK_TIMEOUT)
        number, self._count = self._count, self._count + 1
        checks = self._links.take_cross_checks()
        self._record(
            [
                *rows(event, self._fabric, number),
                *closure_rows(event, self._fabric, number),
                *cost_rows(event, self._fabric, number),
                *cross_check_rows(checks, event, number),
            ]
        )
        if event.missing:
            self._fabric.bench.check_world()
            raise IncompleteError(
                f"reconfiguration {number} to {plan.name} did not complete; not seen: "
                + ", ".join(f"{subject} {stage}" for subject, stage in event.missing)
                + _how_closely(event)
            )
        for stage, span in event.stages().items():
            self._spans[f"reconfiguration.{stage}"].append(span)
        return event

    def outage(self, plan: Plan, *, datagram_period: int = DATAGRAM_PERIOD) -> list[LossWindow]:
        """Apply `plan` as `reconfiguration` does; how long each link direction was interrupted.

        Datagrams are numbered, one every `datagram_period` ns in each direction; limits on
        `outage.packets` are on the worst direction of each event. Raises what `reconfiguration`
        does, and `LinksDownError` where links do not come up that are up before.
        """
        self._links.set_datagram_period(datagram_period)
        with self._links.keeping_gaps():
            event = self.reconfiguration(plan)
            windows = loss_windows(self._links, event.sent.earliest)
        number = self._count - 1
        self._record(list(outage_rows(windows, self._fabric, event, number, datagram_period)))
        if windows:
            worst = max(windows, key=lambda window: window.length.latest)
            self._spans["outage.packets"].append(worst.length)
        return windows

    def collective(self, runner: CollectiveRunner, call: CollectiveCall, plan: Plan) -> Sweep:
        """Run `call` on the links of `plan`, which is in place and up, and record every operation.

        Limits on `collective.utilization`, the share of the line rate, are on the largest size.

        Raises:
            RanksError: the plan's links do not join the ranks.
            CollectiveFailedError: it ended with an error, or did not end.
            WrongResultsError: it came out wrong; nothing is recorded.
        """
        self._links.pause()  # on servers that are one machine, watching takes what others need
        over = topology(self._fabric.testbed, plan, call.ranks)
        found = sweep(runner, call, over)
        self._keep(collective_rows(found))
        return found

    def rdma(self, ends: RdmaLink, link: Link, plan: Plan) -> None:
        """Latency and bandwidth of RDMA over `link` of `plan`, which is in place and up.

        Raises `InstrumentError` where the ends do not reach each other.
        """
        self._keep(rdma_rows(ends, link, plan, self._fabric.testbed))

    def rdma_recovery(self, ends: RdmaLink, link: Link, plan: Plan) -> RdmaRecovery:
        """Apply `plan` and record when RDMA runs over its new `link`; raises `RdmaDownError`."""
        found = first_rdma(self._fabric, plan, link, ends, timeout=LINK_TIMEOUT)
        number, self._count = self._count, self._count + 1
        self._record(list(rdma_recovery_rows(found, ends, number)))
        self._spans["rdma.recovered"].append(found.after)
        return found

    def insertion_loss(self) -> list[Fault]:
        """Measure the insertion loss of every measurable circuit; return the faults found.

        Losses without a reference are recorded as `insertion_loss.relative` and have no limit.
        The fabric restores the established circuits.

        Raises:
            NothingToMeasureError: no switch has an observer of its light.
            InstrumentError: an instrument refused or failed.
        """
        bench, found = self._fabric.bench, []
        for chain in chains(bench, references_of(bench)):
            losses = measure_losses(self._fabric, chain)
            faults = find_faults(losses, bench.testbed)
            losses = losses.without(misread(losses, faults))
            self._fabric.power_budget.add_measured(chain.switch, losses.known())
            conditions = {**temperature(bench), **self.book.conditions}
            self._keep(loss_rows(losses, faults, bench, conditions))
            found += faults
        return found

    def recovery(
        self,
        source: TrafficSource,
        ranks: Sequence[str],
        plans: tuple[Plan, Plan],
        route: Callable[[Plan], object],
        *,
        size: int,
        before: int = 1_000_000_000,
        after: int = 3_000_000_000,
    ) -> Recovery:
        """Change plans under traffic, and record what it saw; see `traffic_under_change`."""
        self._links.pause()
        found = traffic_under_change(
            self._fabric, source, ranks, plans, route, size=size, before=before, after=after
        )
        number, self._count = self._count, self._count + 1
        self._keep(recovery_rows(found, self._fabric, number))
        return found

    def path_changes(
        self,
        meter: SimultaneousLogs,
        plans: tuple[Plan, Plan],
        session: Session,
        count: int,
        *,
        period: int = PERIOD,
    ) -> None:
        """Move modules `count` times to and fro between two plans, and record each on a meter.

        period: of a sample of the meter's log, in ns; slower modules need a longer log.
        Raises what `modules_on` and `change_paths` do.
        """
        fabric = self._fabric
        modules = modules_on(fabric, meter, plans)
        with lit(fabric, modules):
            fabric.apply(plans[0], check_budget=False)
            for index in range(count):
                path = plans if index % 2 == 0 else plans[::-1]
                seen = modules if index % 2 == 0 else [module.turned() for module in modules]
                found = change_paths(fabric, meter, seen, path, session, period=period)
                number, self._count = self._count, self._count + 1
                self._record(list(path_change_rows(found, fabric, number)))
                worst = max(found.dark().values(), key=lambda dark: dark.latest)
                self._spans["path_change.dark"].append(worst)
                self._spans["path_change.end_to_end"].append(found.end_to_end())

    def hold_temperature(self, chamber: ClimateChamber, celsius: float) -> None:
        """Hold `chamber` at `celsius`; the temperature becomes a condition of all later rows."""
        self._record([hold_temperature(chamber, celsius, self._fabric.bench.clock)])
        self.book.conditions["temperature_c"] = celsius

    def bit_errors(
        self, tester: BitErrorTester, attenuator: Attenuator | None = None, *, channel: int = 1
    ) -> BitErrors:
        """Lead a tester's light back to it, unattenuated, and have it follow its pattern.

        channel: where it comes back, if not to the one that sends. Raises `NoLoopbackPathError`,
        `MissingParameterError`, or an error of the tester.
        """
        return self._register(on_tester(self._fabric, self.book, tester, attenuator, channel))

    def port_errors(self, ports: Iterable[Port], fec: FecSide) -> list[str]:
        """Count what the counters of NIC ports count, all at once, while their links are up.

        Returns the quantities that it was recorded as: bits or symbols, as the ports count.
        Raises `NoCountersError` where a port has none, and `NothingCountedError`.
        """
        bench = self._fabric.bench
        counters = [self._register(on_port(bench, self.book, port, fec)) for port in ports]
        count_all(counters)
        return sorted({each.quantity for each in counters})

    def pattern_errors(self, links: Iterable[Link]) -> None:
        """Have both ends of each link send and check a test pattern, which takes the links down.

        Raises `MissingParameterError`, `NoCountersError`, `NothingCountedError`.
        """
        with patterns_on(self._fabric.bench, self.book, links) as ends:
            count_all([self._register(one) for one in ends])

    def _register(self, made: BitErrors) -> BitErrors:
        self._counters.append(made)
        return made

    def modules(self, switches: Iterable[ModuleTelemetry]) -> None:
        """Record power and temperature of the modules of `switches` after one second."""
        clock = self._fabric.bench.clock
        clock.sleep(MODULE_SETTLING)
        number = next(self.book.numbers)
        self._keep(telemetry_rows(switches, clock, number, self.book.conditions))

    def _keep(self, rows: Iterable[Row]) -> None:
        """Record `rows`, and let limits judge them."""
        retained = list(rows)
        self._record(retained)
        self._take(retained)


def _how_closely(event: Reconfiguration) -> str:
    """Note on the reading gap for events without a signal recovery."""
    if all(stage != "signal_recovered" for _, stage in event.missing):
        return ""
    return (
        f"; up to {event.reading_gap / 1e6:.0f} ms passed between two readings of a switch's "
        "monitors, and a shorter darkness may go unseen"
    )
