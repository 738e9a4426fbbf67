"""Closure: every switch driver closes, and a measurement that is wrong does not."""

import itertools
import re
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from bench.served_lab import describe
from late_light import stamp_light_late

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.findings import CLOCK, Finding
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.closure import unclosed
from lightrig.harness.measure.light import dither
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.outage import measure_outage
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import NotEnoughDataError, Recording
from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LightSource
from lightrig.instruments.core.errors import ClockError
from lightrig.instruments.core.stages import Watch
from lightrig.instruments.servers.host.offset import ClockDriftWarning
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.testbeds import Limit

MS = 1_000_000

SWITCH = """
name: closing
switches:
  ocs: {{model: {model}, address: "{address}", size: {size}, options: {{{options}}}}}
instruments:
  {lasers}: {{kind: light_source, model: keysight-n7776c, address: "scpi://{{name}}.invalid"}}
  meter: {{kind: power_meter, model: keysight-n7745a, address: scpi://meter.invalid, channels: 4}}
fibers: [{fibers}]
plans:
  one: {{circuits: {{ocs: [{one}]}}}}
  two: {{circuits: {{ocs: [{two}]}}}}
  less: {{circuits: {{ocs: [{less}]}}}}
simulation:    # dark for longer than any of the monitors averages
  switches:
    ocs: {{acknowledge: {{mean: 30 ms}}, dark: {{mean: 2 ms}}, settle: {{mean: 400 ms}}}}
"""
MATRIX = {
    "size": "8x8",
    "lasers": "laser[1-2]",
    "fibers": "'laser[1-2] -> ocs.[1-2]', 'ocs.[9-10] -> meter.[1-2]'",
    "one": '"1>9", "2>10"',
    "two": '"1>10", "2>9"',
    "less": '"2>9"',
}


def selector(outputs: int, *, less: int = 3) -> dict[str, str]:
    """A switch with one input."""
    return {
        "size": f"1x{outputs}",
        "lasers": "laser",
        "fibers": f"'laser -> ocs.1', 'ocs.[2-{outputs + 1}] -> meter.[1-{outputs}]'",
        "one": '"1>2"',
        "two": '"1>3"',
        "less": f'"1>{less}"',
    }


SWITCHES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "polatis, TL1": ("polatis", "tl1://ocs.invalid", "", MATRIX),
    "polatis, TL1, rerouting": ("polatis", "tl1://ocs.invalid", "rerouting: true", MATRIX),
    "polatis, SCPI": ("polatis", "scpi://ocs.invalid", "", MATRIX),
    "polatis, SCPI, rerouting": ("polatis", "scpi://ocs.invalid", "rerouting: true", MATRIX),
    "polatis, NETCONF": ("polatis", "netconf://ocs.invalid", "", MATRIX),
    "polatis, RESTCONF": ("polatis", "restconf://ocs.invalid", "", MATRIX),
    "polatis, RESTCONF, put": ("polatis", "restconf://ocs.invalid", "collection: put", MATRIX),
    "calient-s": ("calient-s", "tl1://ocs.invalid", "", MATRIX),
    "sonic-ocs": ("sonic-ocs", "ssh://ocs.invalid", "", MATRIX),
    "sonic-ocs, gNMI": ("sonic-ocs", "gnmi://ocs.invalid", "", MATRIX),
    "dicon-gp600": ("dicon-gp600", "scpi://ocs.invalid", "", MATRIX),
    "thorlabs-osw": ("thorlabs-osw", "serial:///dev/ttyUSB0", "", selector(2, less=2)),
    "osw-ascii": ("osw-ascii", "serial:///dev/ttyUSB0", "", selector(4, less=5)),
    "dicon-mems": ("dicon-mems", "serial:///dev/ttyUSB0", "", selector(4, less=5)),
    "sercalo": ("sercalo", "serial:///dev/ttyUSB0", "", selector(4, less=5)),
    "agiltron": ("agiltron", "serial:///dev/ttyUSB0", "standing: 1", selector(4, less=5)),
    "ocstrx": ("ocstrx", "serial:///dev/trx", "", selector(3, less=4)),
    "keysight-n773x": ("keysight-n773x", "scpi://ocs.invalid", "", selector(4, less=5)),
}


class Rig:
    """A bench in virtual time whose reconfigurations are recorded."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.found: list[Finding] = []
        self.fabric, self.links = Fabric(bench), LinkObservation(bench)
        self.measure = Recording(
            self.rows.extend,
            bench.testbed.limits,
            note=lambda sentence, **_: self.notes.append(sentence),
            found=self.found.extend,
        )

    def bring_up(self, plan: str) -> None:
        bring_up(self.fabric, self.links, self.bench.testbed.plans[plan])

    def change(self, *plans: str) -> None:
        for name in plans:
            plan = self.bench.testbed.plans[name]
            measure_reconfiguration(self.fabric, self.links, self.measure, plan)

    def closures(self, quantity: str) -> list[float]:
        return [row.value for row in self.rows if row.quantity == f"closure.{quantity}"]


@pytest.mark.parametrize("switch", SWITCHES)
def test_acknowledgements_of_every_switch_hold_the_truth(
    simulated: Callable[..., Bench], switch: str
) -> None:
    model, address, options, shape = SWITCHES[switch]
    rig = Rig(simulated(SWITCH.format(model=model, address=address, options=options, **shape)))
    for name, laser in rig.bench.instruments.items():
        if name.startswith("laser"):
            assert isinstance(laser, LightSource)
            laser.set_emission(1, on=True)
    rig.bring_up("one")
    rig.change("two", "one", "less", "one")
    assert set(rig.closures("acknowledged")) == {1.0}
    assert len(rig.closures("acknowledged")) >= 2
    assert list(unclosed(rig.rows)) == []


@pytest.mark.parametrize(
    "switch", ["polatis, NETCONF", "polatis, RESTCONF", "sonic-ocs", "sonic-ocs, gNMI"]
)
def test_the_time_of_a_command_has_a_width_on_every_wire(
    simulated: Callable[..., Bench], switch: str
) -> None:
    model, address, options, shape = SWITCHES[switch]
    text = SWITCH.format(model=model, address=address, options=options, **shape)
    assert text.count("simulation:") == 1
    delay = "simulation:\n  network: {write: {mean: 300 us, sd: 100 us}}"
    rig = Rig(simulated(text.replace("simulation:", delay)))
    for name, laser in rig.bench.instruments.items():
        if name.startswith("laser"):
            assert isinstance(laser, LightSource)
            laser.set_emission(1, on=True)
    rig.bring_up("one")
    rig.change("two", "one")
    assert rig.closures("latency") == [1.0, 1.0]
    assert rig.closures("acknowledged") == [1.0, 1.0]
    lengths = [row.upper - row.lower for row in rig.rows if row.quantity == "acknowledged"]
    assert min(lengths) >= 200_000
    assert list(unclosed(rig.rows)) == []


SWITCHES_AT_ONCE = """
name: three
switches:
  ocs[0-2]: {model: polatis, address: "tl1://{name}.invalid", size: 4x4}
instruments:
  laser[0-2]: {kind: light_source, model: keysight-n7776c, address: "scpi://{name}.invalid"}
  meter: {kind: power_meter, model: keysight-n7745a, address: scpi://meter.invalid, channels: 8}
fibers:
  - laser[0-2] -> ocs[0-2].1
  - ocs[0-2].5 -> meter.[1-3]
  - ocs[0-2].6 -> meter.[4-6]
plans:
  one: {circuits: {"ocs[0-2]": ["1>5"]}}
  two: {circuits: {"ocs[0-2]": ["1>6"]}}
simulation:    # dark for longer than any of the monitors averages
  switches:
    ocs0: {acknowledge: {mean: 30 ms}, dark: {mean: 2 ms}, settle: {mean: 400 ms}}
    ocs1: {acknowledge: {mean: 50 ms}, dark: {mean: 2 ms}, settle: {mean: 400 ms}}
    ocs2: {acknowledge: {mean: 40 ms}, dark: {mean: 2 ms}, settle: {mean: 400 ms}}
"""


def test_each_of_several_switches_has_the_time_of_its_acknowledgement(
    simulated: Callable[..., Bench],
) -> None:
    rig = Rig(simulated(SWITCHES_AT_ONCE))
    for number in range(3):
        laser = rig.bench.instruments[f"laser{number}"]
        assert isinstance(laser, LightSource)
        laser.set_emission(1, on=True)
    rig.bring_up("one")
    rig.change("two")
    times = {row.subject: row.value / MS for row in rig.rows if row.quantity == "acknowledged"}
    assert sorted(times, key=times.__getitem__) == ["ocs0", "ocs2", "ocs1"]
    (last,) = (row.value for row in rig.rows if row.quantity == "reconfiguration.acknowledged")
    assert last == max(times.values()) * MS
    assert rig.closures("acknowledged") == [1.0]


@pytest.fixture
def lab(simulated: Callable[..., Bench], tmp_path: Path) -> Callable[..., Rig]:
    def build(**described: Any) -> Rig:
        rig = Rig(simulated(describe(tmp_path, **described)))
        rig.bring_up("straight")
        return rig

    return build


@pytest.mark.parametrize("rerouting", [True, False])
def test_every_stage_and_outage_of_an_honest_measurement_closes(
    lab: Callable[..., Rig], rerouting: bool
) -> None:
    rig = lab(rerouting=rerouting)
    rig.change("crossed", "straight")
    for stage in ("acknowledged", "los", "signal_recovered", "carrier_down", "carrier_up"):
        assert rig.closures(stage) == [1.0, 1.0], stage
    for stage in ("datagrams_lost", "first_datagram", "outage_carrier", "outage_datagram"):
        assert rig.closures(stage) == [1.0, 1.0], stage
    assert list(unclosed(rig.rows)) == []


UNKIND = """
      monitor: {averaging: 10 ms, noise: 0.03 dB, offset: 0.15 dB, drift: 0.01 dB}
      edge: {rise: 2 ms, fall: 1 ms, ringing: {}}
      loss: {mean: 1.2 dB, sd: 0.2 dB, repeatability: 0.05 dB, polarization: 0.1 dB,
             per_kelvin: 0.005 dB, per_nm: 0.005 dB}
  connectors: {}
  clocks: {offset: {sd: 5 ms}, drift_ppm: 30}
  network: {delay: {mean: 200 us, sd: 100 us}, write: {mean: 300 us, sd: 200 us}}
"""


@pytest.fixture
def unkind_lab(simulated: Callable[..., Bench], tmp_path: Path) -> Callable[[], Rig]:
    """A lab with edges, ringing, losses that vary, clocks that drift and writes that take time."""

    def build() -> Rig:
        path = describe(tmp_path)
        kind = "\n      monitor: {averaging: 10 ms, noise: 0.03 dB}\n"
        text = path.read_text()
        assert kind in text
        path.write_text(text.replace(kind, UNKIND))
        rig = Rig(simulated(path))
        rig.bring_up("straight")
        return rig

    return build


def test_measurements_close_in_a_world_that_is_less_kind(unkind_lab: Callable[[], Rig]) -> None:
    rig = unkind_lab()
    rig.change(*["crossed", "straight"] * 3)
    for stage in ("latency", "acknowledged", "los", "signal_recovered", "outage_datagram"):
        assert rig.closures(stage) == [1.0] * 6, stage
    assert list(unclosed(rig.rows)) == []


@pytest.mark.parametrize("ppm", [200, -900])
def test_a_clock_that_drifts_too_fast_is_named_and_its_bounds_hold(
    simulated: Callable[..., Bench], tmp_path: Path, ppm: int
) -> None:
    path = describe(tmp_path)
    fault = f"  faults: [{{fault: clock skew, at: [server0], ppm: {ppm}}}]\n"
    path.write_text(path.read_text() + fault)
    rig = Rig(simulated(path))

    def change() -> None:
        rig.bring_up("straight")
        for plan in ("crossed", "straight", "crossed"):
            rig.bench.clock.sleep(20_000 * MS)
            rig.change(plan)

    with pytest.warns(ClockDriftWarning, match="server0: its clock drifts by at least"):
        change()
    assert list(unclosed(rig.rows)) == []
    assert rig.closures("carrier_up") == [1.0] * 3


def test_a_drifting_clock_costs_no_precision(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    """Quartz without NTP drifts by 10 to 50 ppm: 70 to 350 us in a bring-up of seconds."""
    widths = {}
    for ppm in (0, 20, -400):
        path = describe(tmp_path)
        fault = f"  faults: [{{fault: clock skew, at: [server0], ppm: {ppm}}}]\n"
        text, slow = path.read_text(), "bring_up: {mean: 3.5 s, sd: 1 ms}"
        assert "bring_up: {mean: 10 ms, sd: 1 ms}" in text
        text = text.replace("bring_up: {mean: 10 ms, sd: 1 ms}", slow)
        path.write_text(text + "  clocks: {wander_ppm: 0.1}\n" + fault)
        rig = Rig(simulated(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClockDriftWarning)
            rig.bring_up("straight")
            rig.change("crossed", "straight", "crossed")
        assert list(unclosed(rig.rows)) == []
        of_server = [
            row.upper - row.lower
            for row in rig.rows
            if row.quantity == "carrier_up" and row.subject.startswith("server0")
        ]
        widths[ppm] = statistics.median(of_server)
    assert max(widths.values()) <= 1.3 * widths[0]


@pytest.mark.parametrize(("step", "way"), [("5 ms", "ahead"), ("-5 ms", "back")])
def test_an_event_in_which_a_clock_jumps_has_no_times_and_the_next_has(
    simulated: Callable[..., Bench], tmp_path: Path, step: str, way: str
) -> None:
    path = describe(tmp_path)
    fault = f"{{fault: clock step, at: [server0], after: 1 s, step: {step}}}"
    path.write_text(path.read_text() + f"  faults: [{fault}]\n")
    rig = Rig(simulated(path))
    rig.bring_up("straight")
    rig.change(*["crossed", "straight"] * 20)
    assert rig.bench.clock.now() >= 1_000 * MS
    (aside,) = [row for row in rig.rows if row.quantity == "set_aside.clock"]
    assert (aside.subject, rig.measure.set_aside, rig.measure.events) == ("server0", 1, 40)
    number = aside.conditions["event"]
    assert 0 < number < 39
    events = {row.conditions["event"] for row in rig.rows if row.quantity == "carrier_up"}
    assert events == set(range(40)) - {number}
    assert list(unclosed(rig.rows)) == []
    assert set(rig.closures("carrier_up")) == {1.0}
    rig.measure.judge()
    problem = f": server0 has a clock that jumped {way} by"
    at_once, says = rig.notes
    assert f"reconfiguration {number} to " in at_once
    assert f" has no times{problem}" in at_once
    assert f": 1 of 40 events set aside, not judged{problem}" in says
    (found,) = rig.found
    assert (found.kind, found.subjects) == (CLOCK, ("server0",))
    least, most = map(float, re.findall(r"([0-9.]+) to ([0-9.]+) ms", found.evidence)[0])
    assert least <= 5 <= most


@pytest.mark.parametrize("asked", ["changes", "await_up"])
def test_a_clock_that_jumps_before_the_first_event_ends_nothing(
    simulated: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """A server that stood still while the first circuits were made."""
    rig, real, jumps = Rig(simulated(describe(tmp_path))), getattr(LinkObservation, asked), []

    def jumped(self: LinkObservation, *arguments: Any) -> Any:
        if not jumps:
            jumps.append(asked)
            raise ClockError("server0", "has a clock that jumped back by 1500 ms")
        return real(self, *arguments)

    monkeypatch.setattr(LinkObservation, asked, jumped)
    rig.bring_up("straight")
    rig.change("crossed", "straight")
    assert jumps == [asked]
    assert rig.measure.events == 2
    assert set(rig.closures("carrier_up")) == {1.0}


def test_a_clock_that_jumps_again_and_again_decides_nothing(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    """More than a tenth of the events are without times: the test is inconclusive, not passed."""
    path = describe(tmp_path)
    faults = [
        f"{{fault: clock step, at: [server{at % 2}], after: {300 + 240 * at} ms, step: 40 ms}}"
        for at in range(8)
    ]
    path.write_text(path.read_text() + f"  faults: [{', '.join(faults)}]\n")
    rig = Rig(simulated(path))
    rig.bring_up("straight")
    rig.change(*["crossed", "straight"] * 20)
    assert 4 < rig.measure.set_aside <= 8
    with pytest.raises(NotEnoughDataError, match=r"of 40 events set aside, .* more than 10 %"):
        rig.measure.judge()


def test_the_light_of_a_laser_that_drifts_recovers_once(
    simulated: Callable[..., Bench], tmp_path: Path
) -> None:
    path = describe(tmp_path)
    fault = "{fault: drifting laser, at: [server0.nic0.p0], drift: 1 dB}"
    path.write_text(path.read_text() + f"  faults: [{fault}]\n")
    rig = Rig(simulated(path))
    rig.bring_up("straight")
    clock, truth = rig.bench.clock, rig.bench.truth
    assert truth is not None
    since = clock.now()
    rig.change("crossed")
    clock.sleep(1_000 * MS)
    until = Span(clock.now(), clock.now())
    for egress in range(9, 13):
        watch = Watch(since, until)
        assert len(truth.all_moments("light", f"ocs.{egress}", watch, up=True)) == 1


def test_swapped_ends_of_the_command_are_not_closed(
    unkind_lab: Callable[[], Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped(self: Reconfiguration, at: Span) -> Span:
        earliest, latest = at.earliest - self.sent.earliest, at.latest - self.sent.latest
        return Span(min(earliest, latest), max(earliest, latest))

    monkeypatch.setattr(Reconfiguration, "after", swapped)
    rig = unkind_lab()
    rig.change("crossed")
    assert rig.closures("latency")[0] < 1
    assert "closure.latency of lab, event 0 is not closed" in "; ".join(
        map(str, unclosed(rig.rows))
    )


@pytest.fixture
def biased_truth(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the world's truth of one stage be what happened, and some time."""

    def bias(of: str, by: int, *, up: bool | None = None) -> None:
        note = GroundTruth.note

        def biased(self: GroundTruth, subject: str, stage: str, *, up: bool, at: Span) -> None:
            if stage == of and (only is None or up == only):
                at = Span(at.earliest + by, at.latest + by)
            note(self, subject, stage, up=up, at=at)

        only = up
        monkeypatch.setattr(GroundTruth, "note", biased)

    return bias


@pytest.mark.parametrize(
    ("stage", "up", "closures"),
    [
        ("acknowledged", None, ["acknowledged"]),
        ("light", True, ["signal_recovered"]),
        ("carrier", False, ["carrier_down", "outage_carrier"]),
        ("carrier", True, ["carrier_up", "outage_carrier"]),
        ("datagram", True, ["first_datagram", "outage_datagram"]),
    ],
)
def test_a_biased_measurement_is_not_closed(
    lab: Callable[..., Rig],
    biased_truth: Callable[..., None],
    stage: str,
    up: bool | None,
    closures: list[str],
) -> None:
    biased_truth(stage, 40 * MS, up=up)
    rig = lab()
    rig.change("crossed")
    sentences = "; ".join(map(str, unclosed(rig.rows)))
    for name in closures:
        (share,) = rig.closures(name)
        assert share <= 0.5, name
        assert f"closure.{name} of lab, event 0 is not closed: {share:.0%} of " in sentences


def test_light_stamped_late_is_not_closed(
    lab: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp_light_late(monkeypatch)
    rig = lab()
    rig.change("crossed")
    assert rig.closures("signal_recovered") == [0.0]
    assert rig.closures("los") == [0.0]


def test_one_interval_of_many_that_misses_is_not_closed(
    lab: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ends of an interval are compared: one that begins too late, one that ends too early."""
    note = GroundTruth.note

    def biased(self: GroundTruth, subject: str, stage: str, *, up: bool, at: Span) -> None:
        by = {"ocs.9": 30 * MS, "ocs.10": -30 * MS}.get(subject, 0)
        note(self, subject, stage, up=up, at=Span(at.earliest + by, at.latest + by))

    monkeypatch.setattr(GroundTruth, "note", biased)
    rig = lab()
    rig.change("crossed")
    assert rig.closures("signal_recovered") == [0.5]
    (row,) = [row for row in rig.rows if row.quantity == "closure.signal_recovered"]
    assert (row.conditions["n"], row.conditions["closed"]) == (4, 0)


def test_limits_judge_the_worst_direction_of_an_outage(lab: Callable[..., Rig]) -> None:
    rig = lab()
    plan = rig.bench.testbed.plans["crossed"]
    windows = measure_outage(rig.fabric, rig.links, rig.measure, plan)
    lengths = sorted(window.length.latest for window in windows)
    assert len(lengths) == 4
    assert lengths[0] < lengths[-1]
    longest = max(window.length.earliest for window in windows)

    def outcome(value: float, decision: Literal["guarded", "lenient"]) -> str:
        limit = Limit("outage.packets", "upper", 1.0, value, "ns", None, decision=decision)
        return rig.measure.verdict(limit).outcome

    # Of one event of four directions: whole within the limit, or not whole beyond it.
    assert [outcome(lengths[-1] - less, "guarded") for less in (0, 1)] == [
        "pass",
        "not enough data",
    ]
    assert [outcome(longest - less, "lenient") for less in (0, 1)] == ["pass", "fail"]


def test_polls_are_not_locked_to_the_command(lab: Callable[..., Rig]) -> None:
    """Light is gone after 2 ms in each event; the interval that says so differs."""
    rig = lab()
    rig.change(*["crossed", "straight"] * 4)
    found = [row for row in rig.rows if row.quantity == "reconfiguration.los"]
    ends = {row.upper for row in found}
    assert len(ends) >= 6
    assert all(row.lower <= 2.5 * MS <= row.upper + MS for row in found)
    assert set(rig.closures("los")) == {1.0}
    assert set(rig.closures("signal_recovered")) == {1.0}


def test_phases_spread_evenly() -> None:
    phases = sorted(dither(number) for number in range(21))
    gaps = [b - a for a, b in itertools.pairwise([*phases, phases[0] + 1])]
    assert phases[0] >= 0
    assert max(gaps) < 2.7 * min(gaps)
    assert max(gaps) < 0.08
