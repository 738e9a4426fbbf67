"""Runs of relocks in simulated labs: each stage against the world's truth, and what is told."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import reconfigure
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.relock import MARKS, STAGES, condition_ended
from lightrig.harness.measure.relock_turns import RelockTurns
from lightrig.harness.measure.setting_trials import subject_of
from lightrig.harness.record import Row
from lightrig.instruments.simulated.hosts.cmis_module import CmisModule
from lightrig.instruments.simulated.hosts.module_models import CMIS, MODELS, SFF_8636
from lightrig.instruments.simulated.world.randomness import Stream
from lightrig.testbeds import Delay, Port

LAB = """
name: small
switches: {{ocs: {{model: polatis, address: "tl1://ocs.invalid", login: env:X, size: 4x4}}}}
servers:
  server[0-1]: {{address: "ssh://{{name}}.invalid", nics: {{nic0: {{
    ports: 2, netdev: "ens1f{{p}}", rdma: "mlx5_{{p}}", rate: {rate}{transceiver}}}}}}}
transceivers:
  fr: {{wavelength: 1310 nm, launch: {{min: -4 dBm, max: 4 dBm}},
       receive: {{min: -10 dBm, max: 4 dBm}}}}
fibers: ["server[0-1].nic0.p[0-1] <-> ocs"]
plans:
  straight: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
  crossed: [server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0]
"""

TRUE = "at", "signal", "lock", "output", "output", "phy", "firmware", "carrier", "carrier"
"""True moments by the order of the marks. Here the NIC has a signal as soon as the module's
output is valid, and the driver writes its line when the kernel has carrier."""


class Run:
    """A lab, what was recorded and noted in it, and the moments of its receivers."""

    def __init__(self, bench: Bench, meanwhile: Callable[[Bench, int], None]) -> None:
        self.bench = bench
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.recording = Recording(self.rows.extend, {}, note=self._note)
        self.fabric, self.links = Fabric(bench), LinkObservation(bench)
        self._meanwhile = meanwhile

    def _note(self, sentence: str, *, in_report: bool) -> None:
        self.notes.append(sentence)

    def measure(self, events: int) -> None:
        plans = self.bench.testbed.plans
        bring_up(self.fabric, self.links, plans["straight"])
        turns = RelockTurns(self.fabric, self.links, self.recording)
        for number in range(events):
            self._meanwhile(self.bench, number)
            turns.event(plans["straight" if number % 2 else "crossed"])
        turns.end()

    def of(self, quantity: str) -> list[Row]:
        return [row for row in self.rows if row.quantity == quantity]

    def true(self, row: Row) -> dict[str, int]:
        """Moments of one port in the event of a row: light, signal, lock and valid output."""
        return self.true_at(row.subject, row.time_ns)

    def true_at(self, subject: str, since: int) -> dict[str, int]:
        """The same of a port, in the event that began at a time."""
        assert self.bench.world is not None
        owner, _, rest = subject.partition(".")
        module = self.bench.world.roster[Port(owner, rest)].module
        assert self.bench.truth is not None
        carriers = self.bench.truth.first(subject, "carrier", up=True, since=since)
        assert carriers is not None
        carrier = carriers.earliest
        (*_, light) = [one for one in module.history if one.lit and since < one.at < carrier]
        found = {**light._asdict(), "carrier": carrier}
        for stage in ("firmware", "datagram"):
            moment = self.bench.truth.first(subject, stage, up=True, since=since)
            assert moment is not None
            found[stage] = moment.earliest
        port = self.bench.world.roster[Port(owner, rest)]
        port.link_up_times()  # its firmware takes note of its link-ups when it is read
        phys = [one.phy for one in port.timers.history if one.active == found["firmware"]]
        return found | ({"phy": phys[0]} if phys else {})

    def marks_at(self, subject: str, since: int) -> dict[str, int]:
        """The same by the names of the marks."""
        true = self.true_at(subject, since)
        moments = {m: true[each] for m, each in zip(MARKS, TRUE, strict=True) if each in true}
        return {**moments, "first datagram": true["datagram"]}


@pytest.fixture
def ran(simulated: Callable[..., Bench]) -> Callable[..., Run]:
    def begin(
        rate: str,
        events: int,
        seed: int = 3,
        transceiver: str = ", transceiver: fr",
        meanwhile: Callable[[Bench, int], None] = lambda _bench, _number: None,
    ) -> Run:
        run = Run(simulated(LAB.format(rate=rate, transceiver=transceiver), seed), meanwhile)
        run.measure(events)
        return run

    return begin


def contains(row: Row, true: int) -> bool:
    assert row.lower is not None
    assert row.upper is not None
    return 0 <= row.lower <= true <= row.upper


def force(bench: Bench) -> None:
    """Let all ports have forced speeds: then firmware's timers start anew with each link-up."""
    assert bench.world is not None
    for port in bench.world.roster.values():
        port.auto_negotiation = False


SEEN = {"400G": ["signal detected", "lock", "output valid"], "100G": ["signal detected", "lock"]}


@pytest.mark.parametrize("rate", SEEN)
@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("forced", [True, False])
def test_each_stage_holds_the_truth_and_they_add_up(ran, rate, seed, forced):
    run = ran(rate, 12, seed, meanwhile=lambda bench, _: force(bench) if forced else None)
    wholes = [row for row in run.of("relock.whole") if row.conditions["source"] != "none"]
    assert len(wholes) == 8 * 4  # events with readings, each with four ports
    for whole in wholes:
        source = whole.conditions["source"]
        true = run.marks_at(whole.subject, whole.time_ns)
        assert contains(whole, true["carrier up"] - true["signal recovered"])
        rows = [
            row
            for row in run.rows
            if row.quantity.startswith("relock.")
            and row.quantity not in {"relock.whole", "relock.moment"}
            and (row.subject, row.conditions.get("event"))
            == (whole.subject, whole.conditions["event"])
        ]
        of_firmware = ["NIC signal", "PHY up", "firmware up"] if forced else []
        marks = [
            "signal recovered",
            *(SEEN[rate] if source == "module" else []),
            *of_firmware,
            "driver's line",
            "carrier up",
            "first datagram",
        ]
        assert len(rows) == len(marks) - 1
        for row, (left, right) in zip(rows, pairwise(marks), strict=True):
            assert contains(row, true[right] - true[left]), (row, left, right, true)
            if row.quantity == "relock.between":
                assert row.conditions["between"] == f"{left} and {right}"
        total = sum(row.value for row in rows[:-1])
        assert total == pytest.approx(whole.value, abs=len(rows))
    (longest,) = [note for note in run.notes if "longest stage" in note]
    if forced and rate == "400G":
        assert "light and carrier: PHY, at" in longest
    else:
        assert "PHY" in longest
    untold = [note for note in run.notes if "tells no durations of an event" in note]
    assert len(untold) == (0 if forced else 4)


def test_a_naive_reading_of_latched_flags_misses_most(simulated):
    """The planted mistake: flags that a reading clears are taken for states."""
    bench = simulated(LAB.format(rate="400G", transceiver=", transceiver: fr"), 3)
    fabric, links = Fabric(bench), LinkObservation(bench)
    plans = bench.testbed.plans
    bring_up(fabric, links, plans["straight"])
    missed = {"ours": 0, "naive": 0}
    for number in range(8):
        for server in bench.servers.values():
            assert server.begin_module_reads(["ens1f0", "ens1f1"], period=5_000_000) == {}
        reconfigure(fabric, plans["straight" if number % 2 else "crossed"], links)
        for name, server in bench.servers.items():
            for netdev, shown in server.end_module_reads().items():
                module = bench.world.roster[Port(name, f"nic0.p{netdev[-1]}")].module
                true = module.history[-1].lock
                ours = condition_ended(shown.no_lock, latched=shown.latched, late=shown.late)
                naive = condition_ended(shown.no_lock, latched=False)
                missed["ours"] += not ours.earliest <= true <= ours.latest
                missed["naive"] += not naive.earliest <= true <= naive.latest
    assert missed["ours"] == 0
    assert missed["naive"] > 32 / 2


@pytest.mark.parametrize("events", [24, pytest.param(48, marks=pytest.mark.long)])
def test_events_without_readings_give_the_carrier_and_the_price_has_an_interval(ran, events):
    run = ran("100G", events)
    wholes = run.of("relock.whole")
    by_source = {
        source: [r for r in wholes if r.conditions["source"] == source]
        for source in ("none", "module", "firmware")
    }
    assert [len(found) for found in by_source.values()] == [4 * events / 3] * 3
    prices = run.of("relock.price")
    assert [price.conditions["source"] for price in prices] == ["module", "firmware"]
    for price in prices:
        assert price.lower <= 0 <= price.upper  # reading costs nothing in this world
        assert price.conditions["n"] == events / 3
    for what in ("transceivers", "the firmware's timers"):
        assert any(f"reading {what} lengthens the relock by" in note for note in run.notes)


@pytest.mark.parametrize(("factor", "left_out"), [(1.0, False), (1.5, True)])
def test_a_source_that_lengthens_the_relock_by_a_tenth_is_named_and_left_out(
    ran, monkeypatch, factor, left_out
):
    """Reading is made to cost half of the relock, five times what is allowed, or nothing."""
    usual, slower = Stream.duration, [1.0]
    monkeypatch.setattr(
        Stream, "duration", lambda stream, *of: round(slower[0] * usual(stream, *of))
    )

    def burden(_bench: Bench, number: int) -> None:
        slower[0] = factor if number % 6 > 1 else 1.0

    run = ran("100G", 24, meanwhile=burden)
    too_much = [note for note in run.notes if "too much, so the stages that they tell" in note]
    stages = {row.quantity for row in run.rows if row.quantity.startswith("relock.")}
    assert len(run.of("relock.whole")) == 24 * 4  # the carrier is recorded all the same
    if left_out:
        assert len(too_much) == 2  # the transceivers, and the firmware's timers
        assert all(price.value > 0.1 * 3e9 for price in run.of("relock.price"))
        assert stages == {"relock.whole", "relock.price"}
        assert not [note for note in run.notes if "the longest stage" in note]
    else:
        assert not too_much
        assert {"relock.clock_recovery", "relock.between", "relock.moment"} <= stages


def test_moments_of_both_ends_hold_the_truth_and_name_the_other_end(ran):
    run = ran("400G", 4)
    moments = run.of("relock.moment")
    truths = {"signal recovered": "at", "signal detected": "signal", "lock": "lock"}
    truths |= {"output valid": "output", "driver's line": "carrier", "carrier up": "carrier"}
    truths["first datagram"] = "datagram"
    seen = set()
    for row in moments:
        of = row.conditions
        number = str(row.subject)[-1], str(of["peer"])[-1]
        assert row.subject[:7] != str(of["peer"])[:7]
        assert (number[0] == number[1]) == (of["event"] % 2 == 1)  # crossed, then straight
        seen.add(of["moment"])
        if of["moment"] in truths:
            true = run.true_at(row.subject, row.time_ns)[truths[of["moment"]]] - row.time_ns
            # The command was written up to 1 ms after the event's begin.
            assert row.lower <= true <= row.upper + 1_000_000, (row, true)
    assert seen == {"light lost", *truths, "driver's line", "first datagram"}
    assert {row.conditions["event"] for row in moments} == {2, 3}  # those with readings
    ports = run.of("relock.port")
    assert [row.value for row in ports] == [2, 2, 2, 2]
    assert {row.conditions["transceiver"] for row in ports} == {"fr"}
    assert {row.conditions["firmware"] for row in ports} == {"not known"}


def test_with_few_events_the_price_is_unknown(ran):
    run = ran("100G", 4)
    assert not run.of("relock.price")
    assert any("is unknown with so few events" in note for note in run.notes)


def test_modules_that_cannot_be_read_are_named(ran):
    def pull(bench: Bench, number: int) -> None:
        assert bench.world is not None
        port = bench.world.roster[Port("server0", "nic0.p0")]
        port.spec = replace(port.spec, transceiver=None)

    run = ran("100G", 4, meanwhile=pull)
    stages = [row for row in run.rows if row.quantity == "relock.clock_recovery"]
    assert {row.subject for row in stages} == {
        *("server0.nic0.p1", "server1.nic0.p0", "server1.nic0.p1")
    }
    (whole,) = [row for row in run.of("relock.between") if row.subject == "server0.nic0.p0"][:1]
    assert whole.conditions["between"] == "signal recovered and driver's line"
    assert any("server0.nic0.p0 tell no stages: Input/output error" in one for one in run.notes)


def test_firmware_that_begins_the_module_anew_is_named(ran):
    def begin_anew(bench: Bench, number: int) -> None:
        assert bench.world is not None
        port = bench.world.roster[Port("server0", "nic0.p0")]
        if number == 2:
            at = bench.clock.now() + 2_500_000_000  # behind what is read before an event
            bench.clock.schedule(at, "firmware", lambda: port.module.begin_anew(at))

    run = ran("400G", 4, meanwhile=begin_anew)
    (found,) = [note for note in run.notes if "data paths" in note]
    assert "server0.nic0.p0's transceiver left DPActivated: DPTxTurnOff" in found
    assert "loop" not in found


def test_a_module_that_answers_in_300_ms_is_named_and_bounds_hold(ran):
    slow = CMIS._replace(answer=Delay(300_000_000, 20_000_000))

    def plug(bench: Bench, number: int) -> None:
        assert bench.world is not None
        port = bench.world.roster[Port("server0", "nic0.p0")]
        if number == 0:
            port.model = slow

    run = ran("400G", 4, meanwhile=plug)
    (note,) = [note for note in run.notes if "answers in" in note]
    assert re.search(r"the transceiver of server0\.nic0\.p0 answers in [23]\d\d ms only", note)
    moments = [row for row in run.of("relock.moment") if row.subject == "server0.nic0.p0"]
    assert moments
    for part in run.of("relock.between"):
        assert part.lower is not None
        assert part.lower >= 0
    wholes = [row for row in run.of("relock.whole") if row.conditions["source"] != "none"]
    for whole in (row for row in wholes if row.subject == "server0.nic0.p0"):
        true = run.marks_at(whole.subject, whole.time_ns)
        for row in run.rows:
            if row.conditions.get("event") == whole.conditions["event"] and (
                row.subject == whole.subject and row.quantity in SINGLE
            ):
                left, right = SINGLE[row.quantity]
                assert contains(row, true[right] - true[left])


SINGLE = {
    "relock.signal_detection": ("signal recovered", "signal detected"),
    "relock.clock_recovery": ("signal detected", "lock"),
    "relock.module_output": ("lock", "output valid"),
}


def test_a_module_that_is_changed_between_two_readings_is_named(ran):
    """Another model, without the page that is read: its readings fail, and none is invented."""

    def change(bench: Bench, number: int) -> None:
        assert bench.world is not None
        port = bench.world.roster[Port("server0", "nic0.p0")]
        if number == 2:
            before.append(port.module)
            at = bench.clock.now() + 2_500_000_000  # behind what is read before an event
            bench.clock.schedule(at, "a person", lambda: setattr(port, "model", SFF_8636))

    before: list[CmisModule] = []
    run = ran("400G", 3, meanwhile=change)
    assert any("server0.nic0.p0: " in n and "Input/output error" in n for n in run.notes)
    rows = [row for row in run.rows if row.subject == "server0.nic0.p0"]
    assert all(row.lower is None or row.lower >= 0 for row in rows)
    (whole,) = [
        row for row in rows if (row.quantity, row.conditions.get("event")) == ("relock.whole", 2)
    ]
    light = before[0].history[-1]
    assert light.lit
    assert run.bench.truth is not None
    carrier = run.bench.truth.first(whole.subject, "carrier", up=True, since=whole.time_ns)
    assert carrier is not None
    assert contains(whole, carrier.earliest - light.at)


def test_an_end_without_tools_is_named_and_the_other_is_divided(simulated):
    lab = LAB.format(rate="400G", transceiver=", transceiver: fr")
    lab += "simulation: {faults: [{fault: missing tool, at: [server1], tool: mlxlink}]}\n"
    run = Run(simulated(lab, 3), lambda bench, _: force(bench))
    run.measure(6)
    told = {row.subject for row in run.of("relock.phy")}
    assert told == {"server0.nic0.p0", "server0.nic0.p1"}
    untold = [note for note in run.notes if "tells no durations: " in note]
    assert len(untold) == 2
    assert all("server1" in note and "mlxlink" in note for note in untold)


def test_a_trial_measures_a_stage_of_a_port_by_the_worlds_truth(simulated):
    """A value is the mean of a change each way; a duration of firmware is known to 1 ms."""
    bench = simulated(LAB.format(rate="400G", transceiver=", transceiver: fr"), 3)
    run = Run(bench, lambda _bench, _number: None)
    force(bench)
    at = "server1.nic0.p1"
    found = {}
    for name in ("relock.phy", "relock"):
        subject = subject_of(name, at, run.fabric, lambda: run.links, run.recording)
        subject.prepare()
        began = bench.clock.now()
        found[name] = subject.measure()
        first = run.marks_at(at, began)
        second = run.marks_at(at, first["first datagram"])
        left, right = (
            ("NIC signal", "PHY up") if "phy" in name else ("signal recovered", "carrier up")
        )
        true = [each[right] - each[left] for each in (first, second)]
        assert true[0] != true[1]
        # A point and the truth are within the same interval: of 2 ms, or of two readings of light.
        assert found[name] == pytest.approx(sum(true) / 2, abs=40e6 if name == "relock" else 2e6)


SHARED = {
    "CMIS with durations": "400G",
    "CMIS without durations": "800G",
    "CMIS that begins anew": "400G",
    "CMIS in a loop": "400G",
    "SFF-8636": "100G",
    "SFF-8472": "25G",
}
"""Six models, each with a rate at which it is sold."""


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_over_200_changes_of_six_models_no_bound_misses_and_the_longest_stage_is_named(
    simulated, monkeypatch, model
):
    monkeypatch.setattr("lightrig.harness.measure.relock_turns.TURNS", ("module",))
    named, bounds, widths = 0, 0, Counter()
    notes = []
    for seed in range(4):
        lab = LAB.format(rate=SHARED[model.name], transceiver=", transceiver: fr")
        bench = simulated(lab, seed)
        run = Run(bench, lambda _bench, _number: None)
        for port in bench.world.roster.values():
            port.model = model
        if seed % 2:
            force(bench)
        plans = bench.testbed.plans
        bring_up(run.fabric, run.links, plans["straight"])
        turns = RelockTurns(run.fabric, run.links, run.recording)
        for number in range(9):
            before = len(turns.found["module"])
            turns.event(plans["straight" if number % 2 else "crossed"])
            for one in turns.found["module"][before:]:
                moments = run.marks_at(str(one.port), one.at)
                for part in (*one.relock.parts, *one.relock.after):
                    begin, end = (moments[mark] for mark in part.between)
                    assert 0 <= part.length.earliest <= end - begin <= part.length.latest, part
                    bounds += 1
                    widths[part.between] = max(widths[part.between], part.length.latest)
                assert one.relock.sums_hold()
                ordered = [moments[mark] for mark in MARKS]
                steps = [b - a for a, b in pairwise(ordered)]
                longest, found = STAGES[steps.index(max(steps))], one.relock.longest()
                named += len(found) <= 2 and any(longest in part.stages for part in found)
        notes += run.notes
    assert named >= 0.95 * 4 * 9 * 4
    moved = [note for note in notes if "data paths" in note]
    assert len(moved) == (16 if model.rounds else 0)
    for note in moved:
        assert ("in a loop, lane 1: " in note) == (model.rounds > 1), note
    print(f"{model.name}: 36 changes, {bounds} bounds, 0 missed; longest named {named} of 144")
