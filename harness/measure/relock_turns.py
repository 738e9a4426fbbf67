"""A run with `--relock`: events take turns by what is read beside the links.

Reading a module holds the RTNL of its server's kernel, for which readings of carriers wait. The
firmware's timers are read before an event and after it. So the events in which nothing is read give
the time to carrier, and the difference of the others to them is what reading costs; where that is
too much its stages are left out.
"""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.relock import (
    DURATIONS,
    Relock,
    RelockPart,
    durations_of,
    marks_of,
    path_sentence,
    relock_of,
)
from lightrig.harness.measure.relock_rows import light_lost, moment_rows, port_rows
from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import (
    HasLinkUpTimes,
    HasModuleReads,
    LinkUpTimes,
    ModuleLights,
)
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.core.stages import CARRIER_UP, FIRST_DATAGRAM, LOS, SIGNAL_RECOVERED
from lightrig.testbeds import LightrigError, Plan, Port

Source: TypeAlias = Literal["none", "module", "firmware"]
"""What is read beside the links in an event; the firmware's timers with the modules too."""

SOURCE_OF: Mapping[str, Source] = {
    **dict.fromkeys(
        ("relock.signal_detection", "relock.clock_recovery", "relock.module_output"), "module"
    ),
    **dict.fromkeys(
        ("relock.nic_input", "relock.phy", "relock.firmware", "relock.driver"), "firmware"
    ),
    "relock.carrier": "none",
    "relock.whole": "none",
}
"""What is to be read for a stage to be told apart."""

TURNS: tuple[Source, ...] = ("none", "none", "module", "module", "firmware", "firmware")
"""Sources by event: pairs, since every other event goes the same way between two plans."""

PERIOD = 5_000_000
"""Between two readings of the same module, in ns, where it answers so fast."""

MOST_PRICE = 0.10
"""Share of the relock's median from which on the stages of a source are left out."""

_CONFIDENCE = 0.975
"""Of the interval of each of two medians, so that their difference has 95 %."""

_LINK_UP = re.compile(r"mlx5_core \S+ (\S+): Link up")
"""Of drivers that write it before the kernel has the carrier (`mlx5e_update_carrier`); most write
theirs after it."""

_SLOW_ANSWER = 100_000_000
"""From which on a module's answer is called slow, in ns."""

_READ: Mapping[Source, str] = {"module": "transceivers", "firmware": "the firmware's timers"}


@dataclass(slots=True)
class _Found:
    """What one port's relock was in one event."""

    port: Port
    relock: Relock
    conditions: dict[str, Scalar]
    at: int
    marks: Mapping[str, Span | None]
    event: Reconfiguration | None = None
    peer: Port | None = None
    lost: Span | None = None


@dataclass(slots=True)
class RelockTurns:
    """The events of one test.

    Attributes:
        settings: what the ports are set to, as a run stores it, by their names.
        found: of each port in each event, by source.
    """

    fabric: Fabric
    links: LinkObservation
    recording: Recording
    settings: Mapping[str, Any] = field(default_factory=dict)
    found: dict[Source, list[_Found]] = field(default_factory=lambda: defaultdict(list))
    _number: int = 0
    _has_begun: bool = False
    _has_ended: bool = False
    _untimed: set[Port] = field(default_factory=set)

    def event(self, plan: Plan) -> None:
        """Apply a plan, and note what each port's time from light to carrier consists of.

        Raises as `measure_reconfiguration` does.
        """
        source = TURNS[self._number % len(TURNS)]
        self._number += 1
        self.divided(plan, source)

    def divided(self, plan: Plan, source: Source) -> dict[Port, Relock]:
        """Apply a plan as `event` does, and read a source; return each port's relock.

        Empty where the event was set aside. Raises as `measure_reconfiguration` does.
        """
        if not self._has_begun:
            self.fabric.bench.kernel.read()
            self._has_begun = True
        shown: dict[Port, ModuleLights] = {}
        before = self._timers() if source != "none" else {}
        readers = self._begin() if source == "module" else {}
        try:
            event = measure_reconfiguration(self.fabric, self.links, self.recording, plan)
        finally:
            for name, reader in readers.items():
                read = reader.end_module_reads()
                shown |= {port: read[dev] for dev, port in self._ports(name) if dev in read}
        after = self._timers() if source != "none" else {}
        if event.set_aside or event.late_monitors:
            return {}
        lines = self._driver_lines(event.sent.earliest)
        began = min(
            (seen.at.earliest for seen in event.seen if seen.stage == LOS.name),
            default=event.sent.earliest,
        )
        for port, marks in self._ends(event).items():
            known = {**marks, "driver's line": lines.get(port)}
            carrier = marks["carrier up"]
            assert carrier is not None
            longest = carrier.latest - began
            durations = durations_of(before.get(port), after.get(port), longest)
            if port in after and not durations:
                self._untold(port, before.get(port), after[port])
            self._note(event, source, port, known, durations, shown.get(port))
        self._add_ends(event, source, plan)
        number = self.recording.events - 1
        found = self.found[source]
        return {one.port: one.relock for one in found if one.conditions["event"] == number}

    def _timers(self) -> dict[Port, LinkUpTimes]:
        """Return the firmware's timers of all ports that have them; say why others have none."""
        found: dict[Port, LinkUpTimes] = {}
        for spec in self.fabric.testbed.working_ports:
            server: object = self.fabric.bench.servers[spec.port.owner]
            if spec.rdma is None or spec.port in self._untimed:
                continue
            if not isinstance(server, HasLinkUpTimes):
                continue
            try:
                found[spec.port] = server.link_up_times(spec.rdma)
            except LightrigError as error:
                if isinstance(error, InstrumentError):
                    self._untimed.add(spec.port)  # as a rule the tool is not there
                sentence = f"the firmware of {spec.port} tells no durations: "
                sentence += str(error).splitlines()[0]
                self.recording.note_once(f"relock {spec.port} firmware", sentence)
        return found

    def _untold(self, port: Port, before: LinkUpTimes | None, after: LinkUpTimes) -> None:
        if before is not None and before[:2] == after[:2]:
            why = "its timers have not started anew, as after a disable or with a forced speed"
        else:
            why = "its timers show another link-up, or none that has ended"
        sentence = f"the firmware of {port} tells no durations of an event: {why}"
        self.recording.note_once(f"relock {port} timers", sentence)

    def _driver_lines(self, since: int) -> dict[Port, Span]:
        """Return when drivers wrote last that links were up, of those that write it in time."""
        kernel = self.fabric.bench.kernel
        kernel.read()
        found: dict[Port, Span] = {}
        for seen in kernel.link_lines(since):
            if match := _LINK_UP.fullmatch(seen.line.text):
                port = dict(self._ports(seen.log)).get(match[1])  # a log of several names none
                if port is not None and (
                    port not in found or found[port].latest <= seen.line.at.latest
                ):
                    found[port] = seen.line.at
        return found

    def _ports(self, server: str) -> list[tuple[str, Port]]:
        """Return the working ports of a server, each with its netdev."""
        ports = self.fabric.testbed.working_ports
        return [(spec.netdev, spec.port) for spec in ports if spec.port.owner == server]

    def _begin(self) -> dict[str, HasModuleReads]:
        """Begin to read all modules that can be read; return their servers."""
        begun: dict[str, HasModuleReads] = {}
        for name, server in self.fabric.bench.servers.items():
            reader: object = server
            if not isinstance(reader, HasModuleReads):
                self._unread(name, "its driver reads no transceivers")
                continue
            ports = dict(self._ports(name))
            for netdev, why in reader.begin_module_reads(list(ports), period=PERIOD).items():
                self._unread(str(ports[netdev]), why)
            begun[name] = reader
        return begun

    def _unread(self, subject: str, why: str) -> None:
        sentence = f"the transceivers of {subject} tell no stages: {why}"
        self.recording.note_once(f"relock {subject}", sentence)

    def _ends(self, event: Reconfiguration) -> dict[Port, dict[str, Span | None]]:
        """Return when light, carrier and datagrams came, at ports where the first two did."""
        light, carrier, datagram = {}, {}, {}
        for seen in event.seen:
            if seen.stage == CARRIER_UP.name:
                carrier[seen.subject] = seen.at
            elif seen.stage == FIRST_DATAGRAM.name:
                datagram[seen.subject] = seen.at
            elif seen.stage == SIGNAL_RECOVERED.name:
                switch, _, egress = seen.subject.partition(".")
                port = self.fabric.testbed.cabling.receiver(switch, int(egress))
                if port is not None:
                    light[port] = seen.at
        return {
            port: {
                "signal recovered": at,
                "carrier up": carrier[str(port)],
                "first datagram": datagram.get(str(port)),
            }
            for port, at in light.items()
            if str(port) in carrier
        }

    def _note(
        self,
        event: Reconfiguration,
        source: Source,
        port: Port,
        known: Mapping[str, Span | None],
        durations: Mapping[tuple[str, str], Span],
        shown: ModuleLights | None,
    ) -> None:
        shown = shown or ModuleLights(latched=True, late=0)
        self._note_readings(port, shown)
        marks = {**marks_of(shown, event.sent.earliest), **known}
        try:
            relock = relock_of(marks, durations)
        except ValueError as error:
            self.recording.note_once(f"relock {port} order", f"relock of {port}: {error}")
            return
        for mark in relock.contradicted:
            what = f"the {mark}" if mark != DURATIONS else mark
            sentence = f"relock of {port}: {what} was shown in the wrong order, as by firmware that"
            sentence += " reports late, and is left out"
            if mark == DURATIONS:
                sentence = f"relock of {port}: the {mark} do not fit between what others show, and"
                sentence += " are left out"
            self.recording.note_once(f"relock {port} {mark}", sentence)
        of_event: dict[str, Scalar] = {
            **event.conditions(self.recording.events - 1),
            "source": source,
        }
        self.found[source].append(_Found(port, relock, of_event, event.sent.earliest, marks))

    def _note_readings(self, port: Port, shown: ModuleLights) -> None:
        """Say what of a transceiver's readings stands out, once."""
        for why, count in shown.failed.items():
            sentence = f"transceiver of {port}: {count} readings failed: {why}"
            self.recording.note_once(f"relock {port} {why}", sentence)
        took = [one.at.latest - one.at.earliest for one in shown.no_signal]
        if took and (median := statistics.median(took)) > _SLOW_ANSWER:
            sentence = f"the transceiver of {port} answers in {median / 1e6:.3g} ms only, and its"
            sentence += " stages are as uncertain"
            self.recording.note_once(f"relock {port} slow", sentence)
        if moved := path_sentence(shown):
            sentence = f"the data paths of {port}'s transceiver {moved}; light moves none, so its"
            sentence += " firmware or its host began it anew"
            self.recording.note_once(f"relock {port} path", sentence)

    def _add_ends(self, event: Reconfiguration, source: Source, plan: Plan) -> None:
        """Add to what was found in an event what its moments are drawn with."""
        peers: dict[Port, Port] = {}
        for link in self.fabric.links(plan):
            peers |= {link.a: link.b, link.b: link.a}
        lost = light_lost(event, self.fabric.testbed)
        for one in self.found[source]:
            if one.conditions["event"] == self.recording.events - 1:
                one.event, one.peer, one.lost = event, peers.get(one.port), lost.get(one.port)

    def end(self) -> None:
        """Record all rows, and say what reading costs and which stage is the longest; once."""
        if self._has_ended:
            return
        self._has_ended = True
        left_out = {source for source in _READ if self._is_too_dear(source)}
        if "firmware" in left_out:
            for found in self.found.values():
                for one in found:
                    one.relock = relock_of(one.marks)
        changes = Counter[Port]()
        for source, found in self.found.items():
            for one in found:
                self.recording.record(_rows(one, stages=source not in left_out))
                if source != "none" and source not in left_out:
                    self.recording.record(_moments(one), judged=False)
                    changes[one.port] += 1
        testbed, at = self.fabric.testbed, self.fabric.bench.clock.now()
        self.recording.record(port_rows(testbed, changes, self.settings, at), judged=False)
        for source in _READ:
            if self.found[source] and source not in left_out:
                self._tell_longest(source)
                break

    def _wholes(self, source: Source) -> tuple[list[int], list[int]]:
        """Return the bounds of the longest relock of each event."""
        by_event: defaultdict[Scalar, list[Span]] = defaultdict(list)
        for one in self.found[source]:
            by_event[one.conditions["event"]].append(one.relock.whole)
        least, most = ([max(s[end] for s in each) for each in by_event.values()] for end in (0, 1))
        return least, most

    def _median(self, source: Source) -> Quantile | NotEnough:
        least, most = self._wholes(source)
        return quantile(least, most, 0.5, _CONFIDENCE) if least else NotEnough(0, 1)

    def _is_too_dear(self, source: Source) -> bool:
        """Record what reading a source costs; return whether that is too much."""
        without, beside = self._median("none"), self._median(source)
        if isinstance(without, NotEnough) or isinstance(beside, NotEnough):
            if self.found[source]:
                self.recording.note(
                    f"what reading {_READ[source]} costs is unknown with so few events; "
                    "take more by --samples"
                )
            return False
        assert without.lower is not None
        assert beside.lower is not None
        value = beside.value - without.value
        lower, upper = beside.lower - without.upper, beside.upper - without.lower
        stated: dict[str, Scalar] = {"source": source, "confidence": 0.95, "n": beside.n}
        name = self.fabric.testbed.name
        at = self.found[source][-1].at
        self.recording.record(
            [Row(name, "relock.price", round(value), round(lower), round(upper), "ns", at, stated)]
        )
        share = value / without.value
        text = f"reading {_READ[source]} lengthens the relock by {value / 1e6:.3g} ms"
        text += f" ({lower / 1e6:.3g} to {upper / 1e6:.3g} ms, 95 %), {share:.1%} of it"
        if share > MOST_PRICE:
            self.recording.note(f"{text}: too much, so the stages that they tell are left out")
            return True
        self.recording.note(text)
        return False

    def _tell_longest(self, source: Source) -> None:
        named = Counter[str]()
        parts: defaultdict[str, list[RelockPart]] = defaultdict(list)
        for one in self.found[source]:
            for part in one.relock.parts:
                parts[str(part)].append(part)
            named[" or ".join(map(str, one.relock.longest()))] += 1
        (longest, count), *_ = named.most_common()
        total = sum(named.values())
        sentence = f"the longest stage between light and carrier: {longest}, at {count} of {total}"
        sentence += " ports and events"
        if of := parts.get(longest):
            least = min(part.length.earliest for part in of) / 1e9
            most = max(part.length.latest for part in of) / 1e9
            wholes = [one.relock.whole for one in self.found[source]]
            from_, until = (
                min(w.earliest for w in wholes) / 1e9,
                max(w.latest for w in wholes) / 1e9,
            )
            sentence += f": {least:.3g} to {most:.3g} s of {from_:.3g} to {until:.3g} s"
        self.recording.note(sentence)


def _moments(found: _Found) -> Iterator[Row]:
    """Yield the rows of the moments of one port in one event."""
    assert found.event is not None
    of_port = found.event, found.port, found.peer, found.relock, found.lost
    return moment_rows(*of_port, found.conditions)


def quantity_of(part: RelockPart) -> str:
    """Return the quantity of a part: that of its stage, or `relock.between` of several."""
    if len(part.stages) > 1:
        return "relock.between"
    return f"relock.{part.stages[0].lower().replace(' ', '_')}"


def _rows(found: _Found, *, stages: bool) -> list[Row]:
    """Return the rows of one port in one event: the whole, and with `stages` its parts."""

    def row(quantity: str, length: Span, point: float, more: dict[str, Scalar]) -> Row:
        value = min(max(round(point), length.earliest), length.latest)
        of_row = {**found.conditions, **more}
        return Row(str(found.port), quantity, value, *length, "ns", found.at, of_row)

    relock = found.relock
    point = sum(part.point for part in relock.parts)
    rows = [row("relock.whole", relock.whole, point, {})]
    if not stages or found.conditions["source"] == "none":
        return rows
    for part in (*relock.parts, *relock.after):
        more: dict[str, Scalar] = {}
        if len(part.stages) > 1:
            more = {"stages": ", ".join(part.stages), "between": " and ".join(part.between)}
        rows.append(row(quantity_of(part), part.length, part.point, more))
    return rows
