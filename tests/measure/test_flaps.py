"""A NIC port that flaps around a reconfiguration: right values close, flaps are rows of their own.

A transmitter is dark for 100 ms while links still come up. Its port, and the one at the other end,
lose their carriers and bring their links up again, which takes seconds.
"""

from collections.abc import Iterator

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.stages import Reconfiguration, closure_rows
from lightrig.harness.record import Row
from lightrig.testbeds import load

MS = 1_000_000
DARK = 100 * MS
OPUS = load("testbeds/opus.yaml")
PORTS = [str(spec.port) for spec in OPUS.nic_ports]
FLAPPED, LEFT_DOWN = "server0.nic0.p1", "server0.nic1.p1"


class Lab:
    """Opus' testbed, simulated with seed 1, in which one transmitter goes dark for a while."""

    def __init__(self) -> None:
        self.bench = bind(OPUS, "simulated", 1)
        self.fabric, self.links = Fabric(self.bench), LinkObservation(self.bench)
        bring_up(self.fabric, self.links, self.fabric.plans["giant-ring"])
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.measure = Recording(self.rows.extend, note=self._note)

    def _note(self, sentence: str, /, *, in_report: bool) -> None:
        assert in_report
        self.notes.append(sentence)

    def darken(self, port: str, at: int) -> None:
        """Darken the transmitter of `port` from `at` (bench's clock, ns) on."""
        world, clock = self.bench.world, self.bench.clock
        assert world is not None

        def begin() -> None:
            end = world.darken([spec.port for spec in OPUS.nic_ports if str(spec.port) == port])
            clock.schedule(at + DARK, "flap", end)

        clock.schedule(at, "flap", begin)

    def reconfigure(self, port: str, after: int) -> Reconfiguration:
        """Measure a change of plan; `port` goes dark `after` ns from its beginning."""
        self.darken(port, self.bench.clock.now() + after)
        east_west = self.fabric.plans["east-west"]
        return measure_reconfiguration(self.fabric, self.links, self.measure, east_west)

    def closures(self) -> dict[str, float]:
        return {row.quantity: row.value for row in self.rows if row.quantity.startswith("closure.")}

    def of(self, quantity: str) -> dict[str, Row]:
        return {row.subject: row for row in self.rows if row.quantity == quantity}


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.bench.close()


def assert_closed(lab: Lab, event: Reconfiguration) -> None:
    closures = lab.closures()
    assert {"closure.carrier_up", "closure.firmware_up", "closure.outage_carrier"} <= set(closures)
    assert set(closures.values()) == {1.0}, closures
    # What comes after the watch changes nothing: not a flap either.
    lab.darken(FLAPPED, lab.bench.clock.now() + 500 * MS)
    lab.bench.clock.sleep(20_000 * MS)
    later = {row.quantity: row.value for row in closure_rows(event, lab.fabric, 0)}
    assert later == closures


@pytest.mark.parametrize("port", [FLAPPED, LEFT_DOWN], ids=["within", "at-the-end"])
def test_right_values_close_around_a_flap(lab: Lab, port: str) -> None:
    assert_closed(lab, lab.reconfigure(port, 3_400 * MS))


@pytest.mark.long
@pytest.mark.parametrize("after", [400, 3_000, 3_400, 4_000])
@pytest.mark.parametrize("port", PORTS)
def test_right_values_close_whichever_port_flaps_and_when(lab: Lab, port: str, after: int) -> None:
    assert_closed(lab, lab.reconfigure(port, after * MS))


def test_carrier_is_up_after_the_flap_and_the_outage_says_that_it_spans_one(lab: Lab) -> None:
    began = lab.bench.clock.now()
    event = lab.reconfigure(FLAPPED, 3_400 * MS)
    dark = began + 3_400 * MS - event.sent.earliest
    (flap,) = event.flaps
    row = lab.of("outage.flap")[FLAPPED]
    up, down = lab.of("carrier_up")[FLAPPED], lab.of("carrier_down")[FLAPPED]
    # 3.4 s after the change the port was up, and at its far end the link was still coming up.
    assert down.value < 100 * MS < dark < flap.down.latest - event.sent.earliest < dark + 10 * MS
    assert up.value > dark + 2_000 * MS
    assert row.value == pytest.approx(up.value - dark, abs=10 * MS)
    outage = lab.of("outage.carrier")
    assert outage[FLAPPED].value == pytest.approx(up.value - down.value, abs=2 * MS)
    assert {port for port, row in outage.items() if row.conditions["flaps"]} == {FLAPPED}
    assert lab.of("outage.datagram")[FLAPPED].conditions["flaps"] == 1
    (note,) = lab.notes
    assert FLAPPED in note
    assert "without carrier" not in note


def test_a_flap_that_is_not_over_is_recorded_with_an_open_end(lab: Lab) -> None:
    event = lab.reconfigure(LEFT_DOWN, 3_400 * MS)
    flaps = lab.of("outage.flap")
    assert LEFT_DOWN in flaps
    for port, row in flaps.items():
        watched = lab.of("watched")[port.partition(".")[0]]
        assert row.upper is None
        assert row.lower is not None
        assert 0 < row.lower < watched.value - 3_300 * MS
        assert lab.of("outage.carrier")[port].conditions["flaps"] == 0
        # The last time that the carrier came is before the flap, not after the watch.
        assert lab.of("carrier_up")[port].value < 3_400 * MS
    assert {flap.up for flap in event.flaps} == {None}
    assert f"without carrier when the last link was up: {', '.join(sorted(flaps))}" in lab.notes[0]
