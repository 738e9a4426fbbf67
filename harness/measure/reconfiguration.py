"""One reconfiguration, from the command on the wire to traffic on the new links."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from lightrig.harness.bench import Bench, Fabric, Transition
from lightrig.harness.findings import NOT_SEEN, SWAPPED_FIBERS, Finding, FoundError, each_at
from lightrig.harness.measure.bring_up import dark_ports
from lightrig.harness.measure.circuits import plan_of
from lightrig.harness.measure.light import (
    LightWatch,
    dither,
    late_monitors,
    late_sentence,
    take_all,
    watch_until_complete,
)
from lightrig.harness.measure.links import LINK_TIMEOUT, UNSEEN, LinkObservation
from lightrig.harness.measure.loss_windows import (
    LossWindow,
    loss_windows,
    losses,
    steady_losses,
)
from lightrig.harness.measure.moved_ports import darkened_ports, plan_before, rising_ports
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.slow_watch import LATE_WINDOWS, slow_watch
from lightrig.harness.measure.stages import (
    Flap,
    Reconfiguration,
    Seen,
    closure_rows,
    cost_rows,
    cross_check_rows,
    rows,
)
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent, PowerMonitor, Stage
from lightrig.instruments.core.errors import ClockError
from lightrig.instruments.core.stages import (
    ACKNOWLEDGED,
    CARRIER_DOWN,
    CARRIER_UP,
    DATAGRAMS_LOST,
    FIRMWARE_DOWN,
    FIRMWARE_UP,
    FIRST_DATAGRAM,
    LOS,
    SIGNAL_RECOVERED,
    StageName,
    stage_of,
)
from lightrig.instruments.named_tuples import new_tuple
from lightrig.testbeds import Link, Plan, Port

_OF_LIGHT: frozenset[StageName] = frozenset({LOS.name, SIGNAL_RECOVERED.name})
_UNSEEN_OF: tuple[tuple[frozenset[StageName], str], ...] = (
    (_OF_LIGHT, "no darkness was seen at {where}, though all links came up"),
    (
        frozenset({FIRMWARE_DOWN.name, FIRMWARE_UP.name}),
        "{where} lost carrier, and no change of the firmware's link was seen there",
    ),
    (
        frozenset({CARRIER_DOWN.name, CARRIER_UP.name}),
        "nothing shows when the carrier of {where} changed",
    ),
    (
        frozenset({DATAGRAMS_LOST.name, FIRST_DATAGRAM.name}),
        "nothing shows when datagrams came to {where} over the new link",
    ),
)
"""What is told of stages that were not seen."""


class IncompleteError(FoundError):
    """Something that a reconfiguration must bring about was not seen in time."""


def measure_reconfiguration(
    fabric: Fabric,
    links: LinkObservation,
    recording: Recording,
    plan: Plan | str,
    *,
    number: int | None = None,
    timeout: int = LINK_TIMEOUT,
) -> Reconfiguration:
    """Apply `plan` and record every stage until traffic runs on the new links.

    An event in which a simulation was late is set aside: its closure is recorded and judged, its
    stages are not. So is one of which a server's clock tells no times, without any stage.
    plan: what to apply; as text the name of a plan, or one circuit more, such as "ocs 3>17".
    number: of the event, a new one unless given. timeout: of the links, in ns.

    Raises:
        IncompleteError: light or a link did not come; what was seen is recorded, not judged.
        InstrumentError: an instrument refused or failed.
        SubjectError: there is no such plan or circuit.
    """
    plan = plan_of(fabric, plan) if isinstance(plan, str) else plan
    number = recording.next_event() if number is None else number
    event = reconfigure(fabric, plan, links, link_timeout=timeout, phase=dither(number))
    if event.clock_error is not None:
        recording.set_aside_for(event.clock_error, event, number)
        links.begin_again(fabric.links(plan), timeout)
        return event
    checks = links.take_cross_checks()
    event = replace(event, set_aside=recording.sets_aside(fabric.bench, event, number))
    found = () if event.set_aside else tuple(rows(event, fabric, number))
    doubtful = [row for row in found if event.late_monitors and _is_of_light(row)]
    longest = max(event.late_monitors.values(), default=0)
    if not event.set_aside:
        of_ports = event.seen
        if event.late_monitors:
            of_ports = tuple(one for one in event.seen if one.stage not in _OF_LIGHT)
        recording.port_times.add(replace(event, seen=of_ports), number)
    recording.record([_bound(row, longest) for row in doubtful], judged=False)
    recording.record(
        [
            *(row for row in found if row not in doubtful),
            *closure_rows(event, fabric, number),
            *cost_rows(event, fabric, number),
            *cross_check_rows(checks, event, number),
        ],
        judged=not event.missing,
    )
    if event.late_monitors:
        recording.note_once("late monitors", late_sentence(event.late_monitors, number))
    for switch, lead in _early_acknowledgements(event).items():
        sentence = (
            f"reconfiguration {number}: {switch} acknowledged {lead / 1e6:.1f} ms or more before "
            "its light was back; do not take its acknowledgement for the moment of light"
        )
        recording.note_once(f"early acknowledgement {switch}", sentence)
    if event.slow and not event.set_aside:
        recording.slow_watches.append(next(iter(event.slow.values())))
    if event.unseen and not event.set_aside:
        for cause, sentence in _unseen_sentences(event):
            recording.note_once(cause, f"reconfiguration {number} to {plan.name}: {sentence}")
    if event.flaps:
        recording.note(_flapped(event, number))
    if wrong := _wrong_partners(event.windows, fabric.links(plan)):
        ports = tuple(map(str, sorted(wrong)))
        if recording.note_once(f"wrong partners {ports}", sentence := _heard(wrong, plan)):
            recording.found([Finding(SWAPPED_FIBERS, sentence, ports)])
    if event.missing and not event.set_aside:
        fabric.bench.check_world()
        sentence = (
            f"reconfiguration {number} to {plan.name} did not complete; not seen: "
            + ", ".join(f"{subject} {stage}" for subject, stage in event.missing)
        )
        if any(stage == SIGNAL_RECOVERED.name for _, stage in event.missing):
            sentence += (
                f"; up to {event.reading_gap / 1e6:.0f} ms passed between two readings of a "
                "switch's monitors, and a shorter darkness may go unseen"
            )
        subjects = [subject for subject, _ in event.missing]
        missing = {link for link in fabric.links(plan) if {str(link.a), str(link.b)} & {*subjects}}
        fabric.bench.coverage.note_down(missing, dark_ports(fabric, missing))
        raise IncompleteError(sentence, each_at(NOT_SEEN, subjects))
    return event


def _unseen_sentences(event: Reconfiguration) -> Iterator[tuple[str, str]]:
    """Yield why stages of some subjects were not seen, once for the light and for the firmware."""
    for observed, sentence in event.slow.items():
        yield f"slow watch of {observed}", sentence
    for stages, seen in _UNSEEN_OF:
        if where := ", ".join(sorted({one for one, stage in event.unseen if stage in stages})):
            sentence = seen.format(where=where)
            yield (
                f"unseen {min(stages)}" if stages is _OF_LIGHT else f"unseen {where}",
                f"{sentence}; so of the event as a whole that is unknown",
            )


def _early_acknowledgements(event: Reconfiguration) -> dict[str, int]:
    """Return by how many ns, at least, switches acknowledged before light was back, by switch.

    None where monitors are late: then light came earlier than they say.
    """
    if event.late_monitors:
        return {}
    acknowledged = {seen.subject: seen.at for seen in event.seen if seen.stage == ACKNOWLEDGED.name}
    early: dict[str, int] = {}
    for seen in event.seen:
        switch = seen.subject.partition(".")[0]
        if seen.stage == SIGNAL_RECOVERED.name and switch in acknowledged:
            lead = seen.at.earliest - acknowledged[switch].latest
            if lead > 0:
                early[switch] = max(early.get(switch, 0), lead)
    return early


def _is_of_light(row: Row) -> bool:
    return row.quantity.removeprefix("reconfiguration.") in _OF_LIGHT


def _bound(row: Row, late: int) -> Row:
    """Return what late monitors leave known: light went or came no later than they showed it."""
    name = f"late_light.{row.quantity.rpartition('.')[2]}"
    known = {**row.conditions, "late_ns": late}
    return replace(row, quantity=name, value=row.upper or 0, lower=0, conditions=known)


def _wrong_partners(
    windows: Iterable[LossWindow], links: Iterable[Link]
) -> dict[Port, tuple[Port, Port]]:
    """Return the ports whose datagrams do not come from the other end of their links.

    By port: who sends them, and who should.
    """
    partners = {end: far for one in links for end, far in ((one.a, one.b), (one.b, one.a))}
    return {
        one.receiver: (one.after, partners[one.receiver])
        for one in windows
        if partners.get(one.receiver, one.after) != one.after
    }


def _heard(wrong: Mapping[Port, tuple[Port, Port]], plan: Plan) -> str:
    """Return a sentence about ports that hear a wrong one."""
    heard = (f"{port} receives from {sender}, not {due}" for port, (sender, due) in wrong.items())
    return f"links of plan {plan.name} join wrong ports: {'; '.join(heard)}"


def _flapped(event: Reconfiguration, number: int) -> str:
    ports = ", ".join(sorted({flap.port for flap in event.flaps}))
    sentence = (
        f"reconfiguration {number} to {event.plan}: carrier came up and was lost again at {ports}; "
        "carrier_up is the last time that it came, and each loss a row outage.flap"
    )
    if down := ", ".join(sorted(flap.port for flap in event.flaps if flap.up is None)):
        sentence += f"; without carrier when the last link was up: {down}"
    return sentence


def reconfigure(
    fabric: Fabric,
    plan: Plan,
    links: LinkObservation,
    *,
    light_timeout: int = 5_000_000_000,
    link_timeout: int = LINK_TIMEOUT,
    phase: float = 0.0,
) -> Reconfiguration:
    """Apply `plan` and watch light, links and datagrams until everything is back.

    The switches are read before, and read back after; timeouts are in ns. phase: of the polls of
    power monitors, see `light.dither`.

    Raises:
        NotDoneError: a switch said done and is not.
        InstrumentError: an instrument refused or failed.

    Where a server's clock tells no times, the event has a `clock_error` and no stages.
    """
    links.begin()
    with links.observing() as observed:
        transition = fabric.prepare(plan)
        watches = _light_watches(fabric.bench, transition)
        # The first readings must show the light that is there now.
        fabric.bench.clock.sleep(max((watch.latency for watch in watches.values()), default=0))
        take_all(fabric.bench, watches.values())
        sent = transition.begin()
        watch_until_complete(fabric.bench, list(watches.values()), light_timeout, phase=phase)
        acknowledged = transition.acknowledgements()
        transition.verify()
        before = plan_before(transition)
        rising = rising_ports(fabric, transition, before)
        try:
            _, unfinished = links.changes(rising, sent.earliest, link_timeout)
            windows = loss_windows(links, sent.earliest)
            if links.catch_up():  # whose answers may bring more
                windows = loss_windows(links, sent.earliest)
            steady = steady_losses(links, windows)
            watched = observed.watched()
        except ClockError as error:
            moved = transition.moved
            return Reconfiguration(
                plan.name, moved, sent, (), (), set_aside=True, clock_error=error
            )
    # Questions after the last link came up bring changes too: one watch for every port.
    changes = [pair for pair in observed.changes if pair[1].at.latest > sent.earliest]

    seen = [Seen(name, "acknowledged", at) for name, at in acknowledged.items()]
    for name, watch in watches.items():
        losses_of_signal, recoveries = watch.losses_of_signal(sent), watch.recoveries(sent)
        for stage, found, points in (
            (LOS, losses_of_signal, watch.loss_points(losses_of_signal)),
            (SIGNAL_RECOVERED, recoveries, watch.recovery_points(recoveries)),
        ):
            seen += [
                Seen(f"{name}.{egress}", stage.name, at, points.get(egress))
                for egress, at in found.items()
            ]
    seen += link_stages(changes)
    of_change = without_older(changes, rising, sent.earliest)
    seen += datagram_stages(of_change, windows, losses(links, sent.earliest))
    lit = {one.subject for one in seen if one.stage == SIGNAL_RECOVERED.name}
    dark: list[tuple[str, StageName]] = [
        (f"{name}.{circuit.egress}", SIGNAL_RECOVERED.name)
        for name in watches
        for circuit in sorted(transition.changes[name].add)
        if f"{name}.{circuit.egress}" not in lit
    ]
    missing = [(str(port), stage_of(signal, up=True).name) for port, signal in unfinished]
    unseen = list(unseen_firmware(changes, links.stages))
    gap = max((watch.longest_gap for watch in watches.values()), default=0)
    # Readings are meant to be a window apart. Where this machine did not get to them, and the links
    # came up, the light may have been away unseen; else it was not back.
    window = max((watch.window for watch in watches.values()), default=0)
    slow = {
        f"{server}'s ports": slow_watch(age, UNSEEN, f"{server}'s ports")
        for server, age in observed.slow().items()
    }
    light_is_slow = slow_watch(gap, LATE_WINDOWS * window, "monitors")
    if light_is_slow and not missing:
        if dark:
            slow["monitors"] = light_is_slow
        losing = {one.subject for one in seen if one.stage == LOS.name}
        unseen += dark
        unseen += [(subject, LOS.name) for subject, _ in dark if subject not in losing]
    else:
        missing = dark + missing
    late_servers = observed.slow()
    slow_ports = list[Port]()
    if late_servers:
        working = fabric.testbed.working_ports
        slow_ports = [spec.port for spec in working if spec.port.owner in late_servers]
    unseen += unseen_ports(rising, slow_ports, seen, missing, links.stages)
    shown = {one.subject for one in seen if one.stage in (CARRIER_DOWN.name, CARRIER_UP.name)}
    quiet = [port for port in rising if str(port) not in shown]
    darkened = darkened_ports(fabric, transition, quiet)
    unseen += unnoticed_carriers(darkened, seen, [*missing, *unseen])
    tolerances = {name: watch.point_error for name, watch in watches.items()}
    late = late_monitors(seen, fabric.links(before), fabric.testbed.cabling, tolerances)
    return Reconfiguration(
        plan=plan.name,
        moved=transition.moved,
        sent=sent,
        seen=tuple(seen),
        missing=tuple(missing),
        reading_gap=gap,
        windows=tuple(windows),
        steady=tuple(steady),
        watched={name: watch.watched for name, watch in watches.items()} | watched,
        flaps=tuple(flaps(changes)),
        before=_name_of(before, fabric) if plan.name in fabric.plans else None,
        late_monitors=late,
        clocks=observed.clocks,
        unseen=tuple(unseen),
        slow=slow,
        simulated=bool(fabric.bench.simulated),
    )


def _name_of(plan: Plan, fabric: Fabric) -> str | None:
    """Return the name of the testbed's plan with the circuits of `plan`, if there is one."""
    plans, part = fabric.plans.items(), fabric.bench.coverage.part
    return next((name for name, one in plans if part(one).circuits == plan.circuits), None)


def _light_watches(bench: Bench, transition: Transition) -> dict[str, LightWatch]:
    """Light watches of the switches that change circuits and have power monitors."""
    watches = {}
    for name, change in transition.changes.items():
        switch = bench.switches[name]
        if (change.add or change.remove) and isinstance(switch, PowerMonitor):
            losing = {circuit.egress for circuit in change.remove}
            regaining = {circuit.egress for circuit in change.add}
            latency = bench.testbed.switches[name].monitor_latency_ns
            watches[name] = LightWatch(switch, losing, regaining, latency)
    return watches


def link_stages(changes: Iterable[tuple[Port, LinkEvent]]) -> list[Seen]:
    """Every port's loss of carrier and of the firmware's link, and its recovery."""
    moments: defaultdict[tuple[Port, Stage, bool], list[Span]] = defaultdict(list)
    for port, (_, signal, up, at, _, _) in changes:
        if signal != "datagram":
            moments[port, signal, up].append(at)
    seen = list[Seen]()
    for (port, signal, up), found in moments.items():
        stage = stage_of(signal, up=up)
        seen.append(new_tuple(Seen, (str(port), stage.name, stage.choose(found), None)))
    return seen


def unseen_firmware(
    changes: Iterable[tuple[Port, LinkEvent]], stages: Callable[[Port], Collection[Stage]]
) -> list[tuple[str, StageName]]:
    """Return the firmware's stages of ports that lost their carriers alone.

    The kernel counts changes of a carrier, so none is missed; nothing counts those of the
    firmware's link, which may go and come again while a server's probe does not run.

    stages: those that can be observed at a port.
    """
    changes = list(changes)
    lost = {port for port, event in changes if event.stage == "carrier" and not event.up}
    changed = {port for port, event in changes if event.stage == "firmware"}
    return [
        (str(port), stage.name)
        for port in sorted(lost - changed)
        if "firmware" in stages(port)
        for stage in (FIRMWARE_DOWN, FIRMWARE_UP)
    ]


def unseen_ports(
    rising: Collection[Port],
    slow: Collection[Port],
    seen: Iterable[Seen],
    missing: Collection[tuple[str, StageName]],
    stages: Callable[[Port], Collection[Stage]],
) -> list[tuple[str, StageName]]:
    """Return stages of ports that nothing shows, and that were there, or may have been.

    A port of a new link hears another port than before, so a first datagram was there. Its carrier
    and its firmware's link may have stayed up, and that nothing was seen shows it, but for those
    that were not read lately, and see `unnoticed_carriers`.

    rising: ports of new links. slow: ports whose last readings are old.
    """
    wanted = [(port, FIRST_DATAGRAM) for port in sorted(rising)]
    wanted += [
        (port, stage_of(signal, up=up))
        for port in sorted(slow)
        for signal in stages(port)
        for up in (False, True)
    ]
    unseen = dict.fromkeys((str(port), stage.name) for port, stage in wanted)
    stages_wanted = {stage for _, stage in unseen}
    known = {(one.subject, one.stage) for one in seen if one.stage in stages_wanted} | {*missing}
    return [each for each in unseen if each not in known]


def unnoticed_carriers(
    darkened: Collection[Port],
    seen: Iterable[Seen],
    known: Collection[tuple[str, StageName]],
) -> list[tuple[str, StageName]]:
    """Return the carrier's stages of ports that show none of them, though others' carriers went.

    A kernel that did not run until the link was back has noticed nothing, and counts nothing:
    that port may have been the first, or the last, of all.

    darkened: ports that lost their light. known: what is missing or unseen already.
    """
    stages = CARRIER_DOWN.name, CARRIER_UP.name
    changed = {one.subject for one in seen if one.stage in stages}
    known_ports = changed | {port for port, stage in known if stage in stages}
    quiet = sorted({str(port) for port in darkened} - known_ports) if changed else []
    return [(port, stage) for port in quiet for stage in stages]


def flaps(changes: Iterable[tuple[Port, LinkEvent]]) -> list[Flap]:
    """Return each loss of carrier at a port that had come up in the same event."""
    found: list[Flap] = []
    risen: set[Port] = set()
    down: dict[Port, Span] = {}
    for port, event in changes:
        if event.stage != CARRIER_UP.signal:
            continue
        if event.up:
            if port in down:
                found.append(Flap(str(port), down.pop(port), event.at))
            risen.add(port)
        elif port in risen:
            down[port] = event.at
    return found + [Flap(str(port), at, None) for port, at in down.items()]


def without_older(
    changes: Iterable[tuple[Port, LinkEvent]], rising: Collection[Port], sent: int
) -> list[tuple[Port, LinkEvent]]:
    """Return changes without those of links that stay and that may be older than the command.

    rising: ports whose links the command makes. sent: when it was written, in ns. On a busy machine
    the first datagram of a link that stays may come as late as that.
    """
    return [(port, event) for port, event in changes if port in rising or event.at.earliest >= sent]


def datagram_stages(
    changes: Iterable[tuple[Port, LinkEvent]],
    windows: Iterable[LossWindow],
    losses: Mapping[Port, Span],
) -> list[Seen]:
    """Each port's loss and recovery of datagrams: both from one interruption.

    Numbers that are missing show an interruption, and a silence none: a sender that was not
    scheduled is silent too, and its next datagram comes over the old link. A port that received
    nothing before the change has its first datagram without an interruption.
    """
    seen, found = list[Seen](), set[Port]()
    for window in windows:
        found.add(window.receiver)
        subject = str(window.receiver)
        seen.append(new_tuple(Seen, (subject, "datagrams_lost", window.began, None)))
        seen.append(new_tuple(Seen, (subject, "first_datagram", window.ended, None)))
    for port, event in changes:
        if event.stage == "datagram" and event.up and not event.resumed and port not in found:
            found.add(port)
            seen.append(Seen(str(port), "first_datagram", event.at))
    return seen + [
        Seen(str(port), "datagrams_lost", at) for port, at in losses.items() if port not in found
    ]
