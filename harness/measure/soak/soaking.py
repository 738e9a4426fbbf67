"""The loop of a soak: plans held in turn, servers and monitors read, rows of what happens.

What is at rest costs a few rows a minute: how long links were watched. Values are rows once an
hour, with the least and the greatest of their readings, and at once where they change.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lightrig.harness.bench import Fabric
from lightrig.harness.findings import LINK_FLAPPED, Finding, FoundError
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation, LinksDownError
from lightrig.harness.measure.port_counters import PortCounters
from lightrig.harness.measure.recording import Recording, limits_under
from lightrig.harness.measure.soak.earlier_runs import BEFORE, EarlierSoak
from lightrig.harness.measure.soak.fec_counts import FecCounts
from lightrig.harness.measure.soak.link_flaps import FlapTracker, LinkFlap
from lightrig.harness.measure.soak.link_time import LinkTime
from lightrig.harness.measure.soak.path_light import PathLight
from lightrig.harness.measure.soak.port_watch import Looked, PortsWatch, WatchBreak
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.rates import rate_sentence
from lightrig.instruments.clock import wall_time
from lightrig.testbeds import Plan, Port, Testbed, format_duration

SECOND = 1_000_000_000
HOUR = 3600 * SECOND

BYTES_AN_HOUR = 2_000_000
"""Most that a journal grows in an hour at rest for `LINKS` links; half of it for fewer."""
LINKS = 64

_COPIES = 3
"""The journal, its rows in the data set, and the page of the run."""

_SETTLED = 5 * SECOND
"""Time after which the light of a link that stays down is looked at, in ns."""


class FlapsError(FoundError):
    """Links flapped, and no limit of the testbed states how often or how long they may."""


@dataclass(frozen=True, slots=True)
class SoakPeriods:
    """How often a soak looks, in ns: at servers, at light, and when it writes what it has."""

    look: int = SECOND
    light: int = SECOND // 4
    checkpoint: int = 60 * SECOND
    modules: int = 600 * SECOND
    summary: int = HOUR

    @classmethod
    def of_length(cls, length: int) -> SoakPeriods:
        """Return those of a soak of `length` ns: a short one writes oftener."""
        return cls(checkpoint=min(max(length // 60, SECOND), 60 * SECOND))


def needed_bytes(testbed: Testbed, length: int) -> int:
    """Return the room on disk that a soak of `length` ns may need."""
    links = max(len(testbed.nic_ports) / 2, LINKS / 2)
    return round(BYTES_AN_HOUR * links / LINKS * length / HOUR * _COPIES)


def plans_in_turn(testbed: Testbed, length: int, begun: int) -> Iterator[tuple[str, int]]:
    """Yield plans and how long each is held, in ns, until `length` ns are over.

    begun: time of the soak that has passed already: the turns go on where they were.
    """
    turns = [(turn.plan, turn.hold_ns) for turn in testbed.soak]
    turns = turns or [(next(iter(testbed.plans)), length + begun)]
    passed = begun % sum(hold for _, hold in turns)
    while length > 0:
        for plan, hold in turns:
            if passed >= hold:
                passed -= hold
                continue
            rest = min(hold - passed, length)
            if rest > 0:
                yield plan, rest
            passed, length = 0, length - rest


@dataclass
class Soak:
    """One soak of a testbed; `run` is all of it.

    Args:
        fabric: applies the plans.
        links: brings their links up.
        recording: takes the rows.
        counters: of the NIC ports, and their modules.
        length: of the whole soak, in ns; what `earlier` has watched counts.
        earlier: the soak that this one goes on with.
        periods: by default those of its length.
    """

    fabric: Fabric
    links: LinkObservation
    recording: Recording
    counters: PortCounters
    length: int
    earlier: EarlierSoak | None = None
    periods: SoakPeriods | None = None
    _flapped: list[tuple[str, str]] = field(default_factory=list, init=False)

    def run(self) -> None:
        """Hold the plans in turn for the rest of the time, and record what happens.

        Links that do not come up are left out: the test fails at its end, or is inconclusive.
        Raises `LinksDownError` where no link of the first plan comes up, and `FlapsError` at the
        end where links flapped and no limit judges that.
        """
        bench, earlier = self.fabric.bench, self.earlier
        self._clock, self._testbed = bench.clock, bench.testbed
        self._every = self.periods or SoakPeriods.of_length(self.length)
        now = round(wall_time().timestamp() * 1e9)
        past = max(now - earlier.began, earlier.last) if earlier else 0
        self._origin = self._clock.now() - past
        self._sent = self._link_ns = 0
        self._lost: Counter[Port] = Counter()
        self._doubtful: Counter[Port] = Counter()
        planned = {"planned_s": self.length // SECOND}
        self._write([self._row(bench.testbed.name, "begun", now, "ns", more=planned)])
        left = self.length
        if earlier:
            left = max(self.length - earlier.watched, 0)
            self.recording.record(earlier.rows, judged=False)
            self._gap(bench.testbed.name, self._origin + earlier.last, "between two runs")
        self._watch, self._fec = PortsWatch(bench), FecCounts(bench)
        for number, (name, hold) in enumerate(plans_in_turn(self._testbed, left, past)):
            self._apply(number, self._testbed.plans[name])
            self._hold(self._testbed.plans[name], hold)
        self._conclude()

    # ------------------------------------------------------------------------------- one turn

    def _apply(self, number: int, plan: Plan) -> None:
        began = self._clock.now()
        try:
            self.fabric.bench.coverage.looked = False  # what was down may be back by now
            bring_up(self.fabric, self.links, plan, partly=True)
        except LinksDownError as error:
            if not number:
                raise
            # Hours were watched, and the other links can be.
            self.recording.note(f"soak: {error}")
            self.recording.found(error.findings)
        finally:
            self.links.pause()
        self._gap(self._testbed.name, began, f"change to {plan.name}")
        self._write([self._row(plan.name, "turn", number, "1")])

    def _hold(self, plan: Plan, hold: int) -> None:
        every, clock = self._every, self._clock
        links = tuple(sorted(self.fabric.links(plan)))
        self._tracker, self._time = FlapTracker(links), LinkTime(links)
        self._light = PathLight(self.fabric.bench, plan)
        end = clock.now() + hold
        due = {"look": 0, "checkpoint": clock.now() + every.checkpoint, "modules": 0}
        due["summary"] = clock.now() + every.summary
        try:
            self._note(self._watch.begin())
            while (now := clock.now()) < end:
                self._light.read()
                if now >= due["look"]:
                    due["look"] = now + every.look
                    self._look()
                if now >= due["modules"]:
                    due["modules"] = now + every.modules
                    self._read_counters()
                if now >= due["summary"]:
                    due["summary"] = now + every.summary
                    self._summarise()
                if now >= due["checkpoint"]:
                    due["checkpoint"] = now + every.checkpoint
                    self._checkpoint()
                    self.fabric.bench.check_lease()
                next_light = now + every.light
                clock.sleep(max(min(next_light, end) - clock.now(), 0))
            self._look()
        finally:
            self._finish()

    def _finish(self) -> None:
        """Record what is left of a turn, however it ends."""
        with contextlib.suppress(Exception):  # of what ended it, not of this
            self._look()
        for flap in self._tracker.end():
            self._record_flap(flap)
        for gap in self._watch.breaks():
            self._server_gap(gap)
        self._checkpoint()
        self._read_counters(whole=True)
        self._summarise()
        self._watch.end()

    def _look(self) -> None:
        self._note(self._watch.look())
        for flap in self._tracker.take(self._watch.until):
            self._record_flap(flap)
        now = self._clock.now()
        for flap in self._tracker.open.values():
            if flap.light is None and now > flap.down.latest + _SETTLED:
                flap.light = self._light_of(flap)
        self._time.advance(self._watch.since, self._watch.until)

    def _note(self, looked: Looked) -> None:
        for broken in looked.broken:
            self._tracker.break_off(broken.server)
            self.recording.announce(f"soak: {broken.server} is not watched: {broken.reason}")
        for server, since in self._watch.since.items():
            self._tracker.watched_since(server, since)
        for port, event in looked.events:
            self._tracker.note(port, event)
        for resumed in looked.resumed:
            self._server_gap(resumed)
        self._lost.update(looked.lost)
        self._doubtful.update(looked.doubtful)
        self._sent += looked.sent

    # ------------------------------------------------------------------------------- rows

    def _read_counters(self, *, whole: bool = False) -> None:
        rows = self.counters.changes(whole=whole)
        rows += (
            self._row(one.port, one.name, one.least, "1", (one.least, one.most))
            for one in self._fec.growth()
        )
        self._write(rows)

    def _checkpoint(self) -> None:
        now, rows, first = self._clock.now(), list[Row](), True
        for watched, links in self._time.take():
            self._link_ns += watched * len(links)
            together = {"links": len(links)} if first else {"links": 1}
            subjects = [self._testbed.name] if first else map(str, links)
            rows += [self._row(each, "watched", watched, "ns", more=together) for each in subjects]
            first = False
        if self._sent:
            rows.append(self._row(self._testbed.name, "datagrams", self._sent, "1"))
        for port, lost in self._lost.items():
            if lost > 0:
                least = max(lost - self._doubtful[port], 0)
                row = self._row(str(port), "datagrams_lost", lost, "1", (least, lost))
                rows.append(row)
        self._sent = 0
        self._lost.clear()
        self._doubtful.clear()
        for flap in self._tracker.open.values():
            # Of a link that stays down, a row each time that it has been down twice as long.
            if flap.is_down and flap.length(now)[0] >= 2 * flap.recorded:
                flap.recorded = flap.length(now)[0]
                rows.append(self._flap_row(flap, "down", now))
        self._write(rows)

    def _summarise(self) -> None:
        self._write(
            [
                self._row(port, "power", each.mean, "dBm", (each.least, each.greatest), n)
                for port, each in self._light.spreads()
                for n in ({"n": each.count},)
            ]
        )

    def _record_flap(self, flap: LinkFlap) -> None:
        if flap.light is None:
            flap.light = self._light_of(flap)
        name = "flap" if flap.stage == "carrier" else "rdma_flap"
        row = self._flap_row(flap, name, self._clock.now())
        self.recording.record([row])
        if flap.stage == "carrier":
            self._flapped.append((str(flap.link), flap.first_text))
        upper = "or more" if row.upper is None else f"to {format_duration(row.upper)}"
        length = f"{format_duration(row.lower or 0)} {upper}"
        self.recording.announce(
            f"soak: {flap.stage} of {flap.link} was lost for {length}; first: {flap.first_text}; "
            f"{flap.light}"
        )

    def _flap_row(self, flap: LinkFlap, name: str, now: int) -> Row:
        if flap.number is None:
            flap.number = self.recording.next_event()
        low, high = flap.length(now)
        value = low if high is None else (low + high) // 2
        more: dict[str, Scalar] = {
            "event": flap.number,
            "first": flap.first_text,
            "light": flap.light or "light not yet asked",
            "ends": len(flap.losses),
        }
        if name == "down":
            more["loss"] = "flap" if flap.stage == "carrier" else "rdma_flap"
        at = flap.down.latest
        return self._row(str(flap.link), name, value, "ns", (low, high), more, at=at)

    def _light_of(self, flap: LinkFlap) -> str:
        """Return what monitors showed: of the end whose light went, else of the leading one."""
        leading = flap.leading
        ends = sorted(flap.losses, key=lambda loss: loss is not leading)
        found = [self._light.relation(loss.port, loss.down, loss.up) for loss in ends]
        return next((one for one in found if " lost " in one), found[0])

    def _server_gap(self, gap: WatchBreak) -> None:
        ended = gap.ended or self._clock.now()
        length, more = max(ended - gap.began, 0), {"why": gap.reason.replace(",", ";")[:200]}
        self._write([self._row(gap.server, "gap", length, "ns", more=more, at=gap.began)])

    def _gap(self, subject: str, began: int, why: str) -> None:
        length = max(self._clock.now() - began, 0)
        self._write([self._row(subject, "gap", length, "ns", more={"why": why}, at=began)])

    def _row(
        self,
        subject: str,
        name: str,
        value: float,
        unit: str,
        bounds: tuple[float | None, float | None] | None = None,
        more: Mapping[str, Scalar] | None = None,
        at: int | None = None,
    ) -> Row:
        at = self._clock.now() if at is None else at
        low, high = bounds or (value, value)
        elapsed = round((at - self._origin) / 1e9, 3)
        conditions = {"elapsed_s": elapsed, **(more or {})}
        return Row(subject, f"soak.{name}", value, low, high, unit, at, conditions)

    def _write(self, rows: list[Row]) -> None:
        if rows:
            # Not judged: what is judged stays in memory.
            self.recording.record(rows, judged=False)

    # ------------------------------------------------------------------------------- the end

    def _conclude(self) -> None:
        before = self.earlier.rows if self.earlier else ()
        by_link: dict[str, Counter[str]] = {}
        for row in before:
            if row.quantity == f"{BEFORE}flap":
                by_link.setdefault(row.subject, Counter())[str(row.conditions["first"])] += 1
        for link, first in self._flapped:
            by_link.setdefault(link, Counter())[first] += 1
        watched = self._link_ns + sum(
            int(row.value) * int(row.conditions.get("links", 1))
            for row in before
            if row.quantity == f"{BEFORE}watched"
        )
        total = sum(firsts.total() for firsts in by_link.values())
        sentence = rate_sentence(total, watched / HOUR)
        self.recording.note(f"soak: {sentence} (exact one-sided 95 % bounds)")
        found = [_finding(link, firsts) for link, firsts in by_link.items()]
        if limits_under(self._testbed.limits, ("soak",)):
            self.recording.found(found)
        elif found:
            raise FlapsError(f"{sentence}: {'; '.join(map(str, found))}", found)


def _finding(link: str, firsts: Counter[str]) -> Finding:
    each = ", ".join(f"{first} {count}" for first, count in firsts.most_common())
    total = firsts.total()
    times = "once" if total == 1 else f"{total} times"
    evidence = f"{link} flapped {times} (first: {each})"
    return Finding(LINK_FLAPPED, evidence, tuple(link.split(" <-> ")))
