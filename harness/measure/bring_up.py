"""A plan applied, and its links awaited, before anything is measured on them."""

import math
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.insertion_loss.readings import DARK_DBM
from lightrig.harness.measure.links import LINK_TIMEOUT, LinkObservation, LinksDownError
from lightrig.harness.measure.moved_ports import darkened_ports
from lightrig.instruments.core.capabilities import HasNic, PowerMonitor
from lightrig.instruments.core.errors import ClockError, InstrumentError
from lightrig.testbeds import Link, Plan, Port

LOOK = 2_000_000_000
"""Greatest time for links that did not come up before, in ns, where all others are up."""


def bring_up(
    fabric: Fabric,
    links: LinkObservation,
    plan: Plan,
    *,
    timeout: int = LINK_TIMEOUT,
    partly: bool = False,
) -> frozenset[Link]:
    """Apply `plan` and wait until its links carry traffic, at most `timeout` ns; return them.

    Links that did not come up in this process before are looked at once a test: for as long as
    others have taken to come up at last, at most `LOOK`; where their circuits were there before,
    without waiting.
    partly: go on with the links that there are, for the rest of the test; it fails at its end if
    one was not known to be down, and is inconclusive where it would pass.

    Raises `LinksDownError`, which names the ports without light where the switch has monitors;
    with `partly` only if no link is up.
    """
    coverage = fabric.bench.coverage
    if coverage.is_strict:
        coverage.forget()
        partly = False
    # At first the whole plan is applied, to see whether they are back.
    coverage.is_partial = partly and coverage.looked and bool(coverage.part_of(fabric.links(plan)))
    stated = fabric.links(plan)
    try:
        down = _bring_up(fabric, links, plan, timeout)
    except InstrumentError as failed:
        failed.in_preparation = True
        raise
    coverage.note_up(stated - (down.links if down else frozenset()))
    if down is None:
        coverage.is_partial = partly
        return stated
    goes_on = partly and down.links != stated
    # Asking why takes longer than a look: not again of links of which an earlier test has told it.
    error = _with_causes(fabric, plan, down) if down.is_new or not goes_on else None
    fresh = down.links - coverage.down(down.links)
    coverage.note_down(fresh, dark_ports(fabric, fresh))
    if error is not None and not goes_on:
        raise error from down.error
    _tell_ends(fabric, links, timeout)
    coverage.is_partial = True
    if error is not None:
        coverage.failures += error.findings
        sentence, line, rest = str(error).partition("\n")
        if dead := coverage.dead_of(down.links):
            sentence += f"; by its other links it is {', '.join(map(str, sorted(dead)))}"
        coverage.sentences.append(f"{sentence}{line}{rest}")
    fabric.apply(plan)
    up = fabric.links(plan)
    links.await_up({port for link in up for port in (link.a, link.b)}, timeout)
    return up


def _tell_ends(fabric: Fabric, links: LinkObservation, timeout: int) -> None:
    """Find by the testbed's other plans which end of a link that is down is why.

    Once for the same links. A plan of a link that is down joins its ends to others, of which one
    works; where none does, the link stays the only thing that is known.
    """
    coverage = fabric.bench.coverage
    with coverage.examining() as is_due:
        for plan in fabric.plans.values() if is_due else ():
            of_plan = fabric.links(plan)
            if coverage.suspected(of_plan):
                found = _bring_up(fabric, links, plan, timeout)
                down = found.links if found else frozenset[Link]()
                coverage.note_up(of_plan - down)
                fresh = down - coverage.down(down)
                coverage.note_down(fresh, dark_ports(fabric, fresh))


@dataclass(frozen=True, slots=True)
class _Down:
    """Links that did not come up. is_new: whether one of them was not known for it."""

    links: frozenset[Link]
    error: LinksDownError
    is_new: bool


def _with_causes(fabric: Fabric, plan: Plan, down: _Down) -> LinksDownError:
    ports = down.error.ports
    reasons = _reasons_at(fabric.bench, ports)
    error = down.error.with_causes(_dark_at(fabric, plan, ports), reasons)
    error.in_preparation = True
    return error


def dark_ports(fabric: Fabric, links: Iterable[Link]) -> frozenset[Port]:
    """Return the ends of links whose own light does not reach a switch that would see it."""
    found = set[Port]()
    for port in {end for link in links for end in (link.a, link.b)}:
        switch, ingress = fabric.testbed.cabling.ingress_of(port) or ("", 0)
        monitor: object = fabric.bench.switches.get(switch)
        if not isinstance(monitor, PowerMonitor):
            continue
        with suppress(InstrumentError):  # it may have monitors at other ports alone
            if monitor.power([ingress]).dbm.get(ingress, math.inf) <= DARK_DBM:
                found.add(port)
    return frozenset(found)


def _reasons_at(bench: Bench, ports: Iterable[Port]) -> dict[Port, tuple[str, ...]]:
    """Return what drivers and firmware say of ports whose links are down, as far as they do."""
    asked: dict[Port, Callable[[], tuple[str, ...]]] = {}
    for port in ports:
        server: object = bench.servers.get(port.owner)
        if isinstance(server, HasNic):
            spec = bench.testbed.nic_port(port)
            asked[port] = partial(server.nic.down_reasons, spec.netdev, spec.rdma)
    found = bench.clock.parallel(*asked.values())
    return {port: each for port, each in zip(asked, found, strict=True) if each}


def _dark_at(fabric: Fabric, plan: Plan, ports: Iterable[Port]) -> list[str] | None:
    """Return the ports of switches that send no light towards NIC ports; None if unknown.

    A single port with light says nothing of swapped fibers.
    """
    dark, read = list[str](), 0
    for switch, circuits in plan.circuits.items():
        monitor, cabling = fabric.bench.switches[switch], fabric.testbed.cabling
        leading = {c.egress: cabling.receiver(switch, c.egress) for c in circuits}
        egress = [number for number, port in leading.items() if port in set(ports)]
        if not isinstance(monitor, PowerMonitor) or not egress:
            continue
        try:
            dbm = monitor.power(egress).dbm
        except InstrumentError:
            return None
        read += len(dbm)
        dark += [f"{switch}.{number}" for number in egress if dbm[number] <= DARK_DBM]
    return dark if dark or read > 1 else None


def _bring_up(fabric: Fabric, links: LinkObservation, plan: Plan, timeout: int) -> _Down | None:
    """Apply a plan and wait for its links; return those that did not come up, if any."""
    coverage, clock = fabric.bench.coverage, fabric.bench.clock
    stated = fabric.links(plan)
    known, suspected = coverage.down(stated), coverage.suspected(stated)
    # Links that came up before anybody looked would be waited for as if they had not changed.
    links.begin()
    transition = fabric.prepare(plan)
    sent = transition.begin()
    transition.acknowledged()
    transition.verify()
    # What still seems to be up may be the links before. A port that goes on receiving the same
    # light loses no carrier, whoever receives its own.
    rising = darkened_ports(fabric, transition)

    risen = set[Port]()

    def awaited(some: Collection[Link], limit: int) -> LinksDownError | None:
        ports = {port for link in some for port in (link.a, link.b)}
        seen, unfinished = links.changes(rising & ports, sent.earliest, limit)
        risen.update(port for port, event in seen if event.up and not event.resumed)
        if unfinished:
            fabric.bench.check_world()
            return LinksDownError(unfinished, limit)
        try:
            links.await_up(ports, limit)
        except LinksDownError as error:
            return error
        return None

    try:
        new = awaited(stated - known - suspected, timeout)
        took = clock.now() - sent.earliest
        if new is None and risen:
            coverage.rise = took
        # A port that is why another link was down is given the time of those that are up.
        found = [(new, True), (awaited(suspected, min(max(took, LOOK), timeout)), False)]
        # What has its light for longer than this test lasts would be up.
        is_due = not coverage.looked and any({link.a, link.b} & rising for link in known)
        look = LOOK if coverage.rise is None else min(coverage.rise, LOOK)
        found.append((awaited(known, look if is_due else 0), False))
        coverage.looked = True
    except ClockError:  # no moment is asked for here
        links.begin_again(stated, timeout)
        return None
    errors = [(error, is_new) for error, is_new in found if error is not None]
    if not errors:
        links.take_cross_checks()
        return None
    ports = {port for error, _ in errors for port in error.ports}
    down = frozenset(link for link in stated if not ports.isdisjoint({link.a, link.b}))
    limit = 0 if down <= known else errors[0][0].limit
    whole = LinksDownError([one for error, _ in errors for one in error.stages], limit)
    return _Down(down, whole, any(is_new for _, is_new in errors))
