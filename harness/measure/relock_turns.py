"""A run with `--relock`: events take turns by what is read beside the links.

Reading a module holds the RTNL of its server's kernel, for which readings of carriers wait. So the
events in which nothing is read give the time to carrier, and the difference of the others to them
is what reading costs; where that is too much its stages are left out.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.relock import (
    Relock,
    RelockPart,
    marks_of,
    relock_of,
    returned_states,
)
from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.quantiles import NotEnough, Quantile, quantile
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import HasModuleReads, ModuleLights
from lightrig.instruments.core.stages import CARRIER_UP, SIGNAL_RECOVERED
from lightrig.testbeds import Plan, Port

Source: TypeAlias = Literal["none", "module"]
"""What is read beside the links in an event."""

TURNS: tuple[Source, ...] = ("none", "none", "module", "module")
"""Sources by event: pairs, since every other event goes the same way between two plans."""

PERIOD = 5_000_000
"""Between two readings of the same module, in ns, where it answers so fast."""

MOST_PRICE = 0.10
"""Share of the relock's median from which on the stages of a source are left out."""

_CONFIDENCE = 0.975
"""Of the interval of each of two medians, so that their difference has 95 %."""

_STEADY = "DPActivated"


@dataclass(slots=True)
class _Found:
    """What one port's relock was in one event."""

    port: Port
    relock: Relock
    conditions: dict[str, Scalar]
    at: int


@dataclass(slots=True)
class RelockTurns:
    """The events of one test.

    Attributes:
        found: of each port in each event, by source.
    """

    fabric: Fabric
    links: LinkObservation
    recording: Recording
    found: dict[Source, list[_Found]] = field(default_factory=lambda: defaultdict(list))
    _number: int = 0
    _has_ended: bool = False

    def event(self, plan: Plan) -> None:
        """Apply a plan, and note what each port's time from light to carrier consists of.

        Raises as `measure_reconfiguration` does.
        """
        source = TURNS[self._number % len(TURNS)]
        self._number += 1
        shown: dict[Port, ModuleLights] = {}
        readers = self._begin() if source == "module" else {}
        try:
            event = measure_reconfiguration(self.fabric, self.links, self.recording, plan)
        finally:
            for name, reader in readers.items():
                read = reader.end_module_reads()
                shown |= {port: read[dev] for dev, port in self._ports(name) if dev in read}
        if event.set_aside or event.late_monitors:
            return
        for port, (light, carrier) in self._ends(event).items():
            self._note(event, source, port, light, carrier, shown.get(port))

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

    def _ends(self, event: Reconfiguration) -> dict[Port, tuple[Span, Span]]:
        """Return when light and when carrier came, at ports where both did."""
        light, carrier = {}, {}
        for seen in event.seen:
            if seen.stage == CARRIER_UP.name:
                carrier[seen.subject] = seen.at
            elif seen.stage == SIGNAL_RECOVERED.name:
                switch, _, egress = seen.subject.partition(".")
                port = self.fabric.testbed.cabling.receiver(switch, int(egress))
                if port is not None:
                    light[port] = seen.at
        return {
            port: (at, carrier[str(port)]) for port, at in light.items() if str(port) in carrier
        }

    def _note(
        self,
        event: Reconfiguration,
        source: Source,
        port: Port,
        light: Span,
        carrier: Span,
        shown: ModuleLights | None,
    ) -> None:
        shown = shown or ModuleLights(latched=True, late=0)
        for why, count in shown.failed.items():
            sentence = f"transceiver of {port}: {count} readings failed: {why}"
            self.recording.note_once(f"relock {port} {why}", sentence)
        marks = marks_of(shown, event.sent.earliest)
        try:
            relock = relock_of({**marks, "signal recovered": light, "carrier up": carrier})
        except ValueError as error:
            self.recording.note_once(f"relock {port} order", f"relock of {port}: {error}")
            return
        for mark in relock.contradicted:
            sentence = (
                f"transceiver of {port}: its {mark} was shown in the wrong order, and is left out"
            )
            self.recording.note_once(f"relock {port} {mark}", sentence)
        moved = [one.state for one in shown.paths if one.state != _STEADY]
        if moved:
            loop = " > ".join(returned_states(shown.paths))
            sentence = f"the data paths of {port}'s transceiver left {_STEADY}: {moved[0]}"
            sentence += f" ({loop})" if loop else ""
            sentence += "; light moves none, so its firmware or its host began it anew"
            self.recording.note_once(f"relock {port} path", sentence)
        of_event: dict[str, Scalar] = {
            **event.conditions(self.recording.events - 1),
            "source": source,
        }
        self.found[source].append(_Found(port, relock, of_event, event.sent.earliest))

    def end(self) -> None:
        """Record all rows, and say what reading costs and which stage is the longest; once."""
        if self._has_ended:
            return
        self._has_ended = True
        left_out = self._price()
        self.recording.record(
            row
            for source, found in self.found.items()
            for one in found
            for row in _rows(one, stages=source != left_out)
        )
        if left_out is None and self.found["module"]:
            self._tell_longest()

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

    def _price(self) -> Source | None:
        """Record what reading modules costs; return the source if that is too much."""
        without, beside = self._median("none"), self._median("module")
        if isinstance(without, NotEnough) or isinstance(beside, NotEnough):
            if self.found["module"]:
                self.recording.note(
                    "what reading transceivers costs is unknown with so few events; "
                    "take more by --samples"
                )
            return None
        assert without.lower is not None
        assert beside.lower is not None
        value = beside.value - without.value
        lower, upper = beside.lower - without.upper, beside.upper - without.lower
        stated: dict[str, Scalar] = {"source": "module", "confidence": 0.95, "n": beside.n}
        name = self.fabric.testbed.name
        at = self.found["module"][-1].at
        self.recording.record(
            [Row(name, "relock.price", round(value), round(lower), round(upper), "ns", at, stated)]
        )
        share = value / without.value
        text = f"reading transceivers lengthens the relock by {value / 1e6:.3g} ms"
        text += f" ({lower / 1e6:.3g} to {upper / 1e6:.3g} ms, 95 %), {share:.1%} of it"
        if share > MOST_PRICE:
            self.recording.note(f"{text}: too much, so the stages that they tell are left out")
            return "module"
        self.recording.note(text)
        return None

    def _tell_longest(self) -> None:
        named = Counter[str]()
        parts: defaultdict[str, list[RelockPart]] = defaultdict(list)
        for one in self.found["module"]:
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
            wholes = [one.relock.whole for one in self.found["module"]]
            from_, until = (
                min(w.earliest for w in wholes) / 1e9,
                max(w.latest for w in wholes) / 1e9,
            )
            sentence += f": {least:.3g} to {most:.3g} s of {from_:.3g} to {until:.3g} s"
        self.recording.note(sentence)


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
    for part in relock.parts:
        if len(part.stages) == 1:
            name, more = f"relock.{part.stages[0].replace(' ', '_')}", dict[str, Scalar]()
        else:
            name = "relock.between"
            more = {"stages": ", ".join(part.stages), "between": " and ".join(part.between)}
        rows.append(row(name, part.length, part.point, more))
    return rows
