"""What a test uses: take a measurement, record it, judge it by the testbed's limits."""

from collections.abc import Callable, Iterable, Sequence

import numpy.typing as npt

from harness.bench import Fabric
from harness.bench.exchanges import Exchanges
from harness.fabrics.mixnet import Failures
from harness.measure.bit_errors import (
    BitErrors,
    Book,
    count_all,
    hold_temperature,
    on_port,
    on_tester,
    patterns_on,
    telemetry_rows,
)
from harness.measure.bypass import Passage, passage_rows
from harness.measure.collectives import CollectiveCall, CollectiveRunner, Sweep, sweep, topology
from harness.measure.collectives import rows as collective_rows
from harness.measure.exchanges import (
    Exchanged,
    Speedup,
    bring_in,
    exchange_rows,
    run_exchange,
    speedup,
    speedup_row,
)
from harness.measure.failover import Failover, failover_rows
from harness.measure.insertion_loss import (
    Fault,
    chains,
    find_faults,
    measure_losses,
    misread,
    references_of,
)
from harness.measure.insertion_loss.rows import all_rows as loss_rows
from harness.measure.insertion_loss.rows import temperature
from harness.measure.judged import Judged, NotEnoughDataError
from harness.measure.links import DATAGRAM_PERIOD, LinkObservation, LinksDownError
from harness.measure.outage import LossWindow, loss_windows, outage_rows
from harness.measure.path_changes import (
    Session,
    change_paths,
    lit,
    modules_on,
    path_change_rows,
)
from harness.measure.rdma import rdma_rows
from harness.measure.rdma_recovery import RdmaRecovery, first_rdma, rdma_recovery_rows
from harness.measure.reconfiguration import (
    IncompleteError,
    Reconfiguration,
    reconfigure,
    rising_ports,
    rows,
)
from harness.measure.recovery import Recovery, recovery_rows, traffic_under_change
from harness.measure.self_check import closure_rows, cost_rows, cross_check_rows
from harness.record import Row
from harness.statistics import NotEnough
from instruments.capabilities import (
    Attenuator,
    BitErrorTester,
    ClimateChamber,
    FecSide,
    ModuleTelemetry,
    SimultaneousLogs,
)
from instruments.rdma import RdmaLink
from instruments.traffic import TrafficSource
from testbeds import Link, Plan, Port

MODULE_SETTLING = 1_000_000_000
"""How long a module is left alone before it is asked what it draws, in ns."""

LINK_TIMEOUT = 60_000_000_000
"""How long links may take to come up, in ns; the slowest recorded firmware took 25 s."""

Record = Callable[[Sequence[Row]], None]


class Measure(Judged):
    """Takes measurements on a fabric for one test.

    Args:
        fabric: what is measured.
        links: the observation of its servers' links.
        record: where rows go.
    """

    def __init__(self, fabric: Fabric, links: LinkObservation, record: Record) -> None:
        super().__init__(fabric.testbed.limits)
        self._fabric = fabric
        self._links = links
        self._record = record
        self.book = Book(record, self._take)
        self._count = 0

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

        Limits on `collective.use`, the share of the line rate, are on the largest size.

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

    def bring_in(self, over: Exchanges, plan: Plan) -> None:
        """Apply `plan`, wait for its carriers and lead packets by it; see `exchanges.bring_in`."""
        self._links.pause()
        bring_in(self._fabric, over, plan, Failures())

    def exchange(
        self, over: Exchanges, plan: Plan, traffic: npt.ArrayLike, *, iterations: int
    ) -> Exchanged:
        """Run an all-to-all over `plan` and record every operation; see `run_exchange`."""
        self._links.pause()
        found = run_exchange(self._fabric, over, plan, traffic, iterations)
        self._keep(exchange_rows(found, self._fabric))
        return found

    def speedup(self, slow: Exchanged, fast: Exchanged) -> Speedup:
        """Record how many times as long `slow` takes as `fast`; raises `NotEnoughDataError`."""
        found = speedup(slow, fast)
        if isinstance(found, NotEnough):
            raise NotEnoughDataError(str(found))
        self._keep([speedup_row(slow, fast, found)])
        return found

    def failover(self, play: Callable[[Fabric], Failover]) -> Failover:
        """Let something fail under traffic as `play` does, and record what followed."""
        self._links.pause()
        found = play(self._fabric)
        number, self._count = self._count, self._count + 1
        self._keep(failover_rows(found, self._fabric, number))
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
        """Measure every circuit of every switch that can be measured; what is wrong with any.

        Losses without a reference are recorded as `insertion_loss.relative`, and no limit is on
        them. Circuits that were there are put back with the fabric.

        Raises:
            NothingToMeasureError: no switch has anybody who sees its light.
            InstrumentError: an instrument refused or failed.
        """
        bench, found = self._fabric.bench, []
        for chain in chains(bench, references_of(bench)):
            losses = measure_losses(self._fabric, chain)
            faults = find_faults(losses, bench.testbed)
            losses = losses.without(misread(losses, faults))
            self._fabric.closing.know(chain.switch, losses.known())
            held = {**temperature(bench), **self.book.held}
            self._keep(loss_rows(losses, faults, bench, held))
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
        self, meter: SimultaneousLogs, plans: tuple[Plan, Plan], session: Session, count: int
    ) -> None:
        """Move modules `count` times to and fro between two plans, and record each on a meter.

        Raises what `modules_on` and `change_paths` do.
        """
        fabric = self._fabric
        modules = modules_on(fabric, meter, plans)
        with lit(fabric, modules):
            fabric.apply(plans[0], closes=False)
            for index in range(count):
                way = plans if index % 2 == 0 else plans[::-1]
                seen = modules if index % 2 == 0 else [module.turned() for module in modules]
                found = change_paths(fabric, meter, seen, way, session)
                number, self._count = self._count, self._count + 1
                self._record(list(path_change_rows(found, fabric, number)))
                worst = max(found.dark().values(), key=lambda dark: dark.latest)
                self._spans["path_change.dark"].append(worst)
                self._spans["path_change.end_to_end"].append(found.end_to_end())

    def passage(self, passed: Callable[[Fabric, LinkObservation], Passage]) -> Passage:
        """Record one death or return of a server; see `harness.measure.bypass`."""
        found = passed(self._fabric, self._links)
        number, self._count = self._count, self._count + 1
        self._keep(passage_rows(found, number))
        return found

    def hold_temperature(self, chamber: ClimateChamber, celsius: float) -> None:
        """Wait until it is so warm in `chamber`; what follows is recorded as measured there."""
        self._record([hold_temperature(chamber, celsius, self._fabric.bench.clock)])
        self.book.held["temperature_c"] = celsius

    def bit_errors(
        self, tester: BitErrorTester, attenuator: Attenuator | None = None, *, channel: int = 1
    ) -> BitErrors:
        """Lead a tester's light back to it, unattenuated, and have it follow its pattern.

        channel: where it comes back, if not to the one that sends. Raises `NoWayBackError`,
        `NotStatedError`, or what the tester objects to.
        """
        return self._kept(on_tester(self._fabric, self.book, tester, attenuator, channel))

    def port_errors(self, ports: Iterable[Port], fec: FecSide) -> list[str]:
        """Count what the counters of NIC ports count, all at once, while their links are up.

        Returns the quantities that it was recorded as: bits or symbols, as the ports count.
        Raises `NoCountersError` where a port has none, and `NothingCountedError`.
        """
        bench = self._fabric.bench
        counters = [self._kept(on_port(bench, self.book, port, fec)) for port in ports]
        count_all(counters)
        return sorted({each.quantity for each in counters})

    def pattern_errors(self, links: Iterable[Link]) -> None:
        """Have both ends of each link send and check a test pattern, which takes the links down.

        Raises `NotStatedError`, `NoCountersError`, `NothingCountedError`.
        """
        with patterns_on(self._fabric.bench, self.book, links) as ends:
            count_all([self._kept(one) for one in ends])

    def _kept(self, made: BitErrors) -> BitErrors:
        self._counters.append(made)
        return made

    def modules(self, switches: Iterable[ModuleTelemetry]) -> None:
        """Record what the modules of `switches` draw, and how warm they are, one second later."""
        clock = self._fabric.bench.clock
        clock.sleep(MODULE_SETTLING)
        number = next(self.book.numbers)
        self._keep(telemetry_rows(switches, clock, number, self.book.held))

    def _keep(self, rows: Iterable[Row]) -> None:
        """Record `rows`, and let limits judge them."""
        kept = list(rows)
        self._record(kept)
        self._take(kept)


def _how_closely(event: Reconfiguration) -> str:
    """What to know where light was not seen to come back."""
    if all(stage != "light_back" for _, stage in event.missing):
        return ""
    return (
        f"; up to {event.reading_gap / 1e6:.0f} ms passed between two readings of a switch's "
        "monitors, and a shorter darkness may go unseen"
    )
