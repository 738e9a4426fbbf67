"""Runs of relocks in simulated labs: each stage against the world's truth, and what is told."""

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
from lightrig.harness.record import Row
from lightrig.testbeds import Port

LAB = """
name: small
switches: {{ocs: {{model: polatis, address: "tl1://ocs.invalid", login: env:X, size: 4x4}}}}
servers:
  server[0-1]: {{address: "ssh://{{name}}.invalid", nics: {{nic0: {{
    ports: 2, netdev: "ens1f{{p}}", rate: {rate}{transceiver}}}}}}}
transceivers:
  fr: {{wavelength: 1310 nm, launch: {{min: -4 dBm, max: 4 dBm}},
       receive: {{min: -10 dBm, max: 4 dBm}}}}
fibers: ["server[0-1].nic0.p[0-1] <-> ocs"]
plans:
  straight: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
  crossed: [server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0]
"""

TRUE = "at", "signal", "lock", "output", "carrier", "carrier"
"""True moments by the order of the marks; this world tells firmware and carrier apart by 75 us."""
MOMENT_OF = {"signal_detection": "signal", "clock_recovery": "lock", "module_output": "output"}


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
        return {**light._asdict(), "carrier": carrier}


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


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        ("400G", ["signal_detection", "clock_recovery", "module_output"]),
        ("100G", ["signal_detection", "clock_recovery"]),
    ],
)
@pytest.mark.parametrize("seed", [3, 4])
def test_each_stage_holds_the_truth_and_they_add_up(ran, rate, told, seed):
    run = ran(rate, 8, seed)
    of_modules = [row for row in run.of("relock.whole") if row.conditions["source"] == "module"]
    assert len(of_modules) == 4 * 4  # events with readings, each with four ports
    for whole in of_modules:
        true = run.true(whole)
        assert contains(whole, true["carrier"] - true["at"])
        parts = [
            row
            for row in run.rows
            if row.quantity.startswith("relock.")
            and row.quantity != "relock.whole"
            and (row.subject, row.conditions.get("event"))
            == (whole.subject, whole.conditions["event"])
        ]
        names = [row.quantity.removeprefix("relock.") for row in parts]
        assert names == [*told, "between"]
        before = true["at"]
        for row, name in zip(parts, told, strict=False):
            moment = true[MOMENT_OF[name]]
            assert contains(row, moment - before), (row, true)
            before = moment
        assert contains(parts[-1], true["carrier"] - before)
        assert sum(row.value for row in parts) == pytest.approx(whole.value, abs=len(parts))
    (longest,) = [note for note in run.notes if "longest stage" in note]
    assert "firmware, driver" in longest


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


def test_events_without_readings_give_the_carrier_and_the_price_has_an_interval(ran):
    run = ran("100G", 32)
    wholes = run.of("relock.whole")
    by_source = {
        source: [r for r in wholes if r.conditions["source"] == source]
        for source in ("none", "module")
    }
    assert [len(found) for found in by_source.values()] == [64, 64]
    (price,) = run.of("relock.price")
    assert price.lower <= 0 <= price.upper  # reading costs nothing in this world
    assert price.conditions["n"] == 16
    assert any("reading transceivers lengthens the relock by" in note for note in run.notes)


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
    assert whole.conditions["between"] == "signal recovered and carrier up"
    assert any("server0.nic0.p0 tell no stages: Input/output error" in one for one in run.notes)


def test_firmware_that_begins_the_module_anew_is_named(ran):
    def begin_anew(bench: Bench, number: int) -> None:
        assert bench.world is not None
        port = bench.world.roster[Port("server0", "nic0.p0")]
        if number == 2:
            at = bench.clock.now() + 500_000_000
            bench.clock.schedule(at, "firmware", lambda: port.module.begin_anew(at))

    run = ran("400G", 4, meanwhile=begin_anew)
    (found,) = [note for note in run.notes if "data paths" in note]
    assert "server0.nic0.p0's transceiver left DPActivated: DPTxTurnOff" in found


@pytest.mark.long
@pytest.mark.parametrize("rate", ["400G", "100G", "25G"])
def test_over_200_changes_no_bound_misses_and_the_longest_stage_is_named(
    simulated, monkeypatch, rate
):
    monkeypatch.setattr("lightrig.harness.measure.relock_turns.TURNS", ("module",))
    named, told = 0, 0
    for seed in range(8):
        bench = simulated(LAB.format(rate=rate, transceiver=", transceiver: fr"), seed)
        run = Run(bench, lambda _bench, _number: None)
        plans = bench.testbed.plans
        bring_up(run.fabric, run.links, plans["straight"])
        turns = RelockTurns(run.fabric, run.links, run.recording)
        for number in range(9):
            before = len(turns.found["module"])
            turns.event(plans["straight" if number % 2 else "crossed"])
            for one in turns.found["module"][before:]:
                true = run.true_at(str(one.port), one.at)
                moments = dict(zip(MARKS, (true[each] for each in TRUE), strict=True))
                for part in one.relock.parts:
                    begin, end = (moments[mark] for mark in part.between)
                    assert part.length.earliest <= end - begin <= part.length.latest
                assert one.relock.sums_hold()
                steps = [b - a for a, b in pairwise(moments.values())]
                longest, found = STAGES[steps.index(max(steps))], one.relock.longest()
                told += 1
                named += len(found) <= 2 and any(longest in part.stages for part in found)
    assert told == 8 * 9 * 4
    assert named >= 0.95 * told
